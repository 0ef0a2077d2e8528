// How much a test tries: the seed of a seeded test, and the command that runs that one run again. Every test program
// takes --seed=N, --runs=N and --all-patterns (tests/main.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace penstock {

struct SeedOptions {
    std::string program;                // as it was called
    std::optional<std::uint64_t> seed;  // the first; none: drawn anew
    std::optional<std::uint64_t> runs;  // seeds from there; none: what the test thinks right, or 1 from a given seed
    bool all_patterns = false;          // where bit patterns are tried: all 2^32 instead of some
};

// Written by main() alone, before any test.
SeedOptions& seed_options();

// The first seed of a seeded test, and how many from there.
std::uint64_t first_seed();
std::uint64_t seed_count(std::uint64_t usual);

// One line for a SCOPED_TRACE of the running test: "replay: build/dev/tests_swap --gtest_filter=Layout.… --seed=7"
std::string replay(std::uint64_t seed);

// Of any number a random-looking one (splitmix64): a seed from parts that are alike.
constexpr std::uint64_t mix(std::uint64_t value) noexcept {
    value += 0x9e3779b97f4a7c15;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
}

}  // namespace penstock
