// How an exception ends the program.
#pragma once

#include "aio/words/error.h"

#include <string>

namespace penstock::trainer {

struct Failure {
    ExitCode code = ExitCode::internal;
    std::string message;  // one line where the exception had one
};

// Of the exception that is being handled. REQUIRES: called from a catch block.
Failure current_failure() noexcept;

}  // namespace penstock::trainer
