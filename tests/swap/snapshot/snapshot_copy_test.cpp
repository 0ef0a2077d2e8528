#include "swap/snapshot/snapshot_copy.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"

#include "pinned_pool/budget.h"
#include "swap/directory/snapshot_list.h"
#include "swap/directory/store_files.h"
#include "swap/store/blocking.h"
#include "tests/aio/fakes/faulty_backend.h"
#include "tests/seeds.h"
#include "tests/swap/power/power_device.h"
#include "tests/swap/store/moving_store.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>

namespace penstock::testing {
namespace {

constexpr std::size_t longest_extent = 16'384;

class SnapshotCopyTest : public ::testing::Test {
   protected:
    std::unique_ptr<store::TensorStore> create(store::StoreKind kind = store::StoreKind::durable) {
        return store::TensorStore::create(io, {&directory}, {.objects = MovingStore::objects(), .kind = kind});
    }
    std::unique_ptr<store::SnapshotCopy> keep(store::TensorStore& store, std::size_t lanes = 2) {
        return std::make_unique<store::SnapshotCopy>(
            store, create_snapshot(io, store, snapshot_directory, aio::Caching::direct),
            memory.span().first(lanes * longest_extent));
    }
    void finish(const store::SnapshotCopy& copying) {
        while (!copying.finished()) io.wait(std::chrono::seconds(1));
    }
    // What a new process finds in the kept store.
    std::string kept_difference(const TileSeeds& seeds, const store::ClientState& client) {
        const auto copy = store::TensorStore::open(io, {&snapshot_directory}, {.verify = store::VerifyScope::all});
        if (copy->kind() != store::StoreKind::snapshot) return "it is no kept store";
        if (copy->client() != client) return "the client's state";
        return difference(io, *copy, seeds);
    }

    TemporaryDirectory scratch{aio::quick_temporary_path()};
    store::StoreDirectory directory{scratch.file("store"), "test"};
    store::StoreDirectory snapshot_directory{scratch.file("kept"), "test"};
    PowerDevice device{1};
    aio::Io io{device.backend(), {}};
    aio::ScratchMemory memory{8 * longest_extent};
};

TEST_F(SnapshotCopyTest, ACopyOfAStoreAtRestIsThatGenerationAndNamesItsOrigin) {
    auto store = create();
    MovingStore moving(io, *store, 1);
    for (int i = 0; i < 3; ++i) ASSERT_FALSE(moving.round());
    auto copying = keep(*store);
    finish(*copying);
    ASSERT_FALSE(copying->error()) << copying->error()->message;
    EXPECT_EQ(copying->copied_bytes(), copying->total_bytes());
    EXPECT_GE(copying->total_bytes(), 209'004U);
    copying.reset();
    EXPECT_EQ(kept_difference(moving.committed(), moving.client()), "");
    const auto copy = store::TensorStore::open(io, {&snapshot_directory});
    EXPECT_EQ(copy->origin(), (store::Origin{.store = store->uuid(), .generation = 2}));
    EXPECT_NE(copy->uuid(), store->uuid());
}

// The order of the writes, the order in which the device answers and the memory of the copy are drawn from the seed.
class MovingSnapshotCopyTest : public ::testing::TestWithParam<store::StoreKind> {};

void keep_while_all_moves(store::StoreKind kind, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const TemporaryDirectory scratch(aio::quick_temporary_path());
    store::StoreDirectory directory(scratch.file("store"), "test");
    store::StoreDirectory snapshot_directory(scratch.file("kept"), "test");
    aio::Io io(std::make_unique<aio::FaultyBackend>(aio::make_thread_backend({}),
                                                    aio::FaultChances{.short_transfer = 20, .delay = 40}, 1, seed),
               {.tries = 64});  // of a tile of one block each eighth in a row would fail, once in some hundred thousand
    auto store = store::TensorStore::create(io, {&directory}, {.objects = MovingStore::objects(), .kind = kind});
    MovingStore moving(io, *store, seed);
    const auto round = [&] { return kind == store::StoreKind::scratch ? moving.write_round() : moving.round(); };
    for (std::uint64_t i = 0; i < 1 + random() % 3; ++i) ASSERT_FALSE(round());
    if (kind == store::StoreKind::durable) {
        ASSERT_FALSE(moving.write_round(5));  // finished, and not yet committed
    }
    const TileSeeds pinned = kind == store::StoreKind::scratch ? moving.newest() : moving.committed();
    const store::ClientState client = store->client();
    auto copy = create_snapshot(io, *store, snapshot_directory, aio::Caching::direct);
    const aio::ScratchMemory memory((1 + random() % 3) * longest_extent);
    std::optional<store::SnapshotCopy> copying(std::in_place, *store, std::move(copy), memory.span());
    for (int i = 0; i < 3 || !copying->finished(); ++i) {
        const auto error = round();
        ASSERT_FALSE(error) << error->message;
    }
    ASSERT_FALSE(copying->error()) << copying->error()->message;
    copying.reset();
    EXPECT_EQ(difference(io, *store, moving.newest()), "");
    const auto kept = store::TensorStore::open(io, {&snapshot_directory}, {.verify = store::VerifyScope::all});
    EXPECT_EQ(difference(io, *kept, pinned), "");
    EXPECT_EQ(kept->client(), client);
}

TEST_P(MovingSnapshotCopyTest, ACopyIsItsGenerationBitForBitWhileAllTilesAreRewritten) {
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(20); ++seed) {
        SCOPED_TRACE(replay(seed));
        keep_while_all_moves(GetParam(), seed);
        if (HasFatalFailure() || HasNonfatalFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Kinds, MovingSnapshotCopyTest,
                         ::testing::Values(store::StoreKind::durable, store::StoreKind::scratch), [](const auto& kind) {
                             return kind.param == store::StoreKind::durable ? "Durable" : "Scratch";
                         });

TEST_F(SnapshotCopyTest, ATileThatAWriteWaitsForIsCopiedBeforeAllOthers) {
    auto store = create(store::StoreKind::scratch);
    MovingStore moving(io, *store, 1);
    ASSERT_FALSE(moving.write_round());
    const TileSeeds pinned = moving.newest();
    std::vector<std::uint64_t> reads;  // offsets
    device.hook = [&](const aio::Attempt& attempt, const std::string& path) -> std::optional<std::int32_t> {
        if (attempt.kind == aio::IoKind::read && path == directory.path() + "/data")
            reads.push_back(attempt.offset_bytes);
        return std::nullopt;
    };
    auto copying = keep(*store, 1);
    const store::TileId last{1, 9};
    const std::uint64_t offset = store->location(last).offset_bytes;
    TestTile write;
    aio::ScratchMemory bytes(store->extent_bytes(last));
    aio::fill_random(bytes.span(), 77);
    store->write(write, last, bytes.span(), aio::Urgency::write_back);
    finish(*copying);
    while (!write.idle()) io.wait(std::chrono::seconds(1));
    ASSERT_GT(reads.size(), 10U);
    EXPECT_EQ(reads[1], offset);  // the first was under way
    EXPECT_TRUE(std::is_sorted(reads.begin() + 2, reads.end()));
    EXPECT_FALSE(copying->error());
    copying.reset();
    EXPECT_FALSE(write.error());
    EXPECT_EQ(kept_difference(pinned, {}), "");
    ASSERT_FALSE(read_tile(io, *store, last, bytes.span()));
}

// Writes one tile again and again, so that something always waits on the device.
struct Busy final : store::TileOperation {
    Busy(store::TensorStore& used, store::TileId written)
        : store(used), id(written), memory(used.extent_bytes(written)) {}
    void start() { store.write(*this, id, memory.span(), aio::Urgency::write_back); }
    void tile_done() noexcept override {
        if (!stopped) start();
    }
    store::TensorStore& store;
    store::TileId id;
    aio::ScratchMemory memory;
    bool stopped = false;
};

TEST_F(SnapshotCopyTest, AWriteThatWaitsForATileIsNotStarvedByOthersOnABusyDevice) {
    aio::IoLimits limits{.chunk_bytes = 4096};
    limits.in_flight = {.read_bytes = 65'536,
                        .prefetch_bytes = 16'384,
                        .write_bytes = 4096,
                        .write_back_bytes = 4096,
                        .throttled_bytes = 4096,
                        .scrub_bytes = 4096};
    aio::Io narrow(device.backend(), limits);
    auto store = store::TensorStore::create(narrow, {&directory},
                                            {.objects = MovingStore::objects(), .kind = store::StoreKind::scratch});
    MovingStore moving(narrow, *store, 1);
    ASSERT_FALSE(moving.write_round());
    const TileSeeds pinned = moving.newest();
    std::optional<store::SnapshotCopy> copying(
        std::in_place, *store, create_snapshot(narrow, *store, snapshot_directory, aio::Caching::direct),
        memory.span().first(longest_extent));
    std::deque<Busy> busy;  // on tiles that were never written, so not pinned
    for (std::uint32_t tile = 0; tile < 3; ++tile) busy.emplace_back(*store, store::TileId{3, tile}).start();
    TestTile write;
    aio::ScratchMemory bytes(store->extent_bytes({1, 9}));
    store->write(write, {1, 9}, bytes.span(), aio::Urgency::write_back);
    for (int i = 0; i < 10'000 && !write.idle(); ++i) narrow.poll();
    EXPECT_TRUE(write.idle());
    for (int i = 0; i < 1000; ++i) narrow.poll();
    EXPECT_FALSE(copying->finished());  // the rest leaves the device to those that wait
    for (Busy& one : busy) one.stopped = true;
    while (!copying->finished() || !write.idle()) narrow.wait(std::chrono::seconds(1));
    EXPECT_FALSE(copying->error());
    copying.reset();
    EXPECT_EQ(kept_difference(pinned, {}), "");
}

TEST_F(SnapshotCopyTest, AnErrorOfTheDeviceEndsTheCopyAndTheStoreGoesOn) {
    for (const char* where : {"/kept/data", "/kept/manifest.0", "/store/data"}) {
        SCOPED_TRACE(where);
        auto store = directory.content() == store::DirectoryContent::committed
                         ? store::TensorStore::open(io, {&directory})
                         : create();
        MovingStore moving(io, *store, 1);
        for (int i = 0; i < 2; ++i) ASSERT_FALSE(moving.round());
        const bool reading = std::string_view(where) == "/store/data";
        auto copy = create_snapshot(io, *store, snapshot_directory, aio::Caching::direct);
        int left = 5;
        device.hook = [&](const aio::Attempt& attempt, const std::string& path) -> std::optional<std::int32_t> {
            const bool struck = path.find(where) != std::string::npos && (attempt.kind == aio::IoKind::read) == reading;
            return struck && (reading || path.find("data") == std::string::npos || --left < 0) ? std::optional(-EIO)
                                                                                               : std::nullopt;
        };
        store::SnapshotCopy copying(*store, std::move(copy), memory.span());
        finish(copying);
        device.hook = {};
        ASSERT_TRUE(copying.error());
        EXPECT_NE(copying.error()->message.find("generation"), std::string::npos) << copying.error()->message;
        EXPECT_NE(copying.error()->message.find(where), std::string::npos) << copying.error()->message;
        for (int i = 0; i < 3; ++i) ASSERT_FALSE(moving.round());
        EXPECT_EQ(difference(io, *store, moving.newest()), "");
        EXPECT_EQ(snapshot_directory.content(), store::DirectoryContent::unfinished);
    }
}

TEST_F(SnapshotCopyTest, StoppingEndsTheCopyUncommittedAndReleasesWaitingWrites) {
    auto store = create();
    MovingStore moving(io, *store, 1);
    for (int i = 0; i < 2; ++i) ASSERT_FALSE(moving.round());
    auto copying = keep(*store, 1);
    EXPECT_DEATH(copying.reset(), "before it has finished");
    copying->stop();
    int copied = 0;
    device.hook = [&](const aio::Attempt& attempt, const std::string& path) -> std::optional<std::int32_t> {
        if (attempt.kind == aio::IoKind::write && path == snapshot_directory.path() + "/data") ++copied;
        return std::nullopt;
    };
    for (int i = 0; i < 3; ++i) ASSERT_FALSE(moving.round());
    finish(*copying);
    device.hook = {};
    EXPECT_EQ(copied, 0);
    ASSERT_TRUE(copying->error());
    EXPECT_NE(copying->error()->message.find("stopped"), std::string::npos) << copying->error()->message;
    EXPECT_LT(copying->copied_bytes(), copying->total_bytes());
    EXPECT_EQ(snapshot_directory.content(), store::DirectoryContent::unfinished);
    copying.reset();
    copying = keep(*store);  // over what the stopped one left
    finish(*copying);
    EXPECT_FALSE(copying->error());
    copying.reset();
    EXPECT_EQ(kept_difference(moving.committed(), moving.client()), "");
}

TEST_F(SnapshotCopyTest, AKeeperOfAnAbandonedStoreIsLeftToTheDevice) {
    auto store = create();
    MovingStore moving(io, *store, 1);
    ASSERT_FALSE(moving.round());
    const auto leave_and_exit = [&] {
        auto copying = keep(*store);
        io.poll();  // what was read is being written to the copy
        store->abandon();
        copying.reset();
        store.reset();
        for (int i = 0; i < 10; ++i) io.poll();
        std::_Exit(7);
    };
    EXPECT_EXIT(leave_and_exit(), ::testing::ExitedWithCode(7), "");
}

TEST_F(SnapshotCopyTest, ACopyForAnotherGenerationIsRefused) {
    auto store = create();
    MovingStore moving(io, *store, 1);
    ASSERT_FALSE(moving.round());
    auto copy = create_snapshot(io, *store, snapshot_directory, aio::Caching::direct);
    ASSERT_FALSE(moving.round());
    EXPECT_DEATH(store::SnapshotCopy(*store, std::move(copy), memory.span()),
                 "made for generation 0, and 1 is the newest");
}

// ---------------------------------------------------------------- copy_tiles

TEST_F(SnapshotCopyTest, ARunGoesBackToASnapshotByCopyAndCommit) {
    auto store = create();
    MovingStore moving(io, *store, 1);
    for (int i = 0; i < 2; ++i) ASSERT_FALSE(moving.round());
    const TileSeeds kept = moving.committed();
    const store::ClientState client = moving.client();
    {
        const auto copying = keep(*store);
        finish(*copying);
    }
    for (int i = 0; i < 3; ++i) ASSERT_FALSE(moving.round());
    const auto snapshot = store::TensorStore::open(io, {&snapshot_directory});
    std::uint64_t last = 0;
    std::uint64_t total = 1;
    copy_tiles(io, *snapshot, *store, [&](std::uint64_t done, std::uint64_t all) {
        EXPECT_GT(done, last);
        last = done;
        total = all;
    });
    EXPECT_EQ(last, total);
    // Uncommitted: a kill here changes nothing.
    store.reset();
    store = store::TensorStore::open(io, {&directory});
    EXPECT_EQ(difference(io, *store, moving.committed()), "");
    copy_tiles(io, *snapshot, *store, {});
    ASSERT_FALSE(commit(io, *store, snapshot->client()));
    store.reset();
    store = store::TensorStore::open(io, {&directory}, {.verify = store::VerifyScope::all});
    EXPECT_EQ(store->generation(), 5U);
    EXPECT_EQ(store->client(), client);
    EXPECT_EQ(difference(io, *store, kept), "");
}

TEST_F(SnapshotCopyTest, ACopyOfASnapshotKeepsTheOriginOfTheFirst) {
    auto store = create();
    MovingStore moving(io, *store, 1);
    ASSERT_FALSE(moving.round());
    finish(*keep(*store));
    const auto first = store::TensorStore::open(io, {&snapshot_directory});
    store::StoreDirectory second_directory(scratch.file("second"), "test");
    const auto second = create_snapshot(io, *first, second_directory, aio::Caching::direct);
    EXPECT_EQ(second->origin(), first->origin());
    EXPECT_EQ(second->origin()->store, store->uuid());
}

TEST_F(SnapshotCopyTest, CopyingBetweenDifferentStoresNamesTheDifference) {
    auto store = create();
    auto other = MovingStore::objects();
    other[1].tile_bytes = 8192;
    const auto copy = store::TensorStore::create(io, {&snapshot_directory}, {.objects = other});
    try {
        copy_tiles(io, *store, *copy, {});
        FAIL() << "the difference was not seen";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::usage);
        const std::string message = error.what();
        EXPECT_NE(message.find("number 2 is 'a.states' of 150001 bytes in tiles of 16384"), std::string::npos)
            << message;
        EXPECT_NE(message.find("in tiles of 8192"), std::string::npos) << message;
    }
}

// A store of one tile that was never written, in files that are one hole.
void forge(store::StoreDirectory& directory, std::uint64_t tile_bytes) {
    directory.assign({.store = directory.uuid(), .device = 0, .device_count = 1});
    store::Manifest manifest;
    manifest.store = directory.uuid();
    manifest.incarnation = 1;
    manifest.objects = {{"long", tile_bytes, tile_bytes}};
    manifest.tiles.resize(1);
    const store::Layout layout(manifest.objects, manifest.geometry);
    const auto files = store::StoreFiles::make({&directory}, aio::Caching::buffered, std::chrono::seconds(1));
    fit_manifests(files, layout);
    ASSERT_EQ(::ftruncate(files.data[0].fd(), static_cast<off_t>(layout.device_bytes(0))), 0);
    std::vector<std::byte> place(manifest_capacity(layout));
    encode(manifest, place);
    for (const std::size_t offset : {std::size_t{0}, place.size()})
        ASSERT_GT(::pwrite(files.manifests[0].fd(), place.data(), place.size(), static_cast<off_t>(offset)), 0);
}

std::uint64_t address_space_bytes() {
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * 4096;
}

// A manifest may say any length of a tile: without the refusal the machine would be out of memory for all. (A sanitizer
// has taken terabytes of addresses beforehand and cannot be limited.)
TEST_F(SnapshotCopyTest, ATileThatMemoryHasNoRoomForIsRefused) {
    const std::uint64_t tile_bytes = pool::MachineMemory::read().available_bytes / 4096 * 4096;
    forge(directory, tile_bytes);
    forge(snapshot_directory, tile_bytes);
    const auto copy = [&] {
        const rlimit little{.rlim_cur = 8ULL << 30, .rlim_max = 8ULL << 30};
        if (address_space_bytes() < little.rlim_cur && ::setrlimit(RLIMIT_AS, &little) != 0) std::_Exit(2);
        aio::Io its_io(aio::make_thread_backend({}), {});
        const store::OpenOptions options{.caching = aio::Caching::buffered};
        const auto from = store::TensorStore::open(its_io, {&directory}, options);
        const auto to = store::TensorStore::open(its_io, {&snapshot_directory}, options);
        try {
            copy_tiles(its_io, *from, *to, {});
        } catch (const Error& error) {
            std::cerr << error.what() << std::endl;
            std::_Exit(static_cast<int>(error.code()));
        }
        std::_Exit(0);
    };
    EXPECT_EXIT(copy(), ::testing::ExitedWithCode(static_cast<int>(ExitCode::does_not_fit)),
                "copying tiles of up to " + std::to_string(tile_bytes) + " bytes takes .* are left");
    EXPECT_THROW(store::check_memory_for_tiles(4 * tile_bytes, 4 * tile_bytes), Error);
    EXPECT_NO_THROW(store::check_memory_for_tiles(4096, 4096));
}

TEST_F(SnapshotCopyTest, ACopyThatCannotBeReadOrWrittenThrowsAndSoDoesItsProgress) {
    auto store = create();
    MovingStore moving(io, *store, 1);
    ASSERT_FALSE(moving.round());
    const auto copy = store::TensorStore::create(io, {&snapshot_directory}, {.objects = MovingStore::objects()});
    for (const char* path : {"/kept/data", "/store/data"}) {
        device.hook = [path](const aio::Attempt&, const std::string& hit) {
            return hit.find(path) != std::string::npos ? std::optional<std::int32_t>(-EIO) : std::nullopt;
        };
        try {
            copy_tiles(io, *store, *copy, {});
            FAIL() << "the error was not seen";
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::storage);
            EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
        }
    }
    device.hook = {};
    EXPECT_THROW(
        copy_tiles(io, *store, *copy, [](std::uint64_t, std::uint64_t) { throw std::runtime_error("enough"); }),
        std::runtime_error);
    copy_tiles(io, *store, *copy, {});
    EXPECT_EQ(difference(io, *copy, moving.newest()), "");
}

}  // namespace
}  // namespace penstock::testing
