// `penstock bench`: a program of its own beside this one (bench_program.cpp), or a part of this one
// (bench/bench_in_program.cpp), as the linker chooses.
#pragma once

#include "aio/words/error.h"

namespace penstock::trainer {

const char* bench_description() noexcept;  // for the help

// With the arguments that follow the verb, untouched; says itself what is wrong. Before anything of this program is set
// up: signals and streams are the measurements'. `arguments` is main's, with the verb at index 1.
ExitCode run_bench(int count, char** arguments);

}  // namespace penstock::trainer
