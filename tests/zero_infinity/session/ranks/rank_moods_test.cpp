// Ranks whose drives stop now and then, each at times of its own: what they post is a function of what they compute.
#include "aio/backend.h"
#include "tests/seeds.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/ranks/thread_ranks.h"
#include "tests/zero_infinity/session/moody_backend.h"
#include "tests/zero_infinity/session/ranks/ranked_loop.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

// A way to drives that one rank alone has.
zero::SessionSeams moody(std::uint64_t seed, std::uint32_t rank) {
    std::mt19937_64 random(mix(seed) + rank);
    const Moods moods{.stops_percent = static_cast<int>(random() % 30),
                      .stop = std::chrono::microseconds(random() % 3000)};
    zero::SessionSeams seams;
    seams.backend = [moods, seed, rank](const store::StoreDirectory&) {
        auto device = aio::make_thread_backend({.depth = 16, .threads_per_device = 1});
        return aio::ChosenBackend{std::make_unique<MoodyBackend>(std::move(device), moods, mix(seed + rank)), {}};
    };
    return seams;
}

RankCourse course_of(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    RankCourse course{.ranks = static_cast<std::uint32_t>(2 + random() % 3), .steps = 4, .passes = 1 + random() % 3};
    Setting& setting = course.setting;
    if (random() % 2 == 0) setting.device = zero::DeviceKind::emulated;
    if (random() % 2 == 0) setting.residency.states = zero::Tier::host;
    if (random() % 2 == 0) setting.sum_order = zero::SumOrder::ranks_first;
    if (random() % 2 == 0) setting.unused = zero::Unused::skipped;
    setting.durability.commit_steps = 1 + random() % 3;
    setting.depth = static_cast<std::uint32_t>(1 + random() % 3);
    return course;
}

TEST(RankMoods, PostTheSameCallsAndHaveTheLoopsBits) {
    const std::uint64_t first = first_seed(), count = seed_count(4);
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        SCOPED_TRACE(replay(seed));
        const RankCourse course = course_of(mix(seed));
        const RankedLoop loop = plain(course);
        const TemporaryDirectory parent;
        const ThreadMoods moods{.seed = seed, .most_delay = std::chrono::microseconds(seed % 3 == 0 ? 0 : 200)};
        ThreadRanks control(course.ranks, moods), bulk(course.ranks, moods);
        std::vector<int> right(course.ranks);
        const auto thrown = run_ranks(course.ranks, [&](std::uint32_t rank) {
            zero::SessionSeams seams = moody(seed, rank);
            seams.ranks = {&control.of(rank), &bulk.of(rank)};
            Client client(parent / "swap", course.setting, seams);
            train_rank(client, course, 1, course.steps, rank);
            right[rank] = client.state() == loop.parameters();
        });
        ASSERT_EQ(thrown, std::vector<std::string>(course.ranks));
        ASSERT_EQ(control.mismatch() + bulk.mismatch(), "");
        ASSERT_EQ(right, std::vector<int>(course.ranks, 1));
    }
    fmt::print("RESULT rank_moods: {} runs of 2 to 4 ranks over drives of unlike moods: the same calls, equal bits\n",
               count);
}

}  // namespace
}  // namespace penstock::testing
