#include "swap/store/verify.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "swap/directory/store_files.h"

#include "tests/aio/fakes/forwarding_backend.h"
#include "tests/swap/power/power_device.h"
#include "tests/swap/store/moving_store.h"
#include "tests/swap/store/stuck_backend.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace penstock::testing {
namespace {

class VerifyTest : public ::testing::Test {
   protected:
    std::unique_ptr<store::TensorStore> create(const std::vector<store::ObjectSpec>& objects = MovingStore::objects()) {
        return store::TensorStore::create(io, {&directory}, {.objects = objects});
    }
    // One bit in the middle of the tile's bytes on disk.
    static void damage(const store::TensorStore& store, store::TileId tile) {
        const store::TileLocation place = store.location(tile);
        flip_bit(place.path, place.offset_bytes + store.layout().tile_bytes(tile) / 2);
    }

    TemporaryDirectory scratch{aio::quick_temporary_path()};
    store::StoreDirectory directory{scratch.file("store"), "test"};
    PowerDevice device{1, InFlight::as_submitted};  // so that the order is the store's
    bool stuck = false;
    aio::Io io{std::make_unique<StuckBackend>(device.backend(), stuck), {.deadline = std::chrono::milliseconds(20)}};
};

TEST_F(VerifyTest, AllWrittenTilesAreReadOnceInOrderAndProgressReachesTheTotal) {
    auto store = create();
    MovingStore moving(io, *store, 1);
    ASSERT_FALSE(moving.round());  // leaves the object 'late' unwritten
    std::vector<std::uint64_t> offsets;
    device.hook = [&](const aio::Attempt& attempt, const std::string&) -> std::optional<std::int32_t> {
        offsets.push_back(attempt.offset_bytes);
        return std::nullopt;
    };
    std::uint64_t last = 0;
    std::uint64_t total = 1;
    const store::VerifyReport report = verify(io, *store, {.progress = [&](std::uint64_t done, std::uint64_t all) {
                                                  EXPECT_GT(done, last);
                                                  last = done;
                                                  total = all;
                                              }});
    EXPECT_EQ(report.tiles, 7U + 10U + 1U);
    EXPECT_EQ(report.damaged_tiles, 0U);
    EXPECT_EQ(last, total);
    EXPECT_EQ(report.bytes, total);
    EXPECT_EQ(offsets.size(), report.tiles);
    EXPECT_TRUE(std::is_sorted(offsets.begin(), offsets.end()));
}

TEST_F(VerifyTest, EveryDamagedTileIsFoundAndNamed) {
    auto store = create();
    MovingStore moving(io, *store, 1);
    for (int i = 0; i < 2; ++i) ASSERT_FALSE(moving.round());
    const std::vector<store::TileId> damaged = {{0, 2}, {1, 9}, {2, 0}};
    for (const store::TileId tile : damaged) damage(*store, tile);
    const store::VerifyReport report = verify(io, *store, {});
    EXPECT_EQ(report.tiles, store->layout().tile_count());
    EXPECT_EQ(report.damaged_tiles, 3U);
    EXPECT_EQ(report.damaged, damaged);
    ASSERT_EQ(report.damages.size(), 3U);
    EXPECT_NE(report.damages[0].find("'a.weights', tile 2"), std::string::npos) << report.damages[0];
    EXPECT_NE(report.damages[0].find(fmt::format("at offset {}", store->location({0, 2}).offset_bytes)),
              std::string::npos);
}

TEST_F(VerifyTest, ATileThatCannotBeReadIsDamagedAndTheOthersAreReadAllTheSame) {
    auto store = create();
    MovingStore moving(io, *store, 1);
    for (int i = 0; i < 2; ++i) ASSERT_FALSE(moving.round());
    const std::uint64_t offset = store->location({1, 3}).offset_bytes;
    device.hook = [offset](const aio::Attempt& attempt, const std::string&) {
        return attempt.offset_bytes == offset ? std::optional<std::int32_t>(-EIO) : std::nullopt;
    };
    const store::VerifyReport report = verify(io, *store, {});
    EXPECT_EQ(report.tiles, store->layout().tile_count());
    EXPECT_EQ(report.damaged, (std::vector<store::TileId>{{1, 3}}));
    EXPECT_NE(report.damages.at(0).find("EIO"), std::string::npos) << report.damages[0];
}

TEST_F(VerifyTest, ASampleHasTheEndsOfEachObjectAndEverySixteenthTile) {
    auto store = create({{"a", 40 * 4096, 4096}, {"b", 4096, 4096}, {"c", 30 * 4096, 4096}});
    aio::ScratchMemory memory(4096);
    for (std::uint32_t i = 0; i < store->layout().tile_count(); ++i)
        ASSERT_FALSE(write_tile(io, *store, store->layout().tile(i), memory.span()));
    // Numbered over all objects: 0, 16, 32 of a and its last, b, c's first (41), 48, 64 and its last (70).
    EXPECT_EQ(verify(io, *store, {.scope = store::VerifyScope::sample}).tiles, 9U);
    EXPECT_EQ(verify(io, *store, {.scope = store::VerifyScope::none}).tiles, 0U);
    damage(*store, {2, 29});
    damage(*store, {2, 28});
    EXPECT_EQ(verify(io, *store, {.scope = store::VerifyScope::sample}).damaged, (std::vector<store::TileId>{{2, 29}}));
}

TEST_F(VerifyTest, ManyTilesOfManyLengthsGoThroughTheSameMemory) {
    std::vector<store::ObjectSpec> objects = {{"large", 3'000'000, 1'000'000}};
    for (int i = 0; i < 300; ++i) objects.push_back({fmt::format("small.{}", i), 4096, 4096});
    auto store = create(objects);
    MovingStore moving(io, *store, 1);
    for (int i = 0; i < 2; ++i) ASSERT_FALSE(moving.round());
    damage(*store, {0, 2});
    damage(*store, {300, 0});
    EXPECT_EQ(verify(io, *store, {}).damaged, (std::vector<store::TileId>{{0, 2}, {300, 0}}));
}

TEST_F(VerifyTest, WhatProgressThrowsEndsItWhenNothingIsInFlight) {
    auto store = create();
    MovingStore moving(io, *store, 1);
    ASSERT_FALSE(moving.round());
    EXPECT_THROW(
        verify(io, *store, {.progress = [](std::uint64_t, std::uint64_t) { throw std::runtime_error("enough"); }}),
        std::runtime_error);
    EXPECT_TRUE(io.idle());
    EXPECT_EQ(verify(io, *store, {}).damaged_tiles, 0U);
}

TEST_F(VerifyTest, ADeviceThatDoesNotAnswerIsNamedAndTheStoreAbandoned) {
    auto store = create();
    MovingStore moving(io, *store, 1);
    ASSERT_FALSE(moving.round());
    stuck = true;
    const auto verify_and_exit = [&] {
        try {
            verify(io, *store, {});
        } catch (const Error& error) {
            std::fprintf(stderr, "%d %s, abandoned %d\n", static_cast<int>(error.code()), error.what(),
                         store->abandoned() ? 1 : 0);
            store.reset();
            stuck = false;  // what comes back now finds no store
            static_cast<void>(io.finish_all());
            std::_Exit(7);
        }
        std::_Exit(1);
    };
    EXPECT_EXIT(verify_and_exit(), ::testing::ExitedWithCode(7), "4 read of .*store/data.*, abandoned 1");
    stuck = false;
}

// ---------------------------------------------------------------- tiles of many parts

// Gives back one attempt at a time, any of those that have ended.
class ShuffledBackend final : public ForwardingBackend {
   public:
    using ForwardingBackend::ForwardingBackend;
    aio::Attempt* reap(std::chrono::nanoseconds timeout) override {
        aio::Attempt* list = inner_->reap(ended_.empty() ? timeout : std::chrono::nanoseconds(0));
        while (list != nullptr) ended_.push_back(std::exchange(list, list->next));
        if (ended_.empty()) return nullptr;
        std::swap(ended_[random_() % ended_.size()], ended_.back());
        aio::Attempt* const one = ended_.back();
        ended_.pop_back();
        one->next = nullptr;
        return one;
    }
    const char* name() const noexcept override { return "shuffled"; }

   private:
    std::vector<aio::Attempt*> ended_;
    std::minstd_rand random_{1};
};

constexpr std::uint64_t mib = 1 << 20;

// One of the tiles is longer than the memory that verify() has for all.
class LongTiles : public ::testing::Test {
   protected:
    LongTiles() {
        for (std::uint32_t index = 0; index < store->layout().tile_count(); ++index) {
            const aio::ScratchMemory memory(9 * mib);
            aio::fill_random(memory.span(), index);
            EXPECT_FALSE(write_tile(io, *store, store->layout().tile(index), memory.span()));
        }
    }
    // The tile's place on disk, from its beginning.
    std::uint64_t offset(store::TileId tile, std::uint64_t bytes) const {
        return store->location(tile).offset_bytes + bytes;
    }
    bool reads(const aio::Attempt& attempt, std::uint64_t offset_bytes) const {
        return attempt.kind == aio::IoKind::read && attempt.offset_bytes <= offset_bytes &&
               offset_bytes < attempt.offset_bytes + attempt.bytes;
    }

    TemporaryDirectory scratch{aio::quick_temporary_path()};
    store::StoreDirectory directory{scratch.file("store"), "test"};
    PowerDevice device{1};
    aio::Io io{std::make_unique<ShuffledBackend>(device.backend()), {}};
    std::unique_ptr<store::TensorStore> store = store::TensorStore::create(
        io, {&directory},
        {.objects = {{"long", 9 * mib, 9 * mib}, {"odd", 3'000'001, 1'500'000}, {"short", 30'000, 10'000}}});
};

TEST_F(LongTiles, AreRightInWhateverOrderTheirPartsComeBack) {
    for (int round = 0; round < 5; ++round) {
        const store::VerifyReport report = verify(io, *store, {});
        EXPECT_EQ(report.damaged_tiles, 0U) << report.damages.front();
        EXPECT_EQ(report.tiles, 7U);
    }
    EXPECT_TRUE(store->notes().empty());
}

TEST_F(LongTiles, AnyPartsDamageIsFound) {
    for (std::uint64_t at = 1000; at < 9 * mib; at += mib / 2) {
        flip_bit(store->location({0, 0}).path, offset({0, 0}, at));
        EXPECT_EQ(verify(io, *store, {}).damaged, (std::vector<store::TileId>{{0, 0}})) << "at " << at;
        flip_bit(store->location({0, 0}).path, offset({0, 0}, at));
    }
    EXPECT_EQ(verify(io, *store, {}).damaged_tiles, 0U);
}

TEST_F(LongTiles, APartThatCannotBeReadIsNamedAndOtherTilesAreRight) {
    const std::uint64_t bad = offset({0, 0}, 5 * mib);
    device.hook = [&](const aio::Attempt& attempt, const std::string&) {
        return reads(attempt, bad) ? std::optional<std::int32_t>(-EIO) : std::nullopt;
    };
    const store::VerifyReport report = verify(io, *store, {});
    EXPECT_EQ(report.damaged, (std::vector<store::TileId>{{0, 0}}));
    EXPECT_NE(report.damages.at(0).find("EIO"), std::string::npos) << report.damages[0];
}

TEST_F(LongTiles, WhatIsRightOnlyWhenReadAgainIsNotDamagedButNoted) {
    int wrong = 2;
    const std::uint64_t bad = offset({0, 0}, 5 * mib);
    const std::uint64_t unread = offset({1, 1}, 100);
    device.hook = [&](aio::Attempt& attempt, const std::string&) -> std::optional<std::int32_t> {
        if (wrong == 0 || !(reads(attempt, bad) || reads(attempt, unread))) return std::nullopt;
        --wrong;
        if (reads(attempt, unread)) return -EIO;
        std::memset(attempt.data, 7, attempt.bytes);
        return static_cast<std::int32_t>(attempt.bytes);
    };
    std::uint64_t last = 0;
    const store::VerifyReport report = verify(io, *store, {.progress = [&](std::uint64_t done, std::uint64_t total) {
                                                  EXPECT_LT(last, done);
                                                  EXPECT_LE(done, total);
                                                  last = done;
                                              }});
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(report.damaged_tiles, 0U);
    EXPECT_EQ(last, report.bytes);
    ASSERT_EQ(store->notes().size(), 2U);
    EXPECT_NE(store->notes()[0].find("'long', tile 0"), std::string::npos) << store->notes()[0];
    EXPECT_NE(store->notes()[1].find("'odd', tile 1"), std::string::npos) << store->notes()[1];
}

TEST_F(LongTiles, TheSecondReadingSaysThatThereWereTwo) {
    flip_bit(store->location({0, 0}).path, offset({0, 0}, 7 * mib));
    const store::VerifyReport report = verify(io, *store, {});
    EXPECT_NE(report.damages.at(0).find("also when read again"), std::string::npos) << report.damages[0];
}

// A manifest may say what it likes: a tile longer than the machine's memory, over a file that is one hole.
TEST_F(VerifyTest, ALongTileThatIsDamagedTakesNoMoreMemoryThanAShortOne) {
    constexpr std::uint64_t tile_bytes = 384U << 20;
    const auto peak_kib = [] {
        rusage used{};
        ::getrusage(RUSAGE_SELF, &used);
        return used.ru_maxrss;
    };
    const auto verify_long = [&] {
        const long before_kib = peak_kib();
        store::StoreDirectory hostile(scratch.file("hostile"), "test");
        hostile.assign({.store = hostile.uuid(), .device = 0, .device_count = 1});
        store::Manifest manifest;
        manifest.store = hostile.uuid();
        manifest.incarnation = 1;
        manifest.objects = {{"long", tile_bytes, tile_bytes}};
        manifest.tiles = {{.hash = {.low = 1, .high = 2}, .generation = 0, .slot = 0, .written = true}};
        const store::Layout layout(manifest.objects, manifest.geometry);
        aio::Io its_io(aio::make_thread_backend({}), {});
        {
            store::StoreFiles files =
                store::StoreFiles::make({&hostile}, aio::Caching::buffered, std::chrono::seconds(1));
            fit_manifests(files, layout);
            if (::ftruncate(files.data[0].fd(), static_cast<off_t>(layout.device_bytes(0))) != 0) std::_Exit(2);
            std::vector<std::byte> place(manifest_capacity(layout));
            encode(manifest, place);
            for (std::size_t copy = 0; copy < 2; ++copy) {
                const auto offset = static_cast<off_t>(copy * place.size());
                if (::pwrite(files.manifests[0].fd(), place.data(), place.size(), offset) < 0) std::_Exit(2);
            }
        }
        const auto opened = store::TensorStore::open(its_io, {&hostile}, {.caching = aio::Caching::buffered});
        const store::VerifyReport report = verify(its_io, *opened, {});
        const long grown_kib = peak_kib() - before_kib;
        std::cerr << grown_kib << " KiB\n" << report.damages.at(0) << '\n';
        std::_Exit(report.damaged_tiles == 1 && grown_kib < 100 << 10 ? 0 : 1);
    };
    EXPECT_EXIT(verify_long(), ::testing::ExitedWithCode(0), "object 'long', tile 0 .* also when read again");
}

}  // namespace
}  // namespace penstock::testing
