// main() of the test programs: GoogleTest's, and the flags that say how much is tried.
#include "tests/seeds.h"

#include <gtest/gtest.h>

#include <charconv>
#include <cstdio>
#include <string_view>

namespace {

constexpr const char* help =
    "\nSeeded tests:\n"
    "  --seed=N   draw from seed N; a failure prints the whole command\n"
    "  --runs=N   that many seeds from there (default: 1 from a given seed, else what each test thinks right)\n"
    "\nTests of bit patterns:\n"
    "  --all-patterns   try all 2^32 of them (some minutes)\n";

// Nothing when `argument` is not `name` followed by a decimal number and nothing else.
std::optional<std::uint64_t> number_of(std::string_view argument, std::string_view name) {
    if (!argument.starts_with(name)) return std::nullopt;
    argument.remove_prefix(name.size());
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(argument.data(), argument.data() + argument.size(), number);
    if (error != std::errc() || end != argument.data() + argument.size()) return std::nullopt;
    return number;
}

}  // namespace

int main(int argc, char** argv) {
    ::testing::InitGoogleTest(&argc, argv);  // takes its own flags out
    penstock::SeedOptions& options = penstock::seed_options();
    options.program = argv[0];
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        if (argument == "--help" || argument == "-h") {
            std::fputs(help, stdout);
        } else if (const auto seed = number_of(argument, "--seed=")) {
            options.seed = seed;
        } else if (const auto runs = number_of(argument, "--runs=")) {
            options.runs = runs;
        } else if (argument == "--all-patterns") {
            options.all_patterns = true;
        } else {
            std::fprintf(stderr, "%s: '%s' is no flag of this program%s", argv[0], argv[i], help);
            return 2;
        }
    }
    return RUN_ALL_TESTS();
}
