// What a plan says of several ranks comes true in their sessions, to the byte.
#include "zero_infinity/plan/ranks/ranks_plan.h"

#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/ranks/thread_ranks.h"
#include "tests/zero_infinity/session/ranks/ranked_loop.h"
#include "zero_infinity/plan/ranks/zero_stages.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <memory>

namespace penstock::testing {
namespace {

double giga(double bytes) {
    return std::round(bytes / 1e8) / 10;
}

// The paper's figure 1; and a model whose states four ranks divide.
TEST(ZeroStages, HaveTheFiguresOfThePaper) {
    const auto paper = zero::zero_stage_bytes(7'500'000'000, 64);
    EXPECT_EQ(giga(paper[0]), 120);
    EXPECT_EQ(giga(paper[1]), 31.4);
    EXPECT_EQ(giga(paper[2]), 16.6);
    EXPECT_EQ(giga(paper[3]), 1.9);
    EXPECT_EQ(zero::zero_stage_bytes(500'000'000, 4), (std::array<double, 4>{8e9, 3.5e9, 2.75e9, 2e9}));
    for (const double each : zero::zero_stage_bytes(1000, 1)) EXPECT_EQ(each, 16000);
}

zero::ModelSpec model() {
    return {.units = units(), .optimizers = zero::make_adamw({})};
}

std::uint64_t disk_bytes(const std::string& directory) {
    std::uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory))
        if (entry.is_regular_file()) bytes += entry.file_size();
    return bytes;
}

class RanksPlan : public ComputeTest {
   protected:
    static std::vector<RankCourse> courses() {
        std::vector<RankCourse> all;
        for (const std::uint32_t ranks : {2U, 3U})
            for (const zero::Tier states : {zero::Tier::nvme, zero::Tier::host})
                for (const zero::SumOrder order : {zero::SumOrder::passes_first, zero::SumOrder::ranks_first}) {
                    RankCourse course{.ranks = ranks, .steps = 3, .passes = 2};
                    course.setting.residency.states = states;
                    course.setting.sum_order = order;
                    course.setting.device =
                        order == zero::SumOrder::passes_first ? zero::DeviceKind::cpu : zero::DeviceKind::emulated;
                    all.push_back(course);
                }
        return all;
    }
    const TemporaryDirectory parent_;
    std::string run() const { return parent_ / "swap"; }
};

// Of each rank, padding included: what is pinned and where, the store, and by counters what every step moves.
TEST_F(RanksPlan, SaysWhatTheSessionOfEachRankTakesAndMoves) {
    for (const RankCourse& course : courses()) {
        SCOPED_TRACE(course.name());
        std::filesystem::remove_all(run());
        const zero::RankCount count{.ranks = course.ranks};
        zero::MachineRoom room = ample_room();
        room.sharing = count.sharing();
        const zero::SessionPlan plan(model(), core_options(run(), course.setting), room, count.any());
        const zero::WireBytes wire = zero::wire_bytes(plan, course.passes);
        ThreadRanks control(course.ranks), bulk(course.ranks);
        const auto thrown = run_ranks(course.ranks, [&](std::uint32_t rank) {
            Client client(run(), course.setting, {.ranks = {&control.of(rank), &bulk.of(rank)}});
            const zero::SessionInfo& info = client.session().info();
            EXPECT_EQ(info.memory_table, plan.memory.budget.table());
            EXPECT_EQ(info.device_bytes, plan.memory.device_bytes);
            EXPECT_EQ(info.planned_bytes, plan.step_bytes.mean(plan.options.durability));
            EXPECT_EQ(client.session().counters().ranks.gathered_bytes, wire.gathered_first);
            EXPECT_EQ(client.session().counters().ranks.exchanged_bytes, 0U);
            train_rank(client, course, 1, 1, rank);
            const zero::SessionCounters before = client.session().counters();
            train_rank(client, course, 2, course.steps, rank);
            const zero::SessionCounters after = client.session().counters();
            const std::uint64_t steps = course.steps - 1;
            EXPECT_EQ(after.ranks.gathered_bytes - before.ranks.gathered_bytes, steps * wire.gathered);
            EXPECT_EQ(after.ranks.exchanged_bytes - before.ranks.exchanged_bytes, steps * wire.exchanged);
            EXPECT_EQ(after.read_bytes - before.read_bytes, steps * plan.step_bytes.read);
            const std::uint64_t manifests = 2 * pool::granule_bytes;  // of a commit: both copies
            EXPECT_EQ(after.write_bytes - before.write_bytes,
                      steps * (plan.step_bytes.write + plan.step_bytes.resident_write + manifests));
            client.session().settle();
            const std::uint64_t disk = disk_bytes(fmt::format("{}/ranks-{}/{}", run(), course.ranks, rank));
            EXPECT_GE(disk, plan.store_bytes());
            EXPECT_LE(disk, plan.store_bytes() + (1U << 20));
        });
        EXPECT_EQ(thrown, std::vector<std::string>(course.ranks));
    }
}

// The formulas, without their code: states of 12 bytes an element (fp32: master and moments), which a step reads unless
// host memory has them and writes in any case, in granules; sums and weights of 4 bytes over the wire.
TEST_F(RanksPlan, FollowsTheFormulas) {
    for (const std::uint32_t ranks : {2U, 3U, 8U}) {
        Setting setting;
        const zero::SessionPlan plan(model(), core_options(run(), setting), ample_room(), {ranks - 1, ranks});
        std::uint64_t shards = 0, frozen = 0;
        for (const std::uint64_t numel : {7000U, 5009U, 5000U, 12345U, 64U})
            shards += (numel + 64 * ranks - 1) / (64 * ranks) * 64;
        frozen = (300 + 64 * ranks - 1) / (64 * ranks) * 64;
        const zero::WireBytes wire = zero::wire_bytes(plan, 5);
        EXPECT_GE(wire.gathered, 4 * (ranks - 1) * shards);
        EXPECT_LE(wire.gathered, 4 * (ranks - 1) * (shards + std::uint64_t{64} * 3))
            << "each parameter begins a vector";
        EXPECT_EQ(wire.exchanged, wire.gathered);
        EXPECT_EQ(wire.gathered_first - wire.gathered, 4 * (ranks - 1) * frozen);
        EXPECT_GE(plan.step_bytes.write + plan.step_bytes.resident_write, 12 * shards);
        EXPECT_EQ(
            zero::wire_bytes(zero::SessionPlan(model(), core_options(run(), setting), ample_room(), {}), 1).gathered,
            0U);
    }
}

TEST_F(RanksPlan, RefusesRanksThatDoNotFitTogetherWithTheTableOfAnOpening) {
    zero::CoreOptions options = core_options(run(), {});
    options.host_budget_bytes = zero::planned_host_budget;
    zero::MachineRoom room = ample_room();
    const std::uint64_t each = zero::SessionPlan(model(), options, room, {0, 3}).memory.budget.used_bytes();
    room.host.available_bytes = 3 * each - 1;
    const zero::SessionPlan plan(model(), options, room, {0, 3});
    const std::string told = refusal_of(ExitCode::does_not_fit, [&] { zero::check_node(plan, {.ranks = 3}); });
    for (const char* words : {"the 3 ranks on ", " do not fit together", "rank 2", "(a test)", "host_budget_bytes"})
        EXPECT_NE(told.find(words), std::string::npos) << words << " is not in:\n" << told;
    zero::check_node(plan, {.ranks = 3, .of_node = 2});
}

// A budget that is filled is each rank's, the machine is all of theirs.
TEST_F(RanksPlan, RanksThatFillTheirBudgetsFillAMachineTogether) {
    zero::CoreOptions options = core_options(run(), {});
    options.tile_numel = 4096;
    const std::uint64_t least = zero::SessionPlan(model(), options, ample_room(), {0, 2}).memory.budget.used_bytes();
    options.host_budget_bytes = 1ULL << 40;
    options.fill_host_budget = true;
    zero::MachineRoom room = ample_room();
    room.host.available_bytes = 2 * least + (100U << 10);
    const zero::RankCount two{.ranks = 2};
    const zero::SessionPlan greedy(model(), options, room, two.any());
    refusal_of(ExitCode::does_not_fit, [&] { zero::check_node(greedy, two); });
    room.sharing = two.sharing();
    const zero::SessionPlan part(model(), options, room, two.any());
    zero::check_node(part, two);
    EXPECT_LE(part.memory.budget.used_bytes(), least + (50U << 10));
    EXPECT_GT(part.layout.resident_states_bytes(), 0U) << "it is filled all the same";
}

TEST_F(RanksPlan, TellsARankANodeAndAll) {
    const zero::SessionPlan plan(model(), core_options(run(), {}), ample_room(), {0, 6});
    const std::string here = zero::ranks_table(plan, {.ranks = 6}, 1, 1);
    for (const char* words : {"a rank", "all 6", "host", "staging", "NVMe, stores", "a step reads", "gathered weights",
                              "exchanged gradients", "too little for new ones", "stage 0 0.0 GB", "(a test)"})
        EXPECT_NE(here.find(words), std::string::npos) << words << " is not in:\n" << here;
    EXPECT_EQ(here.find("of a node"), std::string::npos);
    const std::string nodes = zero::ranks_table(plan, {.ranks = 6, .of_node = 4}, 1, 1ULL << 60);
    EXPECT_NE(nodes.find("4 of a node"), std::string::npos) << nodes;
    EXPECT_EQ(nodes.find("too little"), std::string::npos);
}

}  // namespace
}  // namespace penstock::testing
