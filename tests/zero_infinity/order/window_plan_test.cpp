#include "zero_infinity/order/window_plan.h"

#include "aio/words/error.h"
#include "pinned_pool/budget.h"
#include "tests/refusal.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace penstock::testing {
namespace {

using Random = std::mt19937_64;
using zero::Fetch;
using zero::PassVisits;
using zero::UnitBytes;
using zero::Visit;
using zero::WindowPlan;
constexpr std::uint64_t granule = pool::granule_bytes;

std::uint64_t draw(Random& random, std::uint64_t least, std::uint64_t most) {
    return least + random() % (most - least + 1);
}

struct Model {
    std::vector<UnitBytes> units;
    PassVisits training;
    PassVisits inference;
};

std::vector<UnitBytes> equal_units(std::uint32_t count, std::uint64_t bytes) {
    std::vector<UnitBytes> units;
    for (std::uint32_t i = 0; i < count; ++i) units.push_back({fmt::format("blocks.{}", i), bytes, bytes});
    return units;
}

// Forward, then back again; the last one once.
PassVisits there_and_back(PassVisits forward) {
    PassVisits visits = forward;
    std::reverse(forward.begin(), forward.end());
    visits.insert(visits.end(), forward.begin() + 1, forward.end());
    return visits;
}

Model chain(std::uint32_t count, std::uint64_t bytes) {
    PassVisits forward;
    for (std::uint32_t i = 0; i < count; ++i) forward.push_back({{i}});
    return {equal_units(count, bytes), there_and_back(forward), forward};
}

// Sizes from 0 to 9 granules and not always whole ones, one huge in one of three, ties, any visits in one of four.
Model random_model(Random& random) {
    Model model;
    const auto units = static_cast<std::uint32_t>(draw(random, 1, 16));
    for (std::uint32_t i = 0; i < units; ++i) {
        const bool none = draw(random, 0, 5) == 0;
        const std::uint64_t bytes = none ? 0 : draw(random, 1, 9 * granule);
        model.units.push_back({fmt::format("u{}", i), bytes, bytes});
    }
    if (draw(random, 0, 2) == 0) model.units[draw(random, 0, units - 1)] = {"large", 60 * granule, 60 * granule};
    const bool in_order = draw(random, 0, 3) != 0;
    for (std::uint32_t i = 0; i < units; ++i) {
        Visit visit{{in_order ? i : static_cast<std::uint32_t>(draw(random, 0, units - 1))}};
        while (draw(random, 0, 3) == 0) {
            const auto tied = static_cast<std::uint32_t>(draw(random, 0, units - 1));
            if (std::find(visit.units.begin(), visit.units.end(), tied) == visit.units.end())
                visit.units.push_back(tied);
        }
        if (draw(random, 0, 15) == 0) visit.units.clear();
        model.inference.push_back(std::move(visit));
    }
    model.training = there_and_back(model.inference);
    return model;
}

std::uint64_t bytes_of(const Model& model, const Visit& visit) {
    std::uint64_t bytes = 0;
    for (const std::uint32_t unit : visit.units) bytes += pool::whole_granules(model.units[unit].bytes);
    return bytes;
}

// The window as memory: which fetch wrote which granule last. Fetches are made at once.
class Memory {
   public:
    explicit Memory(const WindowPlan& plan) : plan_(&plan), written_by_(plan.window_bytes() / granule) {}

    void make(std::span<const Fetch> fetches) {
        for (const Fetch& fetch : fetches) {
            EXPECT_EQ(fetch.number, ++made_) << "every fetch has a number, in order";
            EXPECT_EQ(fetch.bytes, plan_->units()[fetch.unit].bytes);
            ASSERT_LE(fetch.offset_bytes + fetch.bytes, plan_->window_bytes());
            ASSERT_EQ(fetch.offset_bytes % granule, 0U);
            for (std::uint64_t at = 0; at < pool::whole_granules(fetch.bytes); at += granule)
                written_by_[(fetch.offset_bytes + at) / granule] = fetch.number;
            bytes_ += fetch.bytes;
        }
    }
    // Whether the unit is where the plan says, whole.
    bool has(std::uint32_t unit) const {
        if (plan_->units()[unit].bytes == 0) return true;
        const auto place = plan_->place(unit);
        if (!place) return false;
        for (std::uint64_t at = 0; at < pool::whole_granules(plan_->units()[unit].bytes); at += granule)
            if (written_by_[(place->offset_bytes + at) / granule] != place->fetch) return false;
        return true;
    }
    std::uint64_t bytes() const { return bytes_; }

   private:
    const WindowPlan* plan_;
    std::vector<std::uint64_t> written_by_;
    std::uint64_t made_ = 0;
    std::uint64_t bytes_ = 0;
};

// Makes a visit and looks whether its units are there, and what is held stays where it is.
void go(WindowPlan& plan, Memory& memory, const Visit& visit, std::span<const Visit> ahead,
        const std::vector<std::uint32_t>& held = {}) {
    std::map<std::uint32_t, std::uint64_t> places;
    for (const std::uint32_t unit : held)
        if (const auto place = plan.place(unit)) places[unit] = place->offset_bytes;
    memory.make(plan.visit(visit, ahead, held));
    for (const std::uint32_t unit : visit.units) ASSERT_TRUE(memory.has(unit)) << "unit " << unit;
    for (const auto& [unit, offset] : places) ASSERT_EQ(plan.place(unit)->offset_bytes, offset) << "unit " << unit;
    EXPECT_EQ(plan.fetched_bytes(), memory.bytes());
}

void make_pass(WindowPlan& plan, Memory& memory, std::span<const Visit> visits, std::span<const Visit> expected) {
    memory.make(plan.visit({}, expected));
    for (std::size_t index = 0; index < visits.size(); ++index) {
        const std::size_t next = std::min(index + 1, expected.size());
        go(plan, memory, visits[index], expected.subspan(next));
    }
    plan.end_visit();
}

// From whatever the passes before have left in the window.
TEST(WindowPlan, EveryVisitOfEveryPassFindsItsUnits) {
    const std::uint64_t seed = 1;
    Random random(seed);
    for (int round = 0; round < 3000; ++round) {
        const Model model = random_model(random);
        const auto depth = static_cast<std::uint32_t>(draw(random, 0, 4));
        const PassVisits passes[] = {model.training, model.inference};
        const zero::WindowUse use = zero::least_window(model.units, passes, depth);
        WindowPlan plan(model.units, use.window_bytes, depth);
        Memory memory(plan);
        make_pass(plan, memory, model.training, model.training);
        EXPECT_EQ(plan.fetched_bytes(), use.fetched_bytes);
        for (int pass = 0; pass < 5; ++pass) {
            if (draw(random, 0, 2) == 0) plan.forget();
            const PassVisits& visits = passes[draw(random, 0, 1)];
            make_pass(plan, memory, visits, visits);
        }
        ASSERT_FALSE(HasFailure()) << "round " << round;
    }
}

// Visits of a pass in any order, expected or not, ends anywhere: each finds room where nothing is held.
TEST(WindowPlan, AnyOrderOfVisitsAndAnyExpectationIsServed) {
    Random random(2);
    for (int round = 0; round < 3000; ++round) {
        const Model model = random_model(random);
        const PassVisits passes[] = {model.training};
        const auto depth = static_cast<std::uint32_t>(draw(random, 0, 3));
        WindowPlan plan(model.units, zero::least_window(model.units, passes, depth).window_bytes, depth);
        Memory memory(plan);
        PassVisits visits;
        for (int visit = 0; visit < 30; ++visit) visits.push_back(model.training[random() % model.training.size()]);
        PassVisits expected = visits;
        std::shuffle(expected.begin(), expected.end(), random);
        make_pass(plan, memory, visits, draw(random, 0, 1) == 0 ? expected : model.training);
        ASSERT_FALSE(HasFailure()) << "round " << round;
    }
}

// What is held stays; where the rest then finds no room it is an error that changes nothing, and letting go helps.
TEST(WindowPlan, HeldUnitsStayAndWhatDoesNotFitBesideThemChangesNothing) {
    Random random(3);
    int refused = 0;
    for (int round = 0; round < 3000; ++round) {
        const Model model = random_model(random);
        const PassVisits passes[] = {model.training};
        WindowPlan plan(model.units, zero::least_window(model.units, passes, 0).window_bytes, 0);
        Memory memory(plan);
        std::vector<std::uint32_t> last;
        for (int count = 0; count < 20; ++count) {
            Visit visit = model.training[random() % model.training.size()];
            std::vector<std::uint32_t> held;
            for (const std::uint32_t unit : last) {
                if (draw(random, 0, 1) == 0) continue;
                held.push_back(unit);
                if (std::find(visit.units.begin(), visit.units.end(), unit) == visit.units.end())
                    visit.units.push_back(unit);
            }
            try {
                go(plan, memory, visit, {}, held);
                last = visit.units;
            } catch (const Error& error) {
                EXPECT_EQ(error.code(), ExitCode::does_not_fit);
                EXPECT_FALSE(held.empty() && bytes_of(model, visit) <= plan.window_bytes()) << error.what();
                EXPECT_EQ(plan.fetched_bytes(), memory.bytes());
                for (const std::uint32_t unit : last) EXPECT_TRUE(memory.has(unit));
                last.clear();
                ++refused;
            }
        }
        ASSERT_FALSE(HasFailure()) << "round " << round;
    }
    EXPECT_GT(refused, 100) << "the case was not met";
}

TEST(WindowPlan, EqualUnitsNeedDepthAndOneOfThemAndAreKeptAtTheTurn) {
    for (const std::uint32_t depth : {0U, 1U, 2U, 5U}) {
        const Model model = chain(12, 3 * granule);
        const PassVisits passes[] = {model.training, model.inference};
        const zero::WindowUse use = zero::least_window(model.units, passes, depth);
        EXPECT_EQ(use.window_bytes, (depth + 1) * 3 * granule);
        EXPECT_EQ(use.fetched_bytes, (23 - depth) * 3 * granule) << "the last ones are not fetched again";
    }
}

// At most `depth` visits ahead are fetched, all of them where there is room.
TEST(WindowPlan, FetchesAheadAsFarAsItsDepth) {
    const Model model = chain(9, granule);
    WindowPlan plan(model.units, 4 * granule, 3);
    EXPECT_EQ(plan.visit({}, model.inference).size(), 3U);
    const auto fetches = plan.visit(model.inference[0], std::span(model.inference).subspan(1));
    ASSERT_EQ(fetches.size(), 1U);
    EXPECT_EQ(fetches[0].unit, 3U);
    EXPECT_FALSE(fetches[0].awaited);
    const auto missed = plan.visit({{8}}, std::span(model.inference).subspan(4));
    ASSERT_FALSE(missed.empty());
    EXPECT_EQ(missed[0].unit, 8U);
    EXPECT_TRUE(missed[0].awaited) << "compute waits for it";
}

TEST(WindowPlan, WhatAnUpdateChangedIsFetchedAgainAndElseWhatIsThereIsNot) {
    const Model model = chain(4, granule);
    WindowPlan plan(model.units, 4 * granule, 1);
    Memory memory(plan);
    make_pass(plan, memory, model.training, model.training);
    EXPECT_EQ(plan.fetched_bytes(), 4 * granule);
    make_pass(plan, memory, model.inference, model.inference);
    EXPECT_EQ(plan.fetched_bytes(), 4 * granule);
    plan.forget();
    make_pass(plan, memory, model.inference, model.inference);
    EXPECT_EQ(plan.fetched_bytes(), 8 * granule);
}

// A place is as large as what is gathered; read are shards, and nothing of what host memory has.
TEST(WindowPlan, ReadsOfGatheredUnitsAreThoseOfTheirShards) {
    WindowPlan plan({{"sharded", 4 * granule, granule}, {"in_host_memory", 4 * granule, 0}}, 8 * granule, 0);
    ASSERT_EQ(plan.visit({{0}}, {}).front().bytes, 4 * granule);
    EXPECT_EQ(plan.fetched_bytes(), granule);
    ASSERT_EQ(plan.visit({{0, 1}}, {}).front().bytes, 4 * granule);
    EXPECT_EQ(plan.fetched_bytes(), granule);
}

// For units of one size no policy fetches less than one that looks at all orders of giving up.
std::uint64_t least_fetches(const PassVisits& visits, std::size_t at, std::set<std::uint32_t> there, std::size_t room) {
    if (at == visits.size()) return 0;
    const std::uint32_t unit = visits[at].units[0];
    if (there.contains(unit)) return least_fetches(visits, at + 1, std::move(there), room);
    if (there.size() < room) {
        there.insert(unit);
        return 1 + least_fetches(visits, at + 1, std::move(there), room);
    }
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    for (const std::uint32_t given_up : there) {
        std::set<std::uint32_t> rest = there;
        rest.erase(given_up);
        rest.insert(unit);
        least = std::min(least, 1 + least_fetches(visits, at + 1, std::move(rest), room));
    }
    return least;
}

TEST(WindowPlan, OfUnitsOfOneSizeNoOtherChoiceFetchesFewer) {
    Random random(4);
    for (int round = 0; round < 200; ++round) {
        const auto count = static_cast<std::uint32_t>(draw(random, 2, 5));
        PassVisits visits;
        for (int visit = 0; visit < 10; ++visit) visits.push_back({{static_cast<std::uint32_t>(random() % count)}});
        const std::uint64_t room = draw(random, 1, 3);
        WindowPlan plan(equal_units(count, granule), room * granule, 0);
        Memory memory(plan);
        make_pass(plan, memory, visits, visits);
        ASSERT_EQ(plan.fetched_bytes() / granule, least_fetches(visits, 0, {}, room)) << "round " << round;
    }
}

TEST(WindowPlan, WindowsAreNearTheMostThatIsNeededAtOnce) {
    Random random(5);
    double sum = 0;
    constexpr int rounds = 500;
    for (int round = 0; round < rounds; ++round) {
        const Model model = random_model(random);
        const PassVisits passes[] = {model.training, model.inference};
        const auto depth = static_cast<std::uint32_t>(draw(random, 0, 4));
        std::uint64_t floor = 0;
        for (std::size_t visit = 0; visit < model.training.size(); ++visit) {
            Visit together;
            for (std::size_t near = visit; near < std::min(model.training.size(), visit + depth + 1); ++near)
                for (const std::uint32_t unit : model.training[near].units)
                    if (std::find(together.units.begin(), together.units.end(), unit) == together.units.end())
                        together.units.push_back(unit);
            floor = std::max(floor, bytes_of(model, together));
        }
        if (floor == 0) continue;
        const double ratio = static_cast<double>(zero::least_window(model.units, passes, depth).window_bytes) /
                             static_cast<double>(floor);
        EXPECT_GE(ratio, 1.0);
        EXPECT_LE(ratio, 2.0);
        sum += ratio;
    }
    EXPECT_LE(sum / rounds, 1.05);
}

TEST(FittingWindow, TakesTheDeepestThatFits) {
    const Model model = chain(8, 2 * granule);
    const PassVisits passes[] = {model.training, model.inference};
    for (std::uint64_t room = 1; room <= 10; ++room) {
        const zero::WindowUse use = zero::fitting_window(model.units, passes, 3, 2 * granule * room);
        EXPECT_EQ(use.depth, std::min<std::uint64_t>(3, room - 1));
        EXPECT_LE(use.window_bytes, 2 * granule * room);
    }
    EXPECT_EQ(zero::fitting_window(model.units, passes, 4'000'000'000U, 1U << 30).depth, 15U) << "the pass at once";
}

TEST(FittingWindow, TooSmallAWindowNamesTheVisitAndWhatIsMissing) {
    Model model = chain(4, 2 * granule);
    model.units[2].bytes = 5 * granule;
    const PassVisits passes[] = {model.training, model.inference};
    const std::string text =
        refusal_of(ExitCode::does_not_fit, [&] { zero::fitting_window(model.units, passes, 2, 3 * granule); });
    EXPECT_NE(text.find("visit 2 ('blocks.2' 20480 bytes) needs most"), std::string::npos) << text;
    EXPECT_NE(text.find("8192 bytes are missing"), std::string::npos) << text;
}

TEST(WindowPlanDeathTest, RefusesVisitsThatAreWrong) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const Model model = chain(3, granule);
    WindowPlan plan(model.units, 2 * granule, 1);
    EXPECT_DEATH(plan.visit({{3}}, {}), "unit 3 of 3");
    EXPECT_DEATH(plan.visit({{1, 1}}, {}), "twice in a visit");
    const std::uint32_t held[] = {1};
    EXPECT_DEATH(plan.visit({{1}}, {}, held), "is held, but not");
    plan.visit({{1}}, {});
    EXPECT_DEATH(plan.forget(), "is in use");
}

}  // namespace
}  // namespace penstock::testing
