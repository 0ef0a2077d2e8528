#include "zero_infinity/plan/plan.h"
#include "aio/words/error.h"

#include "pinned_pool/pinned_pool.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace penstock::zero {
namespace {

using Random = std::mt19937_64;

std::uint64_t draw(Random& random, std::uint64_t least, std::uint64_t most) {
    return least + random() % (most - least + 1);
}

struct Model {
    std::vector<GroupSpec> groups;
    std::vector<Visit> visits;
};

std::vector<GroupSpec> equal_groups(std::uint32_t count, std::uint64_t bytes) {
    std::vector<GroupSpec> groups;
    for (std::uint32_t i = 0; i < count; ++i) groups.push_back({fmt::format("blocks.{}", i), bytes});
    return groups;
}

enum class Turn { forward_only, last_unit_twice, last_unit_once };

// One visit per unit forward, then back.
std::vector<Visit> there_and_back(std::vector<Visit> forward, Turn turn) {
    std::vector<Visit> visits = forward;
    if (turn == Turn::forward_only) return visits;
    std::reverse(forward.begin(), forward.end());
    visits.insert(visits.end(), forward.begin() + (turn == Turn::last_unit_once ? 1 : 0), forward.end());
    return visits;
}

Model chain(std::uint32_t units, std::uint64_t bytes, Turn turn) {
    std::vector<Visit> forward;
    for (std::uint32_t i = 0; i < units; ++i) forward.push_back({{i}});
    return {equal_groups(units, bytes), there_and_back(std::move(forward), turn)};
}

// Large embedding, equal blocks, a small head that borrows the embedding.
Model transformer(std::uint32_t blocks, std::uint64_t block_bytes, std::uint64_t embedding_bytes) {
    Model model{equal_groups(blocks, block_bytes), {}};
    model.groups.push_back({"embedding", embedding_bytes});
    model.groups.push_back({"head", pool::granule_bytes});
    std::vector<Visit> forward{{{blocks}}};
    for (std::uint32_t i = 0; i < blocks; ++i) forward.push_back({{i}});
    forward.push_back({{blocks + 1, blocks}});
    model.visits = there_and_back(std::move(forward), Turn::last_unit_once);
    return model;
}

// Sizes from 0 to 9 granules and not always whole ones, one huge in one of three, ties, any visits in one of four.
Model random_model(Random& random) {
    Model model;
    const auto units = static_cast<std::uint32_t>(draw(random, 1, 24));
    for (std::uint32_t i = 0; i < units; ++i) {
        const bool none = draw(random, 0, 5) == 0;
        model.groups.push_back({fmt::format("u{}", i), none ? 0 : draw(random, 1, 9 * pool::granule_bytes)});
    }
    if (draw(random, 0, 2) == 0) model.groups[draw(random, 0, units - 1)].bytes = 60 * pool::granule_bytes;
    std::vector<Visit> forward;
    const bool in_order = draw(random, 0, 3) != 0;
    for (std::uint32_t i = 0; i < units; ++i) {
        Visit visit{{in_order ? i : static_cast<std::uint32_t>(draw(random, 0, units - 1))}};
        while (draw(random, 0, 3) == 0) {
            const auto tied = static_cast<std::uint32_t>(draw(random, 0, units - 1));
            if (std::find(visit.groups.begin(), visit.groups.end(), tied) == visit.groups.end())
                visit.groups.push_back(tied);
        }
        if (draw(random, 0, 15) == 0) visit.groups.clear();
        forward.push_back(std::move(visit));
    }
    model.visits = there_and_back(std::move(forward), static_cast<Turn>(draw(random, 0, 2)));
    return model;
}

// The visits from `from` on in which the group is needed, first one only.
std::optional<std::uint32_t> next_need(const Model& model, std::uint32_t group, std::uint32_t from) {
    for (std::uint32_t visit = from; visit < model.visits.size(); ++visit) {
        const auto& groups = model.visits[visit].groups;
        if (std::find(groups.begin(), groups.end(), group) != groups.end()) return visit;
    }
    return std::nullopt;
}

// The policy in one sentence, without fetches or lifetimes: while compute is at `cursor`, exactly those groups may be
// in memory that are needed within the next `depth` visits or now.
std::set<std::uint32_t> wanted(const Model& model, std::uint32_t cursor, std::uint32_t depth) {
    std::set<std::uint32_t> groups;
    for (std::uint32_t group = 0; group < model.groups.size(); ++group) {
        if (model.groups[group].bytes == 0) continue;
        const auto need = next_need(model, group, cursor);
        if (need && *need <= cursor + depth) groups.insert(group);
    }
    return groups;
}

std::uint64_t least_window(const Model& model, std::uint32_t depth) {
    std::uint64_t most = 0;
    for (std::uint32_t cursor = 0; cursor < model.visits.size(); ++cursor) {
        std::uint64_t granules = 0;
        for (const std::uint32_t group : wanted(model, cursor, depth)) {
            granules += (model.groups[group].bytes + pool::granule_bytes - 1) / pool::granule_bytes;
        }
        most = std::max(most, granules * pool::granule_bytes);
    }
    return most;
}

// Drives a plan through one pass: reads arrive in any order, compute goes on whenever it may, next() is asked now and
// then. Keeps a window of its own, granule by granule, and believes the plan nothing.
class Adversary {
   public:
    Adversary(const Model& model, const WeightSchedule& schedule, Random& random)
        : model_(model),
          schedule_(schedule),
          random_(random),
          owner_(schedule.window_bytes() / pool::granule_bytes, nobody) {}

    void run_pass(WeightPlan& plan) {
        while (!plan.finished() && !::testing::Test::HasFatalFailure()) {
            const std::uint64_t choice = draw(random_, 0, 2);
            if (choice == 0) drain(plan);
            if (choice == 1 && !flying_.empty()) arrive(plan);
            if (choice < 2) continue;
            if (plan.ready(plan.cursor())) {
                use(plan);
            } else if (flying_.empty()) {
                drain(plan);
                ASSERT_FALSE(flying_.empty()) << "deadlock at visit " << plan.cursor();
            }
        }
        EXPECT_EQ(plan.next(), nullptr);
        EXPECT_TRUE(held_.empty());
        EXPECT_TRUE(flying_.empty());
    }

    const std::vector<std::string>& history() const { return history_; }
    std::uint64_t read_bytes() const { return read_bytes_; }

   private:
    static constexpr int nobody = -1;

    void drain(WeightPlan& plan) {
        while (const Fetch* fetch = plan.next()) start(*fetch);
        std::set<std::uint32_t> held;
        for (const auto& [group, place] : held_) held.insert(group);
        EXPECT_EQ(held, wanted(model_, plan.cursor(), schedule_.depth())) << "at visit " << plan.cursor();
    }

    void start(const Fetch& fetch) {
        history_.push_back(fmt::format("fetch {} at {}", fetch.group, fetch.offset_bytes));
        ASSERT_EQ(fetch.offset_bytes % pool::granule_bytes, 0U);
        ASSERT_EQ(fetch.bytes, model_.groups[fetch.group].bytes);
        ASSERT_FALSE(held_.contains(fetch.group)) << "group " << fetch.group << " is in memory already";
        ASSERT_LE(fetch.offset_bytes + fetch.bytes, schedule_.window_bytes());
        for (auto granule = first(fetch); granule < end(fetch); ++granule) {
            ASSERT_EQ(owner_[granule], nobody) << "group " << fetch.group << " overlaps a live one";
            owner_[granule] = static_cast<int>(fetch.group);
        }
        held_[fetch.group] = &fetch;
        flying_.push_back(&fetch);
        read_bytes_ += fetch.bytes;
    }

    void arrive(WeightPlan& plan) {
        const auto which = flying_.begin() + static_cast<std::ptrdiff_t>(draw(random_, 0, flying_.size() - 1));
        plan.arrived(**which);
        flying_.erase(which);
    }

    void use(WeightPlan& plan) {
        const std::uint32_t visit = plan.cursor();
        std::set<std::uint32_t> drops;  // by the policy: not needed soon enough to be fetched again at once
        for (const std::uint32_t group : model_.visits[visit].groups) {
            if (model_.groups[group].bytes == 0) continue;
            expect_readable(plan, visit, group);
            const auto need = next_need(model_, group, visit + 1);
            if (!need || *need > visit + 1 + schedule_.depth()) drops.insert(group);
        }
        std::set<std::uint32_t> dropped;
        for (const std::uint32_t fetch : plan.used(visit)) {
            dropped.insert(schedule_.fetches()[fetch].group);
            EXPECT_EQ(plan.state(fetch), WeightPlan::FetchState::dropped);
        }
        EXPECT_EQ(dropped, drops) << "after visit " << visit;
        for (const std::uint32_t group : dropped) {
            std::replace(owner_.begin(), owner_.end(), static_cast<int>(group), nobody);
            held_.erase(group);
        }
        history_.push_back(fmt::format("used {}", visit));
    }

    void expect_readable(const WeightPlan& plan, std::uint32_t visit, std::uint32_t group) {
        ASSERT_TRUE(held_.contains(group))
            << "visit " << visit << " reads group " << group << ", which is not in memory";
        const Fetch& fetch = plan.schedule().holder(visit, group);
        ASSERT_EQ(held_[group], &fetch);
        ASSERT_EQ(std::count(flying_.begin(), flying_.end(), &fetch), 0)
            << "group " << group << " is used before it arrived";
        for (auto granule = first(fetch); granule < end(fetch); ++granule)
            ASSERT_EQ(owner_[granule], static_cast<int>(group));
    }

    static std::uint64_t first(const Fetch& fetch) { return fetch.offset_bytes / pool::granule_bytes; }
    static std::uint64_t end(const Fetch& fetch) {
        return (fetch.offset_bytes + fetch.bytes + pool::granule_bytes - 1) / pool::granule_bytes;
    }

    const Model& model_;
    const WeightSchedule& schedule_;
    Random& random_;
    std::vector<int> owner_;                      // per granule of the window: a group, or nobody
    std::map<std::uint32_t, const Fetch*> held_;  // by group: from its start to its drop
    std::vector<const Fetch*> flying_;
    std::vector<std::string> history_;
    std::uint64_t read_bytes_ = 0;
};

std::uint64_t visited_bytes(const Model& model) {
    std::uint64_t bytes = 0;
    for (const Visit& visit : model.visits) {
        for (const std::uint32_t group : visit.groups) bytes += model.groups[group].bytes;
    }
    return bytes;
}

TEST(WeightPlan, KeepsEveryPromiseAgainstARandomAdversary) {
    for (unsigned seed = 1; seed <= 4000; ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        Random random(seed);
        const Model model = random_model(random);
        const WeightSchedule schedule(model.groups, model.visits, static_cast<std::uint32_t>(draw(random, 0, 8)));
        EXPECT_EQ(schedule.fetched_bytes() + schedule.retained_bytes(), visited_bytes(model));
        WeightPlan plan(schedule);
        for (int pass = 0; pass < 2; ++pass) {
            Adversary adversary(model, schedule, random);
            if (pass > 0) plan.begin();
            adversary.run_pass(plan);
            EXPECT_EQ(adversary.read_bytes(), schedule.fetched_bytes());
            if (HasFailure()) return;
        }
    }
}

TEST(WeightPlan, IsTheSameForTheSameEvents) {
    for (unsigned seed = 1; seed <= 100; ++seed) {
        std::vector<std::string> histories[2];
        for (auto& history : histories) {
            Random random(seed);
            const Model model = random_model(random);
            const WeightSchedule schedule(model.groups, model.visits, 3);
            WeightPlan plan(schedule);
            Adversary adversary(model, schedule, random);
            adversary.run_pass(plan);
            history = adversary.history();
        }
        ASSERT_EQ(histories[0], histories[1]) << "seed " << seed;
    }
}

// Finds nothing to do with a pass of no visits, and with one whose groups are all resident elsewhere.
TEST(WeightPlan, NothingToFetchIsReadyAtOnce) {
    const WeightSchedule none({}, {}, 2);
    EXPECT_TRUE(WeightPlan(none).finished());
    const WeightSchedule resident({{"a", 0}}, {{{0}}, {}}, 2);
    WeightPlan plan(resident);
    EXPECT_EQ(plan.next(), nullptr);
    EXPECT_TRUE(plan.ready(0));
    EXPECT_TRUE(plan.used(0).empty());
    EXPECT_TRUE(plan.used(1).empty());
    EXPECT_TRUE(plan.finished());
    EXPECT_EQ(resident.window_bytes(), 0U);
}

TEST(WeightPlan, AnAbandonedPassCanBeginAgain) {
    const Model model = chain(3, 1, Turn::forward_only);
    const WeightSchedule schedule(model.groups, model.visits, 1);
    WeightPlan plan(schedule);
    plan.arrived(*plan.next());
    plan.used(0);
    plan.begin();
    EXPECT_EQ(plan.cursor(), 0U);
    EXPECT_EQ(plan.state(0), WeightPlan::FetchState::waiting);
    EXPECT_EQ(plan.next(), &schedule.fetches()[0]);
}

TEST(WeightPlanDeathTest, RefusesEventsThatCannotBe) {
    const Model model = chain(3, 1, Turn::forward_only);
    const WeightSchedule schedule(model.groups, model.visits, 0);
    const WeightSchedule other(model.groups, model.visits, 0);
    WeightPlan plan(schedule);
    EXPECT_DEATH(plan.used(0), "before its weights arrived");
    EXPECT_DEATH(plan.arrived(schedule.fetches()[0]), "in state 0");
    const Fetch* fetch = plan.next();
    EXPECT_DEATH(plan.begin(), "under way");
    EXPECT_DEATH(plan.arrived(other.fetches()[0]), "not a fetch of this plan");
    plan.arrived(*fetch);
    EXPECT_DEATH(plan.arrived(*fetch), "in state 2");
    EXPECT_DEATH(plan.used(1), "while compute is at 0");
    EXPECT_DEATH(plan.schedule().holder(0, 1), "no fetch serves group 1");
}

TEST(WeightScheduleDeathTest, RefusesVisitsThatAreWrong) {
    EXPECT_DEATH(WeightSchedule({{"a", 1}}, {{{1}}}, 0), "group 1 of 1");
    EXPECT_DEATH(WeightSchedule({{"a", 1}}, {{{0, 0}}}, 0), "'a' twice");
}

TEST(WeightSchedule, EqualUnitsNeedDepthAndOneOfThem) {
    constexpr std::uint64_t bytes = 3 * pool::granule_bytes;
    for (std::uint32_t units = 1; units <= 40; ++units) {
        for (std::uint32_t depth = 0; depth <= 8; ++depth) {
            for (const Turn turn : {Turn::forward_only, Turn::last_unit_twice, Turn::last_unit_once}) {
                const Model model = chain(units, bytes, turn);
                const WeightSchedule schedule(model.groups, model.visits, depth);
                ASSERT_EQ(schedule.window_bytes(), std::min(depth + 1, units) * bytes)
                    << units << " units, depth " << depth;
            }
        }
    }
}

TEST(WeightSchedule, TheUnitsNearestToTheTurnAreKept) {
    constexpr std::uint64_t bytes = 7;
    for (std::uint32_t depth = 0; depth <= 8; ++depth) {
        const Model model = chain(20, bytes, Turn::last_unit_twice);
        const WeightSchedule schedule(model.groups, model.visits, depth);
        EXPECT_EQ(schedule.retained_bytes(), (1 + depth / 2) * bytes) << "depth " << depth;
        EXPECT_EQ(schedule.fetches().size(), 40 - (1 + depth / 2));
    }
}

TEST(WeightSchedule, AKeptFetchServesBothVisits) {
    const Model model = chain(4, 1, Turn::last_unit_twice);  // 0 1 2 3 3 2 1 0
    const WeightSchedule schedule(model.groups, model.visits, 2);
    const Fetch& kept = schedule.fetches()[2];
    EXPECT_EQ(kept.group, 2U);
    EXPECT_EQ(kept.first_visit, 2U);
    EXPECT_EQ(kept.last_visit, 5U);
    EXPECT_EQ(kept.allowed_from, 0U);
    EXPECT_EQ(schedule.fetches_of(5).front(), 2U);
}

// A device's window is fed from the host's: what lies in the shallower one must still be served by one fetch of the
// deeper.
TEST(WeightSchedule, AFetchOfAShallowerScheduleLiesWithinOneOfADeeper) {
    for (unsigned seed = 1; seed <= 500; ++seed) {
        Random random(seed);
        const Model model = random_model(random);
        const auto depth = static_cast<std::uint32_t>(draw(random, 0, 6));
        const WeightSchedule deep(model.groups, model.visits, depth + static_cast<std::uint32_t>(draw(random, 0, 3)));
        const WeightSchedule shallow(model.groups, model.visits, depth);
        for (const Fetch& fetch : shallow.fetches()) {
            const auto holds = [&](const Fetch& other) {
                return other.group == fetch.group && other.first_visit <= fetch.first_visit &&
                       fetch.last_visit <= other.last_visit && other.allowed_from <= fetch.allowed_from;
            };
            ASSERT_EQ(std::count_if(deep.fetches().begin(), deep.fetches().end(), holds), 1) << "seed " << seed;
        }
    }
}

void print_ratios(const char* shapes, std::vector<double> ratios) {
    std::sort(ratios.begin(), ratios.end());
    const auto at = [&](double share) {
        return ratios[static_cast<std::size_t>(share * static_cast<double>(ratios.size() - 1))];
    };
    const auto optimal = std::count(ratios.begin(), ratios.end(), 1.0);
    fmt::print("window / most live bytes, {} {}: 1.000 in {:.1f} %, p50 {:.3f}, p90 {:.3f}, p99 {:.3f}, worst {:.3f}\n",
               ratios.size(), shapes, 100.0 * static_cast<double>(optimal) / static_cast<double>(ratios.size()),
               at(0.5), at(0.9), at(0.99), ratios.back());
}

TEST(WeightSchedule, WindowsAreNearTheMostThatLivesAtOneMoment) {
    std::vector<double> transformers;
    for (std::uint32_t blocks = 4; blocks <= 48; ++blocks) {
        for (const std::uint64_t tenths : {10, 15, 20, 27, 35, 60, 100}) {  // embedding / block
            for (std::uint32_t depth = 0; depth <= 8; depth += 2) {
                const Model model = transformer(blocks, 40 * pool::granule_bytes, tenths * 4 * pool::granule_bytes);
                const WeightSchedule schedule(model.groups, model.visits, depth);
                const std::uint64_t least = least_window(model, depth);
                ASSERT_GE(schedule.window_bytes(), least);
                transformers.push_back(static_cast<double>(schedule.window_bytes()) / static_cast<double>(least));
            }
        }
    }
    std::vector<double> randoms;
    for (unsigned seed = 1; seed <= 500; ++seed) {
        Random random(seed);
        const Model model = random_model(random);
        const auto depth = static_cast<std::uint32_t>(draw(random, 0, 8));
        const WeightSchedule schedule(model.groups, model.visits, depth);
        const std::uint64_t least = least_window(model, depth);
        ASSERT_GE(schedule.window_bytes(), least) << "seed " << seed;
        if (least > 0) randoms.push_back(static_cast<double>(schedule.window_bytes()) / static_cast<double>(least));
    }
    print_ratios("transformers with a tied head", transformers);
    print_ratios("random models", randoms);
    const auto near =
        std::count_if(transformers.begin(), transformers.end(), [](double ratio) { return ratio <= 1.1; });
    EXPECT_GE(near, static_cast<std::ptrdiff_t>(transformers.size() * 9 / 10));
    EXPECT_LE(*std::max_element(transformers.begin(), transformers.end()), 1.35);
}

TEST(WeightSchedule, FittingTakesTheDeepestThatFits) {
    for (unsigned seed = 1; seed <= 300; ++seed) {
        Random random(seed);
        const Model model = random_model(random);
        const auto depth = static_cast<std::uint32_t>(draw(random, 0, 8));
        const WeightSchedule least(model.groups, model.visits, 0);
        const std::uint64_t room = least.window_bytes() + draw(random, 0, 30) * pool::granule_bytes;
        const WeightSchedule fitting = WeightSchedule::fitting(model.groups, model.visits, depth, room);
        ASSERT_LE(fitting.window_bytes(), room);
        ASSERT_LE(fitting.depth(), depth);
        const auto deepest = std::min(depth, static_cast<std::uint32_t>(model.visits.size()));
        for (std::uint32_t deeper = fitting.depth() + 1; deeper <= deepest; ++deeper) {
            ASSERT_GT(WeightSchedule(model.groups, model.visits, deeper).window_bytes(), room) << "seed " << seed;
        }
    }
}

TEST(WeightSchedule, ARidiculousDepthIsThePassAtOnce) {
    const Model model = chain(5, pool::granule_bytes, Turn::last_unit_twice);
    const auto schedule = WeightSchedule::fitting(model.groups, model.visits, ~0U, 5 * pool::granule_bytes);
    EXPECT_EQ(schedule.fetches().size(), 5U);
    EXPECT_EQ(schedule.retained_bytes(), 5 * pool::granule_bytes);
    EXPECT_EQ(WeightSchedule(model.groups, model.visits, ~0U).window_bytes(), 5 * pool::granule_bytes);
}

TEST(WeightSchedule, TooSmallAWindowNamesTheVisitAndWhatIsMissing) {
    const Model model = transformer(3, pool::granule_bytes, 10 * pool::granule_bytes);
    try {
        WeightSchedule::fitting(model.groups, model.visits, 4, 9 * pool::granule_bytes);
        FAIL() << "11 granules in a window of 9";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::does_not_fit);
        const std::string message = error.what();
        EXPECT_NE(message.find("visit 4 ('head' 4096 bytes + 'embedding' 40960 bytes)"), std::string::npos) << message;
        EXPECT_NE(message.find("8192 bytes are missing"), std::string::npos) << message;
    }
}

}  // namespace
}  // namespace penstock::zero
