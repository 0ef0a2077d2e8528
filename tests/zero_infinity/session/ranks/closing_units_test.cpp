// Sums of two units at a time: each pass is added over the ranks while it goes on, to the bits of the loop.
#include "tests/seeds.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/session/ranks/rank_lives.h"
#include "zero_infinity/plan/gradient_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

using Units = std::vector<std::uint32_t>;

// What one rank's passes do, from a seed. The ranks make alike visits, or each its own.
struct Made {
    Units forward, backward;  // of a pass; backward in the reverse order of what was visited last, or in any
    std::vector<bool> comes;  // by visit of backward
};

enum class Visiting : std::uint8_t { alike, each_its_own };

Made made_pass(unsigned seed, std::uint32_t rank, Visiting visiting) {
    std::mt19937 alike(seed), own(seed * 31 + rank + 1);
    std::mt19937& random = visiting == Visiting::alike ? alike : own;
    Made made;
    const std::size_t visits = 5 + random() % 4;
    for (std::size_t at = 0; at < visits; ++at)
        made.forward.push_back(at < 5 ? static_cast<std::uint32_t>(at) : static_cast<std::uint32_t>(random() % 5));
    std::shuffle(made.forward.begin(), made.forward.end(), random);
    made.backward.assign(made.forward.rbegin(), made.forward.rend());
    if (visiting == Visiting::each_its_own && own() % 3 == 0)
        std::shuffle(made.backward.begin(), made.backward.end(), own);
    for (std::size_t at = 0; at < made.backward.size(); ++at) made.comes.push_back(own() % 4 != 0);
    return made;
}

constexpr std::uint64_t steps = 3;

using State = std::map<PlainLoop::Id, PlainLoop::Parameter>;

struct Programs {
    RankCourse course;
    unsigned seed;
    Visiting visiting;

    Made made(std::uint64_t step, std::uint64_t pass, std::uint32_t rank) const {
        return made_pass(seed + static_cast<unsigned>(step * course.passes + pass), rank, visiting);
    }
    void train(Client& client, std::uint32_t rank) const {
        for (std::uint64_t step = 1; step <= steps; ++step) {
            for (std::uint64_t pass = 0; pass < course.passes; ++pass) {
                const Made does = made(step, pass, rank);
                client.session().begin_pass(Pass::training);
                for (const std::uint32_t unit : does.forward) client.forward(unit);
                for (std::size_t at = 0; at < does.backward.size(); ++at) {
                    client.forward(does.backward[at]);
                    if (does.comes[at]) client.backward(does.backward[at], course.time(step, pass, rank) + at);
                }
                client.session().end_pass();
            }
            client.update(step);
        }
    }
    RankedLoop plain() const {
        RankedLoop loop(course.ranks, course.setting.sum_order, all_skippable(units()));
        for (std::uint64_t step = 1; step <= steps; ++step) {
            for (std::uint64_t pass = 0; pass < course.passes; ++pass) {
                for (std::uint32_t rank = 0; rank < course.ranks; ++rank) {
                    const Made does = made(step, pass, rank);
                    for (std::size_t at = 0; at < does.backward.size(); ++at)
                        if (does.comes[at])
                            loop.of(rank).backward(does.backward[at], course.time(step, pass, rank) + at);
                }
                loop.end_pass();
            }
            loop.update(step);
        }
        return loop;
    }
    // What each rank holds at its end.
    std::vector<State> live() const {
        const TemporaryDirectory parent;
        std::vector<State> held(course.ranks);
        ThreadRanks control(course.ranks), bulk(course.ranks);
        const auto thrown = run_ranks(course.ranks, [&](std::uint32_t rank) {
            Client client(parent / "swap", course.setting, {.ranks = {&control.of(rank), &bulk.of(rank)}});
            train(client, rank);
            held[rank] = client.state();
        });
        EXPECT_EQ(thrown, std::vector<std::string>(course.ranks));
        return held;
    }
};

Programs programs(std::uint64_t seed, Visiting visiting) {
    Programs all{.course = {}, .seed = static_cast<unsigned>(mix(seed)), .visiting = visiting};
    all.course.ranks = static_cast<std::uint32_t>(2 + seed % 2);
    all.course.passes = 1 + seed % 3;
    all.course.setting = {.device = seed % 4 < 2 ? zero::DeviceKind::cpu : zero::DeviceKind::emulated,
                          .unused = zero::Unused::skipped,
                          .all_may_be_unused = true,
                          .sum_order = zero::SumOrder::ranks_first};
    return all;
}

// The largest difference of weights.
float distance(const State& left, const State& right) {
    float largest = 0;
    for (const auto& [id, parameter] : left)
        for (std::size_t at = 0; at < parameter.value.size(); ++at)
            largest = std::max(largest, std::abs(parameter.value[at] - right.at(id).value[at]));
    return largest;
}

TEST(ClosingUnits, ProgramsThatVisitAlikeHaveTheLoopsBits) {
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(8); ++seed) {
        SCOPED_TRACE(replay(seed));
        const Programs all = programs(seed, Visiting::alike);
        const auto held = all.live();
        const RankedLoop loop = all.plain();
        for (const auto& each : held) ASSERT_TRUE(each == loop.parameters());
    }
}

// Gradients that come late are added all the same; how they round is the same each time.
TEST(ClosingUnits, ProgramsThatVisitEachItsOwnTrainAlikeAndLoseNothing) {
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(8); ++seed) {
        SCOPED_TRACE(replay(seed));
        const Programs all = programs(seed, Visiting::each_its_own);
        const auto held = all.live();
        for (const auto& each : held) ASSERT_TRUE(each == held.front());
        ASSERT_LT(distance(held.front(), all.plain().parameters()), 1e-3F);
        ASSERT_TRUE(all.live() == held);
    }
}

// ---------------------------------------------------------------- memory

std::uint64_t gradient_use(const zero::SessionPlan& plan) {
    for (const pool::Use& use : plan.memory.budget.uses())
        if (use.name == zero::gradients_use) return use.bytes;
    return 0;
}

zero::SessionPlan plan_of(const RankCourse& course) {
    return {{.units = units(course.setting.unused), .optimizers = optimizers(course.setting)},
            core_options("/absent", course.setting),
            ample_room(),
            {0, course.ranks}};
}

class ClosingUnitsTest : public RankSetTest {
   protected:
    ClosingUnitsTest() {
        course_.passes = 2;
        course_.setting.sum_order = zero::SumOrder::ranks_first;
        course_.setting.host_budget =
            course_.ranks * plan_of(course_).memory.budget.used_bytes();  // and not a byte more
    }
};

TEST_F(ClosingUnitsTest, AreTwoThatHaveMemory) {
    RankCourse whole = course_;
    whole.setting.sum_order = zero::SumOrder::passes_first;
    whole.setting.host_budget = 32 << 20;
    const zero::SessionPlan plan = plan_of(course_);
    const auto bytes = [&](std::uint32_t unit) {
        return zero::unit_gradient_bytes(plan.layout, unit, zero::PlaneType::fp32);
    };
    const std::uint64_t sharing = bytes(1) + bytes(2) + bytes(3);  // not the table, nor who borrows it
    EXPECT_EQ(gradient_use(plan_of(whole)) - gradient_use(plan), sharing - 2 * bytes(3));
    EXPECT_EQ(live(1, 3, holds_after(3)), nothing) << "a program that reads none needs no more";
}

TEST_F(ClosingUnitsTest, GradientsThatAreReadAreRefusedWhereTheyHaveNoRoom) {
    const auto thrown = live(1, 0, [](Client& client, std::uint32_t) {
        client.session().begin_pass(Pass::training);
        client.backward(4, 1);
        client.session().end_pass();
        static_cast<void>(client.session().gradient({3, 0}));
    });
    const std::string said = thrown[0] + thrown[1];  // one of them, or both: the first ends the other
    for (const char* word : {"the gradients of unit 'second'", "run.sum_order \"passes_first\"", "raise host_budget"})
        EXPECT_NE(said.find(word), std::string::npos) << said;
}

}  // namespace
}  // namespace penstock::testing
