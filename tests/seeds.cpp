#include "tests/seeds.h"

#include <gtest/gtest.h>

#include <random>

namespace penstock {

SeedOptions& seed_options() {
    static SeedOptions options;
    return options;
}

std::uint64_t first_seed() {
    if (const auto given = seed_options().seed) return *given;
    return std::random_device{}() % 1'000'000;
}

std::uint64_t seed_count(std::uint64_t usual) {
    if (const auto given = seed_options().runs) return *given;
    return seed_options().seed ? 1 : usual;
}

std::string replay(std::uint64_t seed) {
    const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
    const std::string name = test == nullptr ? "*" : std::string(test->test_suite_name()) + "." + test->name();
    return "replay: " + seed_options().program + " --gtest_filter=" + name + " --seed=" + std::to_string(seed);
}

}  // namespace penstock
