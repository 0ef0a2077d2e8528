// The command line of the measurements.
#pragma once

#include "aio/words/error.h"

namespace penstock::bench {

// From its words to the printed result: standard output has the result, standard error what is going on. `arguments`
// begin with a program's name.
ExitCode run_command(int count, char** arguments);

}  // namespace penstock::bench
