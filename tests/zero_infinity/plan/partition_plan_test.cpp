// Plans of one rank of several: it stores, moves and updates its shards, and has room for what is gathered of all.
#include "tests/refusal.h"
#include "tests/zero_infinity/ample_room.h"
#include "zero_infinity/optimizer/optimizers.h"
#include "zero_infinity/plan/gradient_memory.h"
#include "zero_infinity/plan/session_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace penstock::testing {
namespace {

using zero::Partition;
using zero::SessionPlan;

zero::ModelSpec model() {
    zero::ModelSpec model{.units = {}, .optimizers = zero::make_adamw({})};
    for (int unit = 0; unit < 6; ++unit)
        model.units.push_back({"u" + std::to_string(unit),
                               {{.name = "weight", .shape = {300 + unit, 257}},
                                {.name = "fixed", .shape = {100, 99}, .training = zero::Training::frozen}}});
    return model;
}

zero::CoreOptions options(zero::DeviceKind device = zero::DeviceKind::cpu) {
    zero::CoreOptions options;
    options.swap_directories = {"nowhere"};
    options.tile_numel = 4096;
    options.ranks.gathered = zero::Gathered::for_visits;
    options.host_budget_bytes = zero::planned_host_budget;
    options.device = {.kind = device, .budget_bytes = 64 << 20};
    return options;
}

std::uint64_t use_of(const SessionPlan& plan, const std::string& name) {
    for (const pool::Use& use : plan.memory.budget.uses())
        if (use.name == name) return use.bytes;
    return 0;
}

std::uint64_t largest(const zero::ModelLayout& layout, bool gathered) {
    std::uint64_t bytes = 0;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        bytes = std::max(bytes, gathered ? layout.gathered(unit).bytes : layout.shard(unit).bytes);
    return bytes;
}

// Each shard's objects are padded to granules: up to one each of weights, states and frozen weights.
TEST(PartitionPlan, RanksTogetherMoveWhatOneAloneMoves) {
    const SessionPlan alone(model(), options(), ample_room(), {});
    for (const std::uint32_t ranks : {2U, 3U, 4U}) {
        std::uint64_t read = 0, written = 0;
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            const SessionPlan plan(model(), options(), ample_room(), Partition{rank, ranks});
            read += plan.step_bytes.read;
            written += plan.step_bytes.write;
        }
        const std::uint64_t padding = std::uint64_t{6} * ranks * 4096;
        EXPECT_GE(read, alone.step_bytes.read);
        EXPECT_LE(read, alone.step_bytes.read + 7 * padding);
        EXPECT_GE(written, alone.step_bytes.write);
        EXPECT_LE(written, alone.step_bytes.write + 3 * padding);
    }
}

TEST(PartitionPlan, AWindowHasRoomForWhatIsGatheredAndThePassageForShards) {
    for (const zero::DeviceKind device : {zero::DeviceKind::cpu, zero::DeviceKind::emulated})
        for (const Partition partition : {Partition{0, 2}, Partition{2, 3}}) {
            zero::CoreOptions deep = options(device);
            deep.prefetch_depth = 1;
            const SessionPlan plan(model(), deep, ample_room(), partition);
            EXPECT_GE(plan.memory.window.window_bytes, 2 * largest(plan.layout, true));
            EXPECT_EQ(plan.memory.passage_bytes, 2 * largest(plan.layout, false));
            const bool in_host = device == zero::DeviceKind::cpu;
            EXPECT_EQ(use_of(plan, zero::weights_use),
                      plan.memory.passage_bytes + (in_host ? plan.memory.window.window_bytes : 0));
        }
    const SessionPlan alone(model(), options(), ample_room(), {});
    EXPECT_EQ(alone.memory.passage_bytes, 0U);
    EXPECT_EQ(use_of(alone, zero::weights_use), alone.memory.window.window_bytes);
}

// In host memory a rank keeps its shards; compute reads what is gathered, of which those stay that are resident by
// themselves.
TEST(PartitionPlan, WhatIsKeptInHostMemoryAreShards) {
    zero::CoreOptions kept = options();
    kept.residency.weights = zero::Tier::host;
    zero::ModelSpec spec = model();
    spec.units[2].resident = true;
    const SessionPlan plan(spec, kept, ample_room(), Partition{1, 3});
    std::uint64_t shards = 0;
    for (std::uint32_t unit = 0; unit < plan.layout.unit_count(); ++unit) shards += plan.layout.shard(unit).bytes;
    EXPECT_EQ(use_of(plan, zero::resident_weights_use), shards + plan.layout.gathered(2).bytes);
    EXPECT_EQ(plan.memory.passage_bytes, 0U);
    EXPECT_EQ(plan.memory.pass_read_bytes, 0U);
    EXPECT_GE(plan.memory.window.window_bytes, largest(plan.layout, true));
}

TEST(PartitionPlan, ABudgetIsKeptToTheByte) {
    for (const Partition partition : {Partition{0, 2}, Partition{2, 3}}) {
        zero::CoreOptions least = options();
        least.prefetch_depth = 0;
        const std::uint64_t bytes = SessionPlan(model(), least, ample_room(), partition).memory.budget.used_bytes();
        least.prefetch_depth = 3;
        for (std::uint64_t more = 0; more < 4U << 20; more += 128U << 10) {
            least.host_budget_bytes = bytes + more;
            EXPECT_LE(SessionPlan(model(), least, ample_room(), partition).memory.budget.used_bytes(), bytes + more);
        }
        least.host_budget_bytes = bytes - 4096;
        refusal_of(ExitCode::does_not_fit, [&] { SessionPlan(model(), least, ample_room(), partition); });
    }
}

// The same on every rank, whatever lies in its shard: all fetch the same units to the same places.
TEST(PartitionPlan, TheWindowIsThatOfEveryRank) {
    for (const std::uint32_t ranks : {2U, 3U, 8U})
        for (std::uint32_t rank = 1; rank < ranks; ++rank) {
            const SessionPlan first(model(), options(), ample_room(), Partition{0, ranks});
            const SessionPlan other(model(), options(), ample_room(), Partition{rank, ranks});
            EXPECT_EQ(first.memory.window.window_bytes, other.memory.window.window_bytes);
            EXPECT_EQ(first.memory.window.depth, other.memory.window.depth);
            EXPECT_EQ(first.memory.budget.used_bytes(), other.memory.budget.used_bytes());
            EXPECT_EQ(first.fingerprint, other.fingerprint);
        }
}

}  // namespace
}  // namespace penstock::testing
