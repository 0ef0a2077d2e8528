// Trainings of different numbers of ranks that begin on one new directory: one of them at most makes its stores there.
#include "aio/backend.h"
#include "tests/seeds.h"
#include "tests/zero_infinity/session/ranks/rank_lives.h"
#include "zero_infinity/session/rank_set.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using Within = std::function<void()>;

// A life of as many ranks, one of which alone is no rank of anything. `within`: of rank 0, as its store is locked and
// has nothing yet.
Words begin(const std::string& path, RankCourse course, std::uint64_t last, const AtEnd& at_end,
            const Within& within = {}) {
    ThreadRanks control(course.ranks), bulk(course.ranks);
    return run_ranks(course.ranks, [&](std::uint32_t rank) {
        zero::SessionSeams seams;
        if (course.ranks > 1) seams.ranks = {&control.of(rank), &bulk.of(rank)};
        seams.backend = [&, rank](const store::StoreDirectory&) {
            if (rank == 0 && within) within();
            return aio::ChosenBackend{aio::make_thread_backend({.depth = 16, .threads_per_device = 1}), {}};
        };
        Client client(path, course.setting, seams);
        train_rank(client, course, client.steps() + 1, last, rank);
        if (at_end) at_end(client, rank);
    });
}

bool is_whole(const Words& thrown) {
    return std::ranges::all_of(thrown, [](const std::string& each) { return each.empty(); });
}

// Who is not refused itself has lost one that is; one process alone may find no more than the others' folder yet.
bool is_refusal(const std::string& words) {
    return words.find("not a store's, e.g. 'ranks-") != std::string::npos ||
           words.find("or name another directory") != std::string::npos || words.find("lost") != std::string::npos ||
           words.find("another rank") != std::string::npos;
}

class RankStartsTest : public RankSetTest {
   protected:
    RankCourse of(std::uint32_t ranks) const {
        RankCourse course = course_;
        course.ranks = ranks;
        return course;
    }
};

TEST_F(RankStartsTest, AnotherNumberThatBeginsMeanwhileIsRefusedByNameAndMakesNothing) {
    for (const auto& each : {std::pair{2U, 3U}, {3U, 2U}, {1U, 2U}, {2U, 1U}}) {
        const std::uint32_t ranks = each.first;
        const std::uint32_t others = each.second;
        SCOPED_TRACE(fmt::format("{} beside {}", others, ranks));
        fs::remove_all(run());
        course_.ranks = ranks;
        Words refused;
        EXPECT_EQ(begin(run(), of(ranks), 2, holds_after(2), [&] { refused = begin(run(), of(others), 1, {}); }),
                  Words(ranks));
        const std::string in_use = fmt::format("{} is in use by a training of {} (this process, ", run(),
                                               ranks == 1 ? "one process" : fmt::format("{} processes", ranks));
        const std::string remedy = fmt::format(
            "job 'client'), and {} started: start as many when that has ended, or "
            "name another directory",
            others == 1 ? "one is" : fmt::format("{} are", others));
        for (const std::string& words : refused) EXPECT_TRUE(is_refusal(words)) << words;
        EXPECT_TRUE(std::ranges::any_of(refused, [&](const std::string& words) {
            return words.starts_with(in_use) && words.ends_with(remedy);
        })) << refused.front();
        EXPECT_FALSE(fs::exists(fmt::format("{}/{}", run(), others == 1 ? "lock" : fmt::format("ranks-{}", others))));
        EXPECT_EQ(begin(run(), of(ranks), 3, holds_after(3)), Words(ranks));
    }
}

TEST_F(RankStartsTest, WhatWasMadeBeforeADirectoryCannotBeIsTakenBack) {
    zero::CoreOptions options;
    options.swap_directories = {run(), run() + "-none/beneath"};
    EXPECT_THROW(zero::RankDirectories(options, {0, 2}), Error);
    EXPECT_FALSE(fs::exists(run()));
}

// Its commits refuse the others, whenever they look.
TEST_F(RankStartsTest, WhoGoesOnIsNotRefusedForOthersThatBegin) {
    EXPECT_EQ(live(1, 2), nothing);
    fs::create_directory(run() + "/ranks-3");
    const store::StoreDirectory other(run() + "/ranks-3/0", "client");
    EXPECT_EQ(live(3, 4, holds_after(4)), nothing);
}

TEST_F(RankStartsTest, OfTwoAtOnceOneAtMostBeginsAndTheDirectoryIsOfUseAfterwards) {
    const std::uint64_t first = first_seed(), count = seed_count(12);
    std::uint64_t one = 0;
    for (std::uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
        SCOPED_TRACE(replay(seed));
        fs::remove_all(run());
        std::mt19937_64 random(mix(seed));
        const auto ranks = static_cast<std::uint32_t>(1 + random() % 3);
        const RankCourse courses[] = {of(ranks), of(1 + (ranks + random() % 2) % 3)};
        const auto delay = std::chrono::microseconds(random() % 3000);
        Words thrown[2];
        std::thread beside([&] { thrown[1] = begin(run(), courses[1], 2, {}); });
        std::this_thread::sleep_for(delay);
        thrown[0] = begin(run(), courses[0], 2, {});
        beside.join();
        EXPECT_FALSE(is_whole(thrown[0]) && is_whole(thrown[1]));
        for (const Words& each : thrown)
            for (const std::string& words : each) EXPECT_TRUE(words.empty() || is_refusal(words)) << words;
        const int next = is_whole(thrown[1]) ? 1 : 0;
        one += is_whole(thrown[next]) ? 1 : 0;
        course_.ranks = courses[next].ranks;
        EXPECT_EQ(begin(run(), courses[next], 4, holds_after(4)), Words(course_.ranks));
        course_.ranks = 2;
    }
    fmt::print(
        "RESULT rank_starts: {} times two numbers of ranks began at once on one directory: {} times one of them "
        "trained there, else none, and never two\n",
        count, one);
}

}  // namespace
}  // namespace penstock::testing
