#include "pinned_pool/budget.h"
#include "aio/words/error.h"

#include "tests/refusal.h"

#include <gtest/gtest.h>

namespace penstock::pool {
namespace {

constexpr std::uint64_t mib = 1 << 20;

MachineMemory roomy() {
    return {1ULL << 40, "free RAM"};
}

std::string refusal(const Budget& budget, const MachineMemory& machine) {
    return refusal_of(ExitCode::does_not_fit, [&] { budget.check(machine); });
}

TEST(Budget, RoundsUsesUpToTheGranule) {
    Budget budget(mib, "memory.host_budget");
    budget.add({"none", 0, ""});
    budget.add({"one", 1, ""});
    budget.add({"exact", 8192, ""});
    EXPECT_EQ(budget.used_bytes(), 4096U + 8192U);
    EXPECT_EQ(budget.uses()[1].bytes, 4096U);
}

TEST(Budget, AcceptsUsesThatFillTheLimitToTheLastByte) {
    Budget budget(16 * mib, "memory.host_budget");
    budget.add({"weights", 12 * mib, "memory.weights"});
    budget.add({"staging", 4 * mib, "memory.staging"});
    EXPECT_EQ(refusal(budget, {16 * mib, "free RAM"}), "accepted");
}

TEST(Budget, RefusesWithAllUsesTheMissingBytesAndTheSettings) {
    Budget budget(16 * mib, "memory.host_budget");
    budget.add({"staging", 4 * mib, "memory.staging"});
    budget.add({"weights", 12 * mib, "memory.weights"});
    budget.add({"headers", 4096, ""});
    EXPECT_EQ(refusal(budget, roomy()),
              "The memory budget does not fit: 4096 bytes missing under memory.host_budget.\n"
              "  staging  4.0 MiB (4194304 bytes)  memory.staging\n"
              "  weights  12.0 MiB (12582912 bytes)  memory.weights\n"
              "  headers  4096 bytes\n"
              "  total    16.0 MiB (16781312 bytes)\n"
              "  limit    16.0 MiB (16777216 bytes)  memory.host_budget\n"
              "Raise memory.host_budget or lower: memory.weights (weights), memory.staging (staging).");
}

TEST(Budget, RefusesWhatTheMachineCannotGiveAndSaysWhatLimitsIt) {
    Budget budget(3ULL << 30, "memory.host_budget");
    budget.add({"weights", 2ULL << 30, "memory.weights"});
    const std::string message = refusal(budget, {1ULL << 30, "cgroup limit /sys/fs/cgroup/memory.max"});
    EXPECT_EQ(message,
              "The memory budget does not fit into this machine: it can give 1.00 GiB (1073741824 bytes) (cgroup limit "
              "/sys/fs/cgroup/memory.max), 1.00 GiB (1073741824 bytes) missing.\n"
              "  weights  2.00 GiB (2147483648 bytes)  memory.weights\n"
              "  total    2.00 GiB (2147483648 bytes)\n"
              "  limit    3.00 GiB (3221225472 bytes)  memory.host_budget\n"
              "Free or allow more memory, or lower: memory.weights (weights).");
}

TEST(Budget, ChecksNamesAndSums) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    Budget budget(mib, "memory.host_budget");
    budget.add({"weights", 1, ""});
    EXPECT_DEATH(budget.add({"weights", 1, ""}), "the use weights is there already");
    EXPECT_DEATH(budget.add({"", 1, ""}), "has no name");
    EXPECT_DEATH(budget.add({"huge", ~0ULL, ""}), "exceeds what can be counted");
    EXPECT_DEATH(budget.add({"huge", (1ULL << 63) - 8192, ""}), "exceeds what can be counted");
}

}  // namespace
}  // namespace penstock::pool
