// swap/capi/penstock.h as a C program uses it: only what the header says.
#include "swap/capi/penstock.h"

#include "tests/swap/capi/c_caller.h"
#include "tests/swap/store/exercise.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <set>
#include <vector>

namespace penstock::testing {
namespace {

bool same(std::span<const std::byte> read, std::uint64_t seed, std::size_t logical_bytes) {
    std::vector<std::byte> wanted(read.size());
    aio::fill_random(wanted, seed);
    std::fill(wanted.begin() + static_cast<std::ptrdiff_t>(logical_bytes), wanted.end(), std::byte{0});
    return std::equal(read.begin(), read.end(), wanted.begin(), wanted.end());
}

// One bit of the first tile of the first object, as the newest generation has it.
void flip_newest_tile(const std::string& path) {
    store::StoreDirectory directory(path, "test");
    aio::Io io(aio::make_thread_backend({}), {});
    const store::TileLocation place = store::TensorStore::open(io, {&directory})->location({0, 0});
    flip_bit(place.path, place.offset_bytes);
}

std::size_t open_descriptors() {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

TEST(CApi, NamesItsVersionsAndEachStatus) {
    EXPECT_EQ(penstock_abi_version(), static_cast<std::uint32_t>(PENSTOCK_ABI_VERSION));
    EXPECT_NE(std::string(penstock_version()).find('.'), std::string::npos);
    std::set<std::string> names;
    for (const int status : {0, 1, 2, 3, 4, 5, 16, 17, 32, 33, 34, 35}) {
        names.insert(penstock_status_name(static_cast<penstock_status>(status)));
    }
    EXPECT_EQ(names.size(), 12U);
    EXPECT_STREQ(penstock_status_name(static_cast<penstock_status>(63)), "not a penstock_status");
}

TEST(CApi, ACommittedTensorIsThereInTheNextLife) {
    CCaller caller;
    ASSERT_EQ(caller.open(), PENSTOCK_OK) << caller.error.message;
    EXPECT_STREQ(caller.error.message, "");
    std::uint64_t generation = 99;
    EXPECT_EQ(penstock_generation(caller.store, &generation, nullptr), PENSTOCK_NOT_FOUND);
    EXPECT_EQ(penstock_written(caller.store, weights, nullptr), PENSTOCK_NOT_FOUND);
    EXPECT_EQ(caller.write(weights, 1), PENSTOCK_OK) << caller.message;
    EXPECT_EQ(caller.write(states, 2), PENSTOCK_OK) << caller.message;
    EXPECT_EQ(penstock_client_set(caller.store, "step", "7\0x", 3, nullptr), PENSTOCK_OK);
    EXPECT_EQ(caller.commit(), PENSTOCK_OK) << caller.message;
    EXPECT_EQ(caller.result.kind, PENSTOCK_COMMIT);

    penstock_store_options again = caller.options();
    again.objects = nullptr;
    again.object_count = 0;
    again.mode = PENSTOCK_OPEN;
    ASSERT_EQ(caller.open(again), PENSTOCK_OK) << caller.error.message;
    EXPECT_EQ(penstock_generation(caller.store, &generation, nullptr), PENSTOCK_OK);
    EXPECT_EQ(generation, 0U);
    EXPECT_EQ(penstock_written(caller.store, weights, nullptr), PENSTOCK_OK);
    aio::ScratchMemory memory(caller.bytes_of(weights));
    EXPECT_EQ(caller.read(weights, memory), PENSTOCK_OK) << caller.message;
    EXPECT_TRUE(same(memory.span(), 1, 100'000));
    const void* value = nullptr;
    std::size_t bytes = 0;
    ASSERT_EQ(penstock_client_get(caller.store, "step", &value, &bytes, nullptr), PENSTOCK_OK);
    EXPECT_EQ(std::string(static_cast<const char*>(value), bytes), std::string("7\0x", 3));
}

TEST(CApi, ClientValuesAreTheCommittedOnesUntilTheNextCommit) {
    CCaller caller;
    ASSERT_EQ(caller.open(), PENSTOCK_OK);
    const auto value = [&](const char* key) {
        const void* data = nullptr;
        std::size_t bytes = 0;
        const bool found = penstock_client_get(caller.store, key, &data, &bytes, nullptr) == PENSTOCK_OK;
        return found ? std::string(static_cast<const char*>(data), bytes) : std::string("none");
    };
    penstock_client_set(caller.store, "a", "1", 1, nullptr);
    penstock_client_set(caller.store, "b", "2", 1, nullptr);
    EXPECT_EQ(value("a"), "none");
    EXPECT_EQ(caller.commit(), PENSTOCK_OK);
    EXPECT_EQ(value("a") + value("b"), "12");
    penstock_client_set(caller.store, "a", nullptr, 0, nullptr);
    EXPECT_EQ(value("a"), "1");
    EXPECT_EQ(caller.commit(), PENSTOCK_OK);
    EXPECT_EQ(value("a") + value("b"), "none2") << "a key that is not set again stays";
    ASSERT_EQ(caller.open(), PENSTOCK_OK);
    penstock_client_set(caller.store, "c", "3", 1, nullptr);
    EXPECT_EQ(caller.commit(), PENSTOCK_OK);
    EXPECT_EQ(value("b") + value("c"), "23") << "also in the next life";
}

TEST(CApi, TilesAndRangesAreTheSameBytesAsTheWhole) {
    CCaller caller;
    ASSERT_EQ(caller.open(), PENSTOCK_OK);
    ASSERT_EQ(caller.write(weights, 3), PENSTOCK_OK) << caller.message;
    aio::ScratchMemory whole(caller.bytes_of(weights));
    ASSERT_EQ(caller.read(weights, whole), PENSTOCK_OK);
    for (const penstock_range range : {penstock_range{0, 0, 1}, {0, 6, 1}, {0, 2, 3}, {0, 5, 0}}) {
        aio::ScratchMemory part(caller.bytes_of(range));
        aio::fill_random(part.span(), 9);
        ASSERT_EQ(caller.read(range, part), PENSTOCK_OK) << caller.error.message;
        const auto from = whole.span().begin() + static_cast<std::ptrdiff_t>(range.first_tile) * 16'384;
        EXPECT_TRUE(std::equal(part.span().begin(), part.span().end(), from)) << "from tile " << range.first_tile;
    }
    EXPECT_EQ(caller.bytes_of(weights), 102'400U);
    EXPECT_EQ(caller.bytes_of({.object = 0, .first_tile = 6, .tile_count = 1}), 4'096U);
    EXPECT_EQ(caller.bytes_of({.object = 0, .first_tile = 5, .tile_count = 0}), 16'384U + 4'096U);
}

TEST(CApi, ATensorOfManyTilesIsOneOperation) {
    CCaller caller({{"many", 300 * 4096 + 17, 4096}});
    ASSERT_EQ(caller.open(), PENSTOCK_OK);
    EXPECT_EQ(caller.write({}, 5), PENSTOCK_OK) << caller.message;
    aio::ScratchMemory memory(caller.bytes_of({}));
    EXPECT_EQ(caller.read({}, memory), PENSTOCK_OK) << caller.message;
    EXPECT_TRUE(same(memory.span(), 5, 300 * 4096 + 17));
}

TEST(CApi, SaysWhatTheStoreHolds) {
    CCaller caller;
    ASSERT_EQ(caller.open(), PENSTOCK_OK);
    auto info = sized<penstock_object_info>();
    EXPECT_EQ(penstock_object_count(caller.store), 2U);
    ASSERT_EQ(penstock_find(caller.store, "states", &info, nullptr), PENSTOCK_OK);
    EXPECT_EQ(info.object, 1U);
    ASSERT_EQ(penstock_object_at(caller.store, 1, &info, nullptr), PENSTOCK_OK);
    EXPECT_STREQ(info.name, "states");
    EXPECT_EQ(info.bytes, 5'000U);
    EXPECT_EQ(info.tile_bytes, 4U << 20) << "the default";
    EXPECT_EQ(info.tile_count, 1U);
    EXPECT_EQ(info.memory_bytes, 8'192U);
    EXPECT_EQ(penstock_alignment(caller.store), 4'096U);
    EXPECT_NE(std::string(penstock_backend_name(caller.store)), "");
}

TEST(CApi, EachOperationHasOneResultWithItsUsersPointer) {
    CCaller caller;
    ASSERT_EQ(caller.open(), PENSTOCK_OK);
    const aio::ScratchMemory memory(7 * 16'384);
    std::set<void*> users;
    for (std::uint32_t tile = 0; tile < 7; ++tile) {
        std::byte* part = memory.data() + tile * 16'384;
        const penstock_range range{.object = 0, .first_tile = tile, .tile_count = 1};
        ASSERT_EQ(penstock_write(caller.store, range, {part, 16'384, nullptr}, PENSTOCK_DEMAND, part, &caller.error),
                  PENSTOCK_OK)
            << caller.error.message;
    }
    while (penstock_next(caller.store, -1, &caller.result, nullptr) == PENSTOCK_OK) {
        EXPECT_EQ(caller.result.status, PENSTOCK_OK);
        EXPECT_EQ(caller.result.kind, PENSTOCK_WRITE);
        EXPECT_STREQ(caller.result.message, "");
        EXPECT_EQ(caller.result.memory_lost, 0);
        EXPECT_TRUE(users.insert(caller.result.user).second) << "twice";
    }
    EXPECT_EQ(users.size(), 7U);
}

TEST(CApi, LeasesComeFromAPoolAndGoBack) {
    CCaller caller;
    ASSERT_EQ(caller.open(), PENSTOCK_OK);
    penstock_pool* pool = nullptr;
    ASSERT_EQ(penstock_pool_create(128 << 10, &pool, &caller.error), PENSTOCK_OK) << caller.error.message;
    for (int round = 0; round < 3; ++round) {
        penstock_lease* lease = nullptr;
        ASSERT_EQ(penstock_lease_acquire(pool, 100'000, &lease, &caller.error), PENSTOCK_OK) << caller.error.message;
        const penstock_memory memory = penstock_lease_memory(lease);
        EXPECT_GE(memory.bytes, 100'000U);
        ASSERT_EQ(penstock_write(caller.store, weights, memory, PENSTOCK_URGENCY_DEFAULT, nullptr, &caller.error),
                  PENSTOCK_OK)
            << caller.error.message;
        penstock_lease_release(lease);  // the operation keeps the memory until it has ended
        EXPECT_EQ(caller.finish(), PENSTOCK_OK);
    }
    EXPECT_EQ(penstock_pool_destroy(pool, &caller.error), PENSTOCK_OK) << caller.error.message;
}

TEST(CApi, TwoStoresAreIndependent) {
    CCaller one;
    CCaller other;
    ASSERT_EQ(one.open(), PENSTOCK_OK);
    ASSERT_EQ(other.open(), PENSTOCK_OK);
    ASSERT_EQ(one.write(weights, 1), PENSTOCK_OK);
    ASSERT_EQ(other.write(weights, 2), PENSTOCK_OK);
    ASSERT_EQ(one.commit(), PENSTOCK_OK);
    std::uint64_t generation = 0;
    EXPECT_EQ(penstock_generation(other.store, &generation, nullptr), PENSTOCK_NOT_FOUND);
    one.end();
    aio::ScratchMemory memory(other.bytes_of(weights));
    ASSERT_EQ(other.read(weights, memory), PENSTOCK_OK);
    EXPECT_TRUE(same(memory.span(), 2, 100'000));
}

TEST(CApi, ShortLivesLeaveNoDescriptorBehind) {
    CCaller caller;
    ASSERT_EQ(caller.open(), PENSTOCK_OK);
    caller.end();
    const std::size_t before = open_descriptors();
    for (int life = 0; life < 20; ++life) {
        ASSERT_EQ(caller.open(), PENSTOCK_OK) << caller.error.message;
        ASSERT_EQ(caller.write(states, 1), PENSTOCK_OK);
        ASSERT_EQ(caller.commit(), PENSTOCK_OK);
        penstock_commit(caller.store, nullptr, nullptr);
        while (penstock_next(caller.store, 0, &caller.result, nullptr) == PENSTOCK_TIMEOUT) continue;
        caller.end();
    }
    EXPECT_EQ(open_descriptors(), before);
}

TEST(CApi, SeveralDirectoriesAreOneStore) {
    CCaller caller;
    caller.directories.push_back(caller.scratch.file("second"));
    ASSERT_EQ(caller.open(), PENSTOCK_OK) << caller.error.message;
    ASSERT_EQ(caller.write(weights, 4), PENSTOCK_OK);
    ASSERT_EQ(caller.commit(), PENSTOCK_OK);
    EXPECT_GT(std::filesystem::file_size(caller.scratch.file("second") + "/data"), 100'000U);
    ASSERT_EQ(caller.open(), PENSTOCK_OK) << caller.error.message;
    aio::ScratchMemory memory(caller.bytes_of(weights));
    EXPECT_EQ(caller.read(weights, memory), PENSTOCK_OK);
    EXPECT_TRUE(same(memory.span(), 4, 100'000));
}

TEST(CApi, DirectoriesGetTilesInProportionToTheirBandwidths) {
    CCaller caller({{"weights", 64 * 16'384, 16'384}});
    caller.directories.push_back(caller.scratch.file("second"));
    const double bandwidths[] = {1.0, 3.0};
    penstock_store_options options = caller.options();
    options.bandwidths = bandwidths;
    ASSERT_EQ(caller.open(options), PENSTOCK_OK) << caller.error.message;
    const auto data_bytes = [&](const std::string& name) {
        return std::filesystem::file_size(caller.scratch.file(name) + "/data");
    };
    EXPECT_EQ(data_bytes("second"), 3 * data_bytes("store"));
}

TEST(CApi, AScratchStoreCommitsNothingAndIsMadeAnew) {
    CCaller caller;
    penstock_store_options options = caller.options();
    options.durability = PENSTOCK_SCRATCH;
    for (int life = 0; life < 2; ++life) {
        ASSERT_EQ(caller.open(options), PENSTOCK_OK) << caller.error.message;
        EXPECT_EQ(penstock_written(caller.store, weights, nullptr), PENSTOCK_NOT_FOUND);
        ASSERT_EQ(caller.write(weights, 5), PENSTOCK_OK);
        aio::ScratchMemory memory(caller.bytes_of(weights));
        EXPECT_EQ(caller.read(weights, memory), PENSTOCK_OK);
        EXPECT_TRUE(same(memory.span(), 5, 100'000));
        EXPECT_REFUSED(PENSTOCK_USAGE, "scratch", penstock_commit(caller.store, nullptr, &error));
    }
    ASSERT_EQ(caller.open(), PENSTOCK_OK) << caller.error.message;  // a durable one in its place
    ASSERT_EQ(caller.write(weights, 6), PENSTOCK_OK);
    ASSERT_EQ(caller.commit(), PENSTOCK_OK);
    EXPECT_EQ(caller.open(options), PENSTOCK_USAGE);
    EXPECT_NE(std::string(caller.error.message).find("durable"), std::string::npos) << caller.error.message;
    EXPECT_EQ(caller.open(), PENSTOCK_OK) << caller.error.message;
}

TEST(CApi, VerifyingAtTheStartGoesBackWhereTheNewestIsDamaged) {
    CCaller caller({{"weights", 50'000, 16'384}});
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        ASSERT_EQ(caller.open(), PENSTOCK_OK) << caller.error.message;
        ASSERT_EQ(caller.write(weights, seed), PENSTOCK_OK);
        ASSERT_EQ(caller.commit(), PENSTOCK_OK);
    }
    caller.end();
    flip_newest_tile(caller.directory());
    penstock_store_options options = caller.options();
    options.verify = PENSTOCK_VERIFY_ALL;
    const penstock_object other{"others", 50'000, 16'384};
    options.objects = &other;
    EXPECT_EQ(caller.open(options), PENSTOCK_USAGE) << "refused before the damaged generation is given up";
    options.objects = caller.objects.data();
    std::uint64_t told = 0;
    options.progress = [](std::uint64_t done, std::uint64_t, void* user) { *static_cast<std::uint64_t*>(user) = done; };
    options.progress_user = &told;
    ASSERT_EQ(caller.open(options), PENSTOCK_OK) << caller.error.message;
    EXPECT_GT(told, 0U);
    std::uint64_t generation = 99;
    ASSERT_EQ(penstock_generation(caller.store, &generation, nullptr), PENSTOCK_OK);
    EXPECT_EQ(generation, 0U);
    ASSERT_NE(penstock_note(caller.store, 0), nullptr);
    aio::ScratchMemory memory(caller.bytes_of(weights));
    EXPECT_EQ(caller.read(weights, memory), PENSTOCK_OK);
    EXPECT_TRUE(same(memory.span(), 1, 50'000));
}

TEST(CApi, CreationTellsItsProgress) {
    CCaller caller;
    penstock_store_options options = caller.options();
    std::vector<std::uint64_t> told;
    options.progress = [](std::uint64_t written, std::uint64_t total, void* user) {
        static_cast<std::vector<std::uint64_t>*>(user)->push_back(total - written);
    };
    options.progress_user = &told;
    ASSERT_EQ(caller.open(options), PENSTOCK_OK);
    ASSERT_FALSE(told.empty());
    EXPECT_EQ(told.back(), 0U);
}

// ---------------------------------------------------------------- the descriptor

class CApiEvent : public ::testing::TestWithParam<penstock_backend> {
   protected:
    static bool readable(const penstock_store* store, int timeout_ms) {
        pollfd asked = {.fd = penstock_event_fd(store), .events = POLLIN, .revents = 0};
        int answers = 0;
        do {
            answers = ::poll(&asked, 1, timeout_ms);
        } while (answers < 0 && errno == EINTR);
        return answers == 1;
    }
    // With nothing in flight, calls end what is readable; the kernel may signal a moment after a completion was seen.
    static bool becomes_quiet(CCaller& caller) {
        for (int calls = 0; readable(caller.store, 0); ++calls) {
            if (calls == 100'000) return false;
            EXPECT_EQ(penstock_next(caller.store, 0, &caller.result, nullptr), PENSTOCK_IDLE);
        }
        return true;
    }
};

TEST_P(CApiEvent, WakesAnEventLoopUntilNothingIsLeft) {
    CCaller caller({{"weights", 8 << 20, 1 << 20}});
    penstock_store_options options = caller.options();
    options.backend = GetParam();
    if (caller.open(options) != PENSTOCK_OK) GTEST_SKIP() << caller.error.message;
    EXPECT_TRUE(becomes_quiet(caller));
    const aio::ScratchMemory memory(8 << 20);
    for (int round = 0; round < 5; ++round) {
        ASSERT_EQ(penstock_write(caller.store, {}, memory_of(memory), PENSTOCK_URGENCY_DEFAULT, nullptr, nullptr),
                  PENSTOCK_OK);
        penstock_status status = PENSTOCK_TIMEOUT;
        while (status == PENSTOCK_TIMEOUT) {
            ASSERT_TRUE(readable(caller.store, 60'000));
            status = penstock_next(caller.store, 0, &caller.result, nullptr);
        }
        EXPECT_EQ(status, PENSTOCK_OK);
        EXPECT_EQ(caller.result.status, PENSTOCK_OK) << caller.result.message;
        EXPECT_EQ(penstock_next(caller.store, 0, &caller.result, nullptr), PENSTOCK_IDLE);
        EXPECT_TRUE(becomes_quiet(caller));
    }
}

TEST_P(CApiEvent, StaysReadableWhileResultsWait) {
    CCaller caller;
    penstock_store_options options = caller.options();
    options.backend = GetParam();
    if (caller.open(options) != PENSTOCK_OK) GTEST_SKIP() << caller.error.message;
    const aio::ScratchMemory memory(2 * 16'384);
    for (std::uint32_t tile = 0; tile < 2; ++tile) {
        const penstock_memory part{memory.data() + tile * 16'384, 16'384, nullptr};
        ASSERT_EQ(penstock_write(caller.store, {0, tile, 1}, part, PENSTOCK_DEMAND, nullptr, nullptr), PENSTOCK_OK);
    }
    ASSERT_EQ(penstock_next(caller.store, -1, &caller.result, nullptr), PENSTOCK_OK);
    EXPECT_TRUE(readable(caller.store, 60'000)) << "the second one is there or comes";
    ASSERT_EQ(penstock_next(caller.store, -1, &caller.result, nullptr), PENSTOCK_OK);
    EXPECT_EQ(penstock_next(caller.store, -1, &caller.result, nullptr), PENSTOCK_IDLE);
}

INSTANTIATE_TEST_SUITE_P(All, CApiEvent,
                         ::testing::Values(PENSTOCK_BACKEND_IO_URING, PENSTOCK_BACKEND_LIBAIO,
                                           PENSTOCK_BACKEND_THREADS));

}  // namespace
}  // namespace penstock::testing
