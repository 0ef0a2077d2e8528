// Sessions of several ranks: the bits of the plain loop that adds the ranks' gradients in their order. Two ranks cannot
// see a wrong order; three can.
#include "tests/refusal.h"
#include "tests/seeds.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/ranks/thread_ranks.h"
#include "tests/zero_infinity/session/ranks/rank_lives.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>

namespace penstock::testing {
namespace {

std::vector<RankCourse> courses(std::uint64_t steps) {
    std::vector<RankCourse> all;
    for (const std::uint32_t ranks : {2U, 3U, 4U})
        for (const zero::DeviceKind device : {zero::DeviceKind::cpu, zero::DeviceKind::emulated})
            for (const zero::SumOrder order : {zero::SumOrder::passes_first, zero::SumOrder::ranks_first}) {
                RankCourse course{
                    .ranks = ranks, .steps = steps, .passes = order == zero::SumOrder::ranks_first ? 3U : ranks - 1};
                course.setting = {.device = device, .sum_order = order};
                if (ranks == 3) course.setting.residency.states = zero::Tier::host;
                if (ranks != 4) course.setting.unused = zero::Unused::skipped;
                all.push_back(course);
            }
    return all;
}

TEST(RankSessions, HaveTheBitsOfTheLoopThatAddsInTheOrderOfTheRanks) {
    const bool is_long = seed_count(1) > 1;
    for (RankCourse course : courses(20)) {
        if (course.ranks != 3 && !is_long) course.steps = 6;
        SCOPED_TRACE(course.name());
        const TemporaryDirectory parent;
        RankedLoop loop = plain(course);
        std::vector<int> right(course.ranks);
        const auto thrown = train(parent / "swap", course, 1, course.steps, [&](Client& client, std::uint32_t rank) {
            right[rank] = client.state() == loop.parameters();
        });
        EXPECT_EQ(thrown, std::vector<std::string>(course.ranks));
        EXPECT_EQ(right, std::vector<int>(course.ranks, 1));
    }
    if (is_long)
        fmt::print("RESULT rank_sessions: {} kinds of sessions of 2, 3 and 4 ranks, 20 steps: bits of the plain loop\n",
                   courses(20).size());
}

// ---------------------------------------------------------------- gradients that are read

constexpr zero::ParameterId expert{2, 0};  // has a gradient on some ranks, and in some steps on none

Values values_of(const zero::ParameterMemory& memory) {
    const auto* first = reinterpret_cast<const float*>(memory.data);
    return {first, first + memory.numel};
}

using Means = std::map<PlainLoop::Id, Values>;

// What a program does to gradients behind a pass: to those of the loop, and to a session's, whole on each rank. Where
// the expert has none, it is given one; where it has, that goes in every other step.
enum class Doing : std::uint8_t { reads, changes };

void do_to(Means& means, Doing doing, std::uint64_t step) {
    if (doing == Doing::reads) return;
    for (auto& [id, mean] : means)
        for (float& each : mean) each *= 0.75F;
    const PlainLoop::Id id{expert.unit, expert.index};
    if (!means.contains(id))
        means[id].assign(numel_of(units(zero::Unused::skipped), expert), 0.5F);
    else if (step % 2 == 0)
        means.erase(id);
}

void do_to(zero::CoreSession& session, const Means& means, Doing doing, std::uint64_t step) {
    for (const auto& [id, mean] : means) {
        const auto sum = session.gradient({id.first, id.second});
        ASSERT_TRUE(sum) << id.first << ", " << id.second;
        ASSERT_EQ(values_of(*sum), mean) << id.first << ", " << id.second;
        if (doing == Doing::reads) continue;
        for (std::uint64_t i = 0; i < sum->numel; ++i) reinterpret_cast<float*>(sum->data)[i] *= 0.75F;
    }
    if (doing == Doing::reads) return;
    if (!session.gradient(expert)) {
        const zero::ParameterMemory made = session.make_gradient(expert);
        ASSERT_EQ(values_of(made), Values(made.numel));
        std::fill_n(reinterpret_cast<float*>(made.data), made.numel, 0.5F);
    } else if (step % 2 == 0) {
        session.clear_gradient(expert);
        ASSERT_FALSE(session.gradient(expert));
    }
}

TEST(RankSessions, GradientsThatAreReadAreTheMeanOnEachRankAndWhatIsChangedCounts) {
    for (RankCourse course : courses(6))
        for (const Doing doing : {Doing::reads, Doing::changes}) {
            if (course.setting.unused != zero::Unused::skipped) continue;
            SCOPED_TRACE(course.name());
            std::map<std::pair<std::uint64_t, std::uint64_t>, Means> means;  // by step and pass, before what is done
            RankedLoop loop = plain(course, [&](RankedLoop& all, std::uint64_t step, std::uint64_t pass) {
                all.add_ranks();
                means[{step, pass}] = all.sums();
                do_to(all.sums(), doing, step);
            });
            const TemporaryDirectory parent;
            std::vector<int> right(course.ranks);
            const auto thrown = train(
                parent / "swap", course, 1, course.steps,
                [&](Client& client, std::uint32_t rank) { right[rank] = client.state() == loop.parameters(); },
                [&](Client& client, std::uint64_t step, std::uint64_t pass) {
                    do_to(client.session(), means.at({step, pass}), doing, step);
                });
            EXPECT_EQ(thrown, std::vector<std::string>(course.ranks));
            EXPECT_EQ(right, std::vector<int>(course.ranks, 1));
        }
}

// ---------------------------------------------------------------- a set of ranks

TEST_F(RankSetTest, GoesOnFromWhatAllRanksHaveCommitted) {
    EXPECT_EQ(live(1, 2), nothing);
    EXPECT_EQ(live(3, 4,
                   [](Client& client, std::uint32_t) {
                       EXPECT_TRUE(client.session().info().resumed);
                       EXPECT_EQ(client.steps(), 2U);
                   }),
              nothing);
    EXPECT_EQ(live(5, 6, holds_after(6)), nothing);
}

// One was killed before its commit of step 3, the other behind it.
TEST_F(RankSetTest, WhoIsAheadGoesBackToWhatAllHave) {
    for (const std::uint32_t behind : {0U, 1U}) {
        std::filesystem::remove_all(run());
        EXPECT_EQ(live(1, 2), nothing);
        keep(behind, "before");
        EXPECT_EQ(live(3, 3), nothing);
        put_back(behind, "before");
        EXPECT_EQ(live(3, 2, [](Client& client, std::uint32_t) { EXPECT_EQ(client.steps(), 2U); }), nothing);
        EXPECT_EQ(live(3, 4, holds_after(4)), nothing) << "rank " << behind << " was behind";
    }
}

// Who went back has erased what came after, and knows less of what came before: a second kill in a row has the others
// read what they would go back to.
TEST_F(RankSetTest, WhoIsAheadAfterASecondKillReadsWhatItGoesBackTo) {
    EXPECT_EQ(live(1, 2), nothing);
    keep(0, "before");
    EXPECT_EQ(live(3, 3), nothing);
    put_back(0, "before");
    EXPECT_EQ(live(3, 2), nothing);  // rank 1 goes back
    keep(1, "went back");
    EXPECT_EQ(live(3, 3), nothing);
    put_back(1, "went back");
    EXPECT_EQ(live(3, 4, holds_after(4)), nothing);

    keep(1, "newest");
    EXPECT_EQ(live(5, 5), nothing);
    put_back(1, "newest");
    EXPECT_EQ(live(5, 4), nothing);  // rank 0 goes back
    keep(0, "went back");
    EXPECT_EQ(live(5, 5), nothing);
    put_back(0, "went back");
    std::vector<char> data(std::filesystem::file_size(store_of(1) + "/data"), 7);
    std::ofstream(store_of(1) + "/data", std::ios::binary | std::ios::in)
        .write(data.data(), static_cast<std::streamsize>(data.size()));
    const auto thrown = live(5, 5);
    EXPECT_EQ(thrown[0], thrown[1]);
    EXPECT_NE(thrown[0].find("Nothing was changed"), std::string::npos) << thrown[0];
}

TEST_F(RankSetTest, RanksOfDifferentMomentsAreRefusedUnchanged) {
    EXPECT_EQ(live(1, 1), nothing);
    keep(1, "old");
    EXPECT_EQ(live(2, 4), nothing);
    keep(1, "new");
    put_back(1, "old");
    const auto thrown = live(5, 5);
    EXPECT_EQ(thrown[0], thrown[1]);
    EXPECT_NE(thrown[0].find("The ranks have no generation in common"), std::string::npos) << thrown[0];
    EXPECT_NE(thrown[0].find("rank 1: store 1 of 2"), std::string::npos) << thrown[0];
    put_back(1, "new");
    EXPECT_EQ(live(5, 5, holds_after(5)), nothing);
}

// A creation that was interrupted: rank 0 had committed its first weights, rank 1 had not.
TEST_F(RankSetTest, ACreationThatDidNotEndOnAllRanksBeginsAgain) {
    EXPECT_EQ(live(1, 0), nothing);
    std::filesystem::remove_all(store_of(1));
    EXPECT_EQ(live(1, 2, holds_after(2)), nothing);
    EXPECT_EQ(live(3, 4, holds_after(4)), nothing);
}

TEST_F(RankSetTest, AnotherNumberOfRanksIsRefusedAndMakesNothing) {
    EXPECT_EQ(live(1, 1), nothing);
    course_.ranks = 3;
    for (const std::string& each : live(2, 2))
        EXPECT_TRUE(each.starts_with(run() + " holds what 2 processes committed, and 3 are started: start as many as "
                                             "before, or name another directory") ||
                    each.find("another rank") != std::string::npos || each.find("lost") != std::string::npos)
            << each;
    EXPECT_FALSE(std::filesystem::exists(run() + "/ranks-3"));
    EXPECT_EQ(refusal_of(ExitCode::usage, [&] { Client(run(), course_.setting); }),
              run() +
                  " holds what 2 processes committed, and one is started: start as many as before, or name another "
                  "directory");
    EXPECT_FALSE(std::filesystem::exists(run() + "/data"));
}

TEST_F(RankSetTest, TwoRanksInOneRanksDirectoryAreRefused) {
    { Client alone(run(), course_.setting); }
    for (const std::string& each : live(1, 1))
        EXPECT_TRUE(each.find("holds what one process committed, and 2 are started") != std::string::npos ||
                    each.find("lost") != std::string::npos)
            << each;
    EXPECT_FALSE(std::filesystem::exists(run() + "/ranks-2"));
}

TEST_F(RankSetTest, RanksThatDifferAreNamedBeforeAnythingIsMade) {
    ThreadRanks control(2), bulk(2);
    const auto thrown = run_ranks(2, [&](std::uint32_t rank) {
        Setting setting = course_.setting;
        if (rank == 1) setting.sum_order = zero::SumOrder::ranks_first;
        Client client(run(), setting, {.ranks = {&control.of(rank), &bulk.of(rank)}});
    });
    EXPECT_EQ(thrown[0], thrown[1]);
    EXPECT_NE(thrown[0].find("the processes do not train the same"), std::string::npos) << thrown[0];
    EXPECT_NE(thrown[0].find("the order of sums ranks_first, the other has passes_first"), std::string::npos)
        << thrown[0];
    EXPECT_FALSE(std::filesystem::exists(run()));
}

// Each would update its part of a tensor in its own way.
TEST_F(RankSetTest, RanksThatUpdateOtherwiseAreNamedBeforeAnythingIsWritten) {
    for (const auto& [what, said] : {std::pair{"clip", "the clip 0.5, the other has 0"},
                                     std::pair{"rate", "the learning rate 0.02, the other has 0.01"}}) {
        std::filesystem::remove_all(run());
        EXPECT_EQ(live(1, 1), nothing);
        const bool clips = what == std::string("clip");
        const auto thrown = live(2, 1, [&](Client& client, std::uint32_t rank) {
            client.session().begin_pass(Pass::training);
            for (std::uint32_t unit = 5; unit-- > 0;) client.backward(unit, rank);
            client.session().end_pass();
            const bool odd = rank == 1;
            client.session().update(
                {.values = {.step = 2, .learning_rate = odd && !clips ? 2e-2 : 1e-2}, .clip = odd && clips ? 0.5 : 0},
                [](double) {
                    return store::ClientState{{"step", "2"}};
                });
        });
        EXPECT_EQ(thrown[0], thrown[1]);
        EXPECT_NE(thrown[0].find(said), std::string::npos) << thrown[0];
        EXPECT_EQ(live(2, 2, holds_after(2)), nothing) << "step 1 is whole";
    }
}

// Of each rank, padding included: a gather brings the other ranks' shards of the weights, a reduce theirs of the sums.
TEST_F(RankSetTest, BytesOverTheWireAreThoseOfTheFormulas) {
    for (const zero::SumOrder order : {zero::SumOrder::passes_first, zero::SumOrder::ranks_first})
        for (const std::uint32_t ranks : {2U, 3U}) {
            course_.ranks = ranks;
            course_.passes = 2;
            course_.setting.sum_order = order;
            std::filesystem::remove_all(run());
            const std::uint64_t steps = 3, reduces = order == zero::SumOrder::ranks_first ? 2 * steps : steps;
            live(1, steps, [&](Client& client, std::uint32_t) {
                const zero::ModelLayout& layout = client.session().layout();
                std::uint64_t trainable = 0, frozen = 0;  // of a shard
                for (const zero::UnitLayout& unit : layout.units()) {
                    trainable += unit.shard_numel() * 4;
                    frozen += unit.frozen_shard_numel() * 4;
                }
                const zero::SessionCounters counters = client.session().counters();
                EXPECT_EQ(counters.ranks.gathered_bytes, (ranks - 1) * ((steps + 1) * trainable + frozen));
                EXPECT_EQ(counters.ranks.exchanged_bytes, (ranks - 1) * reduces * trainable);
            });
        }
}

TEST_F(RankSetTest, ValuesThatAreWrittenAreThoseOfAllRanks) {
    zero::WeightFunction source([](const zero::NamedParameter&, std::uint64_t first, std::span<float> values) {
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(first + i);
    });
    const auto written = [&](Client& client, std::uint32_t) {
        const auto state = client.state();
        const PlainLoop::Parameter& table = state.at({0, 0});
        const PlainLoop::Parameter& fixed = state.at({1, 1});
        for (std::size_t i = 0; i < table.value.size(); ++i) ASSERT_EQ(table.value[i], static_cast<float>(i));
        for (std::size_t i = 0; i < fixed.value.size(); ++i) ASSERT_EQ(fixed.value[i], static_cast<float>(i));
        client.session().begin_pass(Pass::inference);
        client.session().visit({{0, 1}});
        EXPECT_TRUE(holds(client.session().weights({0, 0}), table.value));
        EXPECT_TRUE(holds(client.session().weights({1, 1}), fixed.value));
        client.session().end_pass();
    };
    for (const zero::DeviceKind device : {zero::DeviceKind::cpu, zero::DeviceKind::emulated}) {
        course_.setting.device = device;
        std::filesystem::remove_all(run());
        EXPECT_EQ(live(1, 1,
                       [&](Client& client, std::uint32_t rank) {
                           const zero::WantedParameters wanted = [](const zero::NamedParameter& each) {
                               return each.name() == "first.table" || each.name() == "second.fixed";
                           };
                           client.session().write_in({.value = zero::ParameterValue::weight, .wanted = wanted}, source);
                           written(client, rank);
                           client.session().settle();
                       }),
                  nothing);
        EXPECT_EQ(live(1, 0, written), nothing);
    }
}

// By name.
class Collected final : public zero::WeightSink {
   public:
    void write(const zero::NamedParameter& parameter, const zero::ValueStretch& stretch) override {
        const auto* first = reinterpret_cast<const float*>(stretch.data);
        values[parameter.name()].assign(first, first + stretch.numel);
    }
    std::map<std::string, Values> values;
};

// One of them may save what all have.
TEST_F(RankSetTest, WeightsAreReadByOneRankAlone) {
    course_.steps = 2;
    const RankedLoop loop = plain(course_);
    for (const zero::DeviceKind device : {zero::DeviceKind::cpu, zero::DeviceKind::emulated}) {
        course_.setting.device = device;
        std::filesystem::remove_all(run());
        Collected own;
        EXPECT_EQ(live(1, 2,
                       [&](Client& client, std::uint32_t rank) {
                           if (rank == 1) client.session().read_out({.values = {zero::ParameterValue::weight}}, own);
                       }),
                  nothing);
        const std::vector<zero::UnitSpec> specs = units(course_.setting.unused);
        ASSERT_EQ(own.values.size(), loop.parameters().size());
        for (const auto& [id, parameter] : loop.parameters()) {
            const zero::UnitSpec& unit = specs[id.first];
            EXPECT_EQ(own.values.at(zero::NamedParameter{unit, unit.parameters[id.second]}.name()), parameter.value);
        }
    }
}

// ---------------------------------------------------------------- what ends it

TEST_F(RankSetTest, AGradientThatIsNotFiniteIsNamedAlikeOnAllRanks) {
    ThreadRanks control(2), bulk(2);
    const auto thrown = run_ranks(2, [&](std::uint32_t rank) {
        Client client(run(), course_.setting, {.ranks = {&control.of(rank), &bulk.of(rank)}});
        client.session().begin_pass(Pass::training);
        for (std::uint32_t unit = 5; unit-- > 0;) client.backward(unit, rank);
        if (rank == 1) {
            const Values wrong(12345, std::numeric_limits<float>::infinity());
            client.session().add_gradient(
                {3, 0}, {reinterpret_cast<const std::byte*>(wrong.data()), zero::PlaneType::fp32, wrong.size()});
        }
        client.session().end_pass();
        client.update(1);
    });
    EXPECT_EQ(thrown[0], thrown[1]);
    EXPECT_NE(thrown[0].find("the gradient of step 1 is not finite, first in unit 'fourth', parameter 'a'"),
              std::string::npos)
        << thrown[0];
}

TEST_F(RankSetTest, AGradientThatCameToNoRankIsNamedAlikeOnAll) {
    ThreadRanks control(2), bulk(2);
    const auto thrown = run_ranks(2, [&](std::uint32_t rank) {
        Client client(run(), course_.setting, {.ranks = {&control.of(rank), &bulk.of(rank)}});
        client.session().begin_pass(Pass::training);
        for (std::uint32_t unit = 5; unit-- > 0;)
            if (unit != 3 && unit != rank + 1) client.backward(unit, rank);  // 1 and 2 come to one rank each
        client.session().end_pass();
        client.update(1);
    });
    EXPECT_EQ(thrown[0], thrown[1]);
    EXPECT_NE(thrown[0].find("no gradient came to unit 'fourth', parameters 'a'"), std::string::npos) << thrown[0];
}

TEST_F(RankSetTest, AGradientThatOneRankAloneReadsEndsAllByName) {
    ThreadRanks control(2), bulk(2);
    const auto thrown = run_ranks(2, [&](std::uint32_t rank) {
        Client client(run(), course_.setting, {.ranks = {&control.of(rank), &bulk.of(rank)}});
        train_rank(client, course_, 1, 1, rank, [&](Client& each, std::uint64_t, std::uint64_t) {
            if (rank == 0) static_cast<void>(each.session().gradient({0, 0}));
        });
    });
    EXPECT_EQ(thrown[0], thrown[1]);
    EXPECT_NE(thrown[0].find("rank 0 with the gradients of first"), std::string::npos) << thrown[0];
    EXPECT_NE(thrown[0].find("rank 1 with the values of an update"), std::string::npos) << thrown[0];
}

// Before a backward, and behind a step, a program asks each parameter (zero_grad): nobody is waited for.
TEST_F(RankSetTest, WhereNothingCameNobodyIsAsked) {
    EXPECT_EQ(live(1, 1,
                   [](Client& client, std::uint32_t rank) {
                       if (rank == 0) {
                           EXPECT_FALSE(client.session().gradient({0, 0}));
                       }
                   }),
              nothing);
}

// A program that ends in the middle of a step takes the others with it, and what was committed stays.
TEST_F(RankSetTest, ARankThatEndsWithinAStepEndsTheOthers) {
    for (const std::uint32_t ends : {0U, 1U}) {
        std::filesystem::remove_all(run());
        EXPECT_EQ(live(1, 2), nothing);
        ThreadRanks control(2), bulk(2);
        const auto thrown = run_ranks(2, [&](std::uint32_t rank) {
            Client client(run(), course_.setting, {.ranks = {&control.of(rank), &bulk.of(rank)}});
            client.session().begin_pass(Pass::training);
            if (rank == ends) throw std::runtime_error("the program's own");
            for (std::uint32_t unit = 5; unit-- > 0;) client.backward(unit, rank);
            client.session().end_pass();
            client.update(3);
        });
        EXPECT_EQ(thrown[ends], "the program's own");
        EXPECT_NE(thrown[1 - ends], "");
        EXPECT_EQ(live(3, 3, holds_after(3)), nothing);
    }
}

TEST_F(RankSetTest, WhatSeveralRanksDoNotDoYetIsRefusedByName) {
    const auto refused = [&](Setting setting) {
        ThreadRanks control(2), bulk(2);
        const auto thrown = run_ranks(2, [&](std::uint32_t rank) {
            Client client(run(), setting, {.ranks = {&control.of(rank), &bulk.of(rank)}});
        });
        return thrown[0];
    };
    EXPECT_EQ(refused({.gradient_memory = zero::GradientMemory::nvme}),
              "gradients on NVMe with 2 ranks comes later: leave it out");
    EXPECT_FALSE(std::filesystem::exists(run()));
}

}  // namespace
}  // namespace penstock::testing
