// The lossy codec in whole runs: the same in every tier, resumable, and near the exact one.
#include "tests/zero_infinity/engine/run.h"

#include "aio/words/error.h"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::testing {
namespace {

RunOptions compact_run(const std::string& directory) {
    RunOptions options = toy_run(directory);
    options.session.codec = "compact";
    options.session.gradient_type = zero::PlaneType::bf16;
    return options;
}

// Tiles of 4096 elements, whose states are no whole granules: in the store they are padded.
TEST(CompactRun, GivesTheSameBitsInEveryTierAndAfterAResume) {
    const TemporaryDirectory one, other;
    RunOptions nvme = compact_run(one.path());
    RunOptions host = compact_run(other.path());
    nvme.session.residency = {zero::Tier::nvme, zero::Tier::nvme};
    nvme.session.staging_tiles = 1;
    host.session.residency = {zero::Tier::host, zero::Tier::host};
    host.session.device.kind = zero::DeviceKind::emulated;
    host.session.device.budget_bytes = 4 << 20;
    nvme.steps = 7;
    run_toy(nvme);
    nvme.steps = 12;
    host.steps = 12;
    const auto resumed = run_toy(nvme);
    const auto whole = run_toy(host);
    EXPECT_EQ(resumed.losses, std::vector<double>(whole.losses.begin() + 7, whole.losses.end()));
    EXPECT_EQ(read_snapshot(nvme.session.swap_directories[0], "toy"),
              read_snapshot(host.session.swap_directories[0], "toy"));
}

// Not a bound from theory: twenty steps of a toy that learns, within 2 % of the exact codec's loss.
TEST(CompactRun, FollowsTheExactRun) {
    const TemporaryDirectory one, other;
    RunOptions exact = compact_run(one.path());
    exact.session.codec = "split";
    const auto compact = run_toy(compact_run(other.path()));
    const auto split = run_toy(exact);
    ASSERT_LT(compact.losses.back(), compact.losses.front());
    ASSERT_NE(compact.losses, split.losses) << "the codec was not used";
    for (std::size_t step = 0; step < split.losses.size(); ++step)
        ASSERT_NEAR(compact.losses[step] / split.losses[step], 1.0, 0.02) << "step " << step + 1;
}

TEST(CompactRun, AStoreOfSplitIsRefused) {
    const TemporaryDirectory directory;
    RunOptions options = compact_run(directory.path());
    options.session.codec = "split";
    options.steps = 1;
    run_toy(options);
    options.session.codec = "compact";
    EXPECT_THROW(run_toy(options), Error);
}

}  // namespace
}  // namespace penstock::testing
