// The half of trainer/bench_program.h for a program that measures by itself.
#include "bench/bench_command.h"
#include "trainer/bench_program.h"

const char* penstock::trainer::bench_description() noexcept {
    return "Measure this machine and Penstock on it (see bench --help)";
}

penstock::ExitCode penstock::trainer::run_bench(int count, char** arguments) {
    return bench::run_command(count - 1, arguments + 1);  // the verb is where a program's name is expected
}
