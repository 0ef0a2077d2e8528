#include "zero_infinity/ranks/set_recovery.h"

#include "tests/refusal.h"
#include "tests/seeds.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace penstock::testing {
namespace {

using zero::FoundGeneration;
using zero::FoundStore;
using zero::FoundStores;
using zero::FoundTiles;
using zero::RecoveryStep;
using zero::SetDecision;
using Found = std::vector<FoundStores>;  // by rank

constexpr auto take = RecoveryStep::take, go_back = RecoveryStep::go_back, verify = RecoveryStep::verify_previous,
               make = RecoveryStep::make;

// With the generation before, as after a commit; of life 5.
FoundStore store_at(std::uint64_t generation, zero::Partition place, std::uint8_t set = 1) {
    FoundStore found{.place = place, .newest = {.generation = generation, .incarnation = 5}};
    found.set[15] = std::byte{set};
    if (generation > 0) found.previous = {.generation = generation - 1, .incarnation = 5};
    return found;
}

// Each rank has a store at its generation.
Found stores_at(const std::vector<std::uint64_t>& generations) {
    Found found;
    for (std::uint32_t rank = 0; rank < generations.size(); ++rank)
        found.push_back({store_at(generations[rank], {rank, static_cast<std::uint32_t>(generations.size())})});
    return found;
}

std::string words_of(const SetDecision& decision) {
    if (decision.refusal)
        return fmt::format("{}: {}", decision.refusal->code() == ExitCode::usage ? "usage" : "storage",
                           decision.refusal->what());
    constexpr const char* words[] = {"take", "go back", "verify", "make"};
    std::string text = fmt::format("{} of {}:", decision.generation, std::to_integer<int>(decision.set[15]));
    for (const RecoveryStep step : decision.steps) text += fmt::format(" {}", words[static_cast<int>(step)]);
    return text;
}

std::string decided(const Found& found) {
    return words_of(decide(found));
}

// ---------------------------------------------------------------- what a kill leaves

TEST(SetRecovery, WhereAllHaveTheSameTheyGoOnFromIt) {
    EXPECT_EQ(decided(stores_at({6})), "6 of 1: take");
    EXPECT_EQ(decided(stores_at({6, 6, 6})), "6 of 1: take take take");
    EXPECT_EQ(decided(stores_at({0, 0})), "0 of 1: take take");
}

TEST(SetRecovery, WhoIsAheadGoesBack) {
    EXPECT_EQ(decided(stores_at({7, 6})), "6 of 1: go back take");
    EXPECT_EQ(decided(stores_at({6, 7, 7})), "6 of 1: take go back go back");
    EXPECT_EQ(decided(stores_at({1, 0})), "0 of 1: go back take");
}

// Who has gone back already has erased what was newer: the store cannot know what that was.
TEST(SetRecovery, ARecoveryThatWasKilledIsMadeAgain) {
    Found found = stores_at({6, 7, 7});
    found[0][0].previous.reset();
    EXPECT_EQ(decided(found), "6 of 1: take go back go back");
    found[0][0].doubtful = true;
    found[0][0].newest.tiles = FoundTiles::right;
    EXPECT_EQ(decided(found), "6 of 1: take verify verify");
    found[1][0].previous->tiles = found[2][0].previous->tiles = FoundTiles::right;
    EXPECT_EQ(decided(found), "6 of 1: take go back go back");
}

TEST(SetRecovery, ACreationThatWasKilledIsMadeAgain) {
    EXPECT_EQ(decided(Found(3)), "0 of 0: make make make");
    Found found = stores_at({0, 0});
    found[1].clear();
    EXPECT_EQ(decided(found), "0 of 0: make make");
    found[1] = {store_at(0, {1, 2}, 2)};  // the next creation was killed, too
    EXPECT_EQ(decided(found), "0 of 0: make make");
}

TEST(SetRecovery, AReshardingThatWasKilledLeavesTheSetThatItBeganWith) {
    Found found = stores_at({9, 9});
    for (const std::uint32_t rank : {0U, 2U}) {
        FoundStore made = store_at(0, {rank, 4}, 2);
        made.epoch = 2;
        found[0].push_back(made);
    }
    EXPECT_EQ(decided(found), "9 of 1: take take");
    found[0].erase(found[0].begin());
    found[1].clear();
    EXPECT_SAYS(decided(found),
                "storage: A change of the number of ranks was interrupted, and the set that it began "
                "with is not here. Make its directories visible, or name new ones.");
}

TEST(SetRecovery, AReshardingThatIsDoneLeavesTheNewSet) {
    Found found = stores_at({0, 0});
    for (FoundStores& each : found) each[0].epoch = 2;
    for (const std::uint32_t rank : {0U, 1U, 2U, 3U}) found[0].push_back(store_at(9, {rank, 4}, 2));
    EXPECT_EQ(decided(found), "0 of 1: take take");
}

// ---------------------------------------------------------------- what no kill leaves

TEST(SetRecovery, CopiesOfDifferentMomentsAreRefusedWithATable) {
    Found found = stores_at({7, 5});
    EXPECT_EQ(
        decided(found),
        "storage: The ranks have no generation in common: runs were mixed, or directories were put back from "
        "copies of different moments. Put back those of all ranks of one moment, or go on from the newest "
        "snapshot, with new directories. Nothing was changed.\n"
        "  rank 0: store 0 of 2, epoch 1 of set 00000000-0000-0000-0000-000000000001: generation 7 of incarnation "
        "5; before it 6 of incarnation 5\n"
        "  rank 1: store 1 of 2, epoch 1 of set 00000000-0000-0000-0000-000000000001: generation 5 of incarnation "
        "5; before it 4 of incarnation 5");
}

TEST(SetRecovery, GenerationsOfTwoLivesAreTwo) {
    Found found = stores_at({7, 7});
    found[0][0].newest.incarnation = 6;
    found[0][0].previous->tiles = found[1][0].previous->tiles = FoundTiles::right;
    EXPECT_EQ(decided(found), "6 of 1: go back go back");
    found[1][0].previous->incarnation = 4;
    EXPECT_SAYS(decided(found), "storage: The ranks have no generation in common");
}

// Nobody who has nothing newer keeps the others from writing over it.
TEST(SetRecovery, WhatTheRuleDoesNotKeepIsReadBeforeAnythingIsErased) {
    Found found = stores_at({7, 7});
    found[0][0].newest.incarnation = 6;
    EXPECT_EQ(decided(found), "6 of 1: verify verify");
    found[0][0].previous->tiles = FoundTiles::right;
    EXPECT_EQ(decided(found), "6 of 1: go back verify");
    found[1][0].previous->tiles = FoundTiles::damaged;
    EXPECT_SAYS(decided(found), "storage: The ranks have no generation in common");
    EXPECT_SAYS(decided(found), "before it 6 of incarnation 5, damaged");
}

TEST(SetRecovery, ADamagedNewestIsGivenUpWhereAllHaveTheOneBefore) {
    Found found = stores_at({7, 7, 7});
    found[1][0].newest.tiles = FoundTiles::damaged;
    EXPECT_EQ(decided(found), "6 of 1: verify verify verify");
    for (FoundStores& each : found) each[0].previous->tiles = FoundTiles::right;
    EXPECT_EQ(decided(found), "6 of 1: go back go back go back");
    found[2][0].previous->tiles = FoundTiles::damaged;
    EXPECT_SAYS(decided(found),
                "storage: The newest generation is damaged on rank 1, and the one before is not whole "
                "on all ranks. Put back the directories of all ranks of one moment, or go on from the "
                "newest snapshot, with new directories. Nothing was changed.");
    EXPECT_SAYS(decided(found),
                "rank 1: store 1 of 3, epoch 1 of set 00000000-0000-0000-0000-000000000001: generation "
                "7 of incarnation 5, damaged; before it 6 of incarnation 5");
}

TEST(SetRecovery, ADamagedFirstGenerationIsNotMadeAgain) {
    Found found = stores_at({0, 0});
    found[1][0].newest.tiles = FoundTiles::damaged;
    EXPECT_SAYS(decided(found), "storage: The newest generation is damaged on rank 1");
}

TEST(SetRecovery, ALostStoreIsNamed) {
    Found found = stores_at({7, 7, 7});
    found[1].clear();
    EXPECT_SAYS(decided(found),
                "storage: There is no store of rank 1. Put back its directory, or go on from the "
                "newest snapshot, with new directories. Nothing was changed.");
    EXPECT_SAYS(decided(found), "\n  rank 1: nothing is committed\n");
    found[2] = {store_at(0, {2, 3}, 2)};  // of another run, which came to nothing
    EXPECT_SAYS(decided(found), "storage: There is no store of rank 1, 2. Put back its directory");
}

TEST(SetRecovery, StoresOfTwoRunsAreRefused) {
    Found found = stores_at({7, 7});
    found[1][0].set[15] = std::byte{2};
    EXPECT_SAYS(decided(found), "storage: There are stores of two runs. Name the directories of one of them. Nothing");
}

TEST(SetRecovery, AnotherNumberOfRanksIsRefused) {
    Found found = stores_at({7, 7});
    found.resize(4);
    EXPECT_SAYS(decided(found),
                "usage: 4 ranks are started, but what is committed is of 2. Start as many, or name new "
                "directories. Nothing was changed.");
    found = stores_at({7, 7, 7});
    found.resize(2);
    EXPECT_SAYS(decided(found), "usage: 2 ranks are started, but what is committed is of 3.");
}

TEST(SetRecovery, StoresThatContradictEachOtherAreRefused) {
    Found found = stores_at({7, 7});
    found[1][0].place.ranks = 4;
    EXPECT_SAYS(decided(found), "storage: The stores of one set say different things of it.");
    found = stores_at({7, 7});
    found[1][0].epoch = 2;
    EXPECT_SAYS(decided(found), "storage: The stores of one set say different things of it.");
    found = stores_at({7, 7});
    found[1][0].place.rank = 2;
    EXPECT_SAYS(decided(found), "storage: The stores of one set say different things of it.");
}

TEST(SetRecovery, OneStoreOfTwoRanksIsRefused) {
    Found found = stores_at({7, 7});
    found[1][0].place.rank = 0;
    EXPECT_SAYS(decided(found),
                "storage: Ranks 0 and 1 both have the store of rank 0: a directory was copied, or is "
                "named for both. Give each rank the directory that it had.");
}

TEST(SetRecovery, TheStoreOfAnotherRankIsRefused) {
    Found found = stores_at({7, 7});
    std::swap(found[0], found[1]);
    EXPECT_SAYS(decided(found),
                "storage: Rank 0 has the store of rank 1. Start each rank where its directory is, or "
                "give it the directory that it had.");
}

// ---------------------------------------------------------------- anything, against an oracle

using Life = std::pair<std::uint64_t, std::uint64_t>;  // generation and incarnation

// Sets of few generations and lives, mostly those that fit.
class AnyFound {
   public:
    explicit AnyFound(std::uint64_t seed) : random_(seed) {
        const auto ranks = static_cast<std::uint32_t>(draw(1, 3));
        found_.resize(ranks);
        const std::uint64_t sets = one_of(4) ? 2 : 1;
        for (std::uint64_t set = 1; set <= sets; ++set) {
            const auto of = one_of(5) ? static_cast<std::uint32_t>(draw(1, 3)) : ranks;
            const std::uint64_t epoch = draw(1, 2), generation = draw(0, 3);
            for (std::uint32_t rank = 0; rank < of; ++rank) add(set, epoch, generation, {rank, of});
        }
    }
    const Found& found() const { return found_; }

   private:
    std::uint64_t draw(std::uint64_t least, std::uint64_t most) { return least + random_() % (most - least + 1); }
    bool one_of(std::uint64_t count) { return draw(1, count) == 1; }

    void add(std::uint64_t set, std::uint64_t epoch, std::uint64_t generation, zero::Partition place) {
        if (one_of(12)) return;
        if (one_of(20)) place.rank = static_cast<std::uint32_t>(draw(0, place.ranks - 1));
        if (one_of(3)) ++generation;
        FoundStore store = store_at(generation, place, static_cast<std::uint8_t>(set));
        store.epoch = epoch;
        store.doubtful = one_of(8);
        store.newest.tiles = tiles();
        if (one_of(8)) store.newest.incarnation = draw(5, 6);
        if (one_of(6)) store.previous.reset();
        if (store.previous) store.previous->tiles = tiles();
        if (store.previous && one_of(8)) store.previous->incarnation = draw(4, 5);
        const std::size_t finder = one_of(20) ? draw(0, found_.size() - 1) : place.rank % found_.size();
        found_[finder].push_back(store);
    }
    FoundTiles tiles() {
        if (one_of(8)) return FoundTiles::damaged;
        return one_of(3) ? FoundTiles::right : FoundTiles::unread;
    }

    std::mt19937_64 random_;
    Found found_;
};

// By sets of what each rank can have, and their intersection.
class Oracle {
   public:
    explicit Oracle(const Found& found) : found_(found) {
        for (std::size_t rank = 0; rank < found.size(); ++rank)
            for (const FoundStore& store : found[rank]) sets_[store.set].emplace_back(rank, store);
    }

    // "usage", "storage", or what words_of() says.
    std::string answer() const {
        std::map<std::uint64_t, std::vector<store::StoreUuid>> by_epoch;
        std::uint64_t last_epoch = 0;
        for (const auto& [set, stores] : sets_) {
            last_epoch = std::max(last_epoch, stores[0].second.epoch);
            if (counts(stores)) by_epoch[stores[0].second.epoch].push_back(set);
        }
        if (by_epoch.empty()) {
            if (last_epoch > 1) return "storage";
            return words_of({.steps = std::vector(found_.size(), make)});
        }
        const auto& [epoch, newest] = *by_epoch.rbegin();
        return newest.size() > 1 ? "storage" : answer(newest.front());
    }

   private:
    using Stores = std::vector<std::pair<std::size_t, FoundStore>>;  // with who found it

    static bool counts(const Stores& stores) {
        std::uint64_t most = 0;
        for (const auto& [finder, store] : stores) most = std::max(most, store.newest.generation);
        return most > 0 || stores.size() >= stores[0].second.place.ranks;
    }

    std::string answer(const store::StoreUuid& set) const {
        const Stores& stores = sets_.at(set);
        const std::size_t ranks = stores[0].second.place.ranks;
        std::map<std::uint32_t, FoundStore> by_place;
        for (const auto& [finder, store] : stores) {
            if (ranks == found_.size() && finder != store.place.rank) return "storage";
            if (!by_place.emplace(store.place.rank, store).second) return "storage";
        }
        if (ranks != found_.size()) return "usage";
        if (by_place.size() != ranks) return "storage";
        std::set<Life> common = lives_of(by_place.at(0));
        for (const auto& [place, store] : by_place) {
            std::set<Life> both;
            const std::set<Life> own = lives_of(store);
            std::set_intersection(common.begin(), common.end(), own.begin(), own.end(),
                                  std::inserter(both, both.end()));
            common = both;
        }
        if (common.empty()) return "storage";
        return words_of({.set = set, .generation = common.rbegin()->first, .steps = steps(by_place, *common.rbegin())});
    }

    static std::vector<RecoveryStep> steps(const std::map<std::uint32_t, FoundStore>& stores, const Life& common) {
        int at_it = 0, suspect = 0;
        for (const auto& [place, store] : stores) {
            at_it += life_of(store.newest) == common;
            suspect += store.doubtful || store.newest.tiles == FoundTiles::damaged;
        }
        std::vector<RecoveryStep> steps;
        for (const auto& [place, store] : stores) {
            if (life_of(store.newest) == common)
                steps.push_back(take);
            else if ((at_it > 0 && suspect == 0) || store.previous->tiles == FoundTiles::right)
                steps.push_back(go_back);
            else
                steps.push_back(verify);
        }
        return steps;
    }

    static Life life_of(const FoundGeneration& of) { return {of.generation, of.incarnation}; }
    static std::set<Life> lives_of(const FoundStore& store) {
        std::set<Life> lives;
        if (store.newest.tiles != FoundTiles::damaged) lives.insert(life_of(store.newest));
        if (store.previous && store.previous->tiles != FoundTiles::damaged) lives.insert(life_of(*store.previous));
        return lives;
    }

    const Found& found_;
    std::map<store::StoreUuid, Stores> sets_;
};

TEST(SetRecovery, DecidesAsAnOracleOfWhateverIsFound) {
    std::map<std::string, int> answers;
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(5000); ++seed) {
        SCOPED_TRACE(replay(seed));
        const AnyFound any(seed);
        const std::string expected = Oracle(any.found()).answer(), got = decided(any.found());
        ASSERT_TRUE(got == expected || got.starts_with(expected + ": ")) << expected << " expected, not " << got;
        ++answers[got.substr(0, got.find(':'))];
        if (expected.find("verify") != std::string::npos) ++answers["verify"];
        if (expected.find("back") != std::string::npos) ++answers["back"];
    }
    if (seed_count(5000) < 1000) return;
    for (const char* each : {"usage", "storage", "0 of 0", "0 of 1", "3 of 1", "2 of 2", "verify", "back"})
        EXPECT_GT(answers[each], 10) << each;
}

}  // namespace
}  // namespace penstock::testing
