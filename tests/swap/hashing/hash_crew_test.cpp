#include "swap/hashing/hash_crew.h"
#include "swap/store/blocking.h"
#include "swap/store/open_store.h"
#include "tests/aio/fakes/scratch.h"
#include "tests/swap/store/exercise.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <optional>

namespace penstock::testing {
namespace {

// A job of its own that begins again as often as it is told.
struct Hashed : aio::Transfer {
    void begin(aio::Io& its_io, store::TileHashers& its_hashers) {
        io = &its_io;
        hashers = &its_hashers;
        job.bytes = memory.span();
        job.transfer = this;
        again();
    }
    void again() noexcept {
        io->lend(*this);
        hashers->begin(job);
    }
    void done() noexcept override {
        right = right && job.hash == store::hash_tile(job.bytes, job.identity);
        ++job.identity.generation;
        ++dones;
        if (--left > 0) again();
    }

    explicit Hashed(std::size_t bytes) : memory(bytes) { aio::fill_random(memory.span(), bytes); }
    aio::ScratchMemory memory;
    aio::Io* io = nullptr;
    store::TileHashers* hashers = nullptr;
    store::HashJob job;
    int left = 1;
    int dones = 0;
    bool right = true;
};

class HashCrewTest : public ::testing::Test {
   protected:
    HashCrewTest() {
        for (std::size_t i = 0; i < 9; ++i) jobs.emplace_back(4096 << i);
    }
    aio::Io io{aio::make_thread_backend({}), {}};
    std::deque<Hashed> jobs;
};

TEST_F(HashCrewTest, HashesWhatTheStoreWouldAndGivesItBackFromTheLoop) {
    store::HashCrew crew(io, {.threads = 3});
    for (Hashed& job : jobs) {
        job.left = 50;
        job.begin(io, crew);
        EXPECT_EQ(job.dones, 0);
    }
    while (!io.idle()) io.wait(std::chrono::hours(1));
    for (const Hashed& job : jobs) {
        EXPECT_EQ(job.dones, 50);
        EXPECT_TRUE(job.right);
    }
}

TEST_F(HashCrewTest, TakesTilesFromTheLengthItWasTold) {
    const store::HashCrew crew(io, {.threads = 1, .least_bytes = 4096});
    EXPECT_FALSE(crew.take(4095));
    EXPECT_TRUE(crew.take(4096));
    EXPECT_TRUE(store::HashCrew(io, {.threads = 1}).take(store::long_hash_bytes));
    EXPECT_FALSE(store::HashCrew(io, {.threads = 1}).take(store::long_hash_bytes - 1));
}

// Nothing that was begun is left behind, and nothing is touched from then on.
TEST_F(HashCrewTest, EndsOnceAllThatWasBegunIsGivenBack) {
    for (int round = 0; round < 20; ++round) {
        {
            store::HashCrew crew(io, {.threads = 2});
            for (Hashed& job : jobs) job.begin(io, crew);
        }
        for (Hashed& job : jobs) {
            EXPECT_EQ(job.job.hash, store::hash_tile(job.job.bytes, job.job.identity));
            aio::fill_random(job.memory.span(), static_cast<std::uint64_t>(round));
            job.job.hash = store::hash_tile(job.job.bytes, job.job.identity);
        }
        io.poll();
        EXPECT_TRUE(io.idle());
        for (const Hashed& job : jobs) EXPECT_EQ(job.dones, round + 1);
    }
}

TEST_F(HashCrewTest, NobodyIsNoCrew) {
    EXPECT_DEATH(store::HashCrew(io, {.threads = 0}), "a crew of nobody");
}

// Stores that share an Io share its crew, and either may end first.
TEST(OpenStoreWithACrew, ItsTilesAreHashedByIt) {
    const TemporaryDirectory scratch;
    const Exercise exercise(7);
    const store::StoreIoOptions options{.hashing = {.threads = 2, .least_bytes = 1}};
    {
        store::OpenStore open({scratch.file("one")}, "test");
        open.start_io(options);
        store::TensorStore& store = open.create({.objects = Exercise::objects()});
        ASSERT_NE(store.hashers(), nullptr);
        EXPECT_TRUE(store.hashers()->take(1));
        for (std::uint64_t generation = 0; generation < 4; ++generation)
            ASSERT_FALSE(exercise.advance(open.io(), store, generation));
        std::optional<store::OpenStore> other(std::in_place, std::vector{scratch.file("two")}, "test");
        other->share_io(open);
        EXPECT_EQ(other->create({.objects = Exercise::objects()}).hashers(), store.hashers());
        ASSERT_FALSE(exercise.advance(other->io(), other->store(), 0));
        open = std::move(*other);
        EXPECT_EQ(exercise.difference(open.io(), open.store(), 0), "");
    }
    store::OpenStore again({scratch.file("one")}, "test");
    again.start_io({});
    const store::OpenOptions all{.verify = store::VerifyScope::all};
    EXPECT_EQ(again.open(all).hashers(), nullptr);  // unless it is asked for
    EXPECT_EQ(exercise.difference(again.io(), again.store(), 3), "");
}

}  // namespace
}  // namespace penstock::testing
