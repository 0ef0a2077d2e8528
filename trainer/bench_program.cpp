#include "trainer/bench_program.h"

#include "aio/words/io_error.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

namespace penstock::trainer {
namespace {

// Returns what kept this process from becoming penstock-bench.
std::string become_bench_program(char** arguments) {
    std::error_code error;
    const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error)
        return fmt::format("cannot tell where this program lies: /proc/self/exe: {}; start penstock-bench by itself",
                           error.message());
    const std::string program = (own.parent_path() / "penstock-bench").string();
    arguments[1] = arguments[0];  // its name in front of what followed the verb
    ::execv(program.c_str(), arguments + 1);
    return fmt::format("cannot start {}: {}; `./run build` makes it (target penstock-bench, PENSTOCK_BENCH=ON)",
                       program, aio::errno_text(errno));
}

}  // namespace

const char* bench_description() noexcept {
    return "Measure this machine and Penstock on it (starts penstock-bench; see bench --help)";
}

ExitCode run_bench(int /*count*/, char** arguments) {
    std::fprintf(stderr, "penstock: error: %s\n", become_bench_program(arguments).c_str());
    return ExitCode::usage;
}

}  // namespace penstock::trainer
