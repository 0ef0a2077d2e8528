#include "swap/format/layout.h"
#include "aio/words/error.h"

#include "tests/aio/fakes/scratch.h"
#include "tests/seeds.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <random>
#include <tuple>

namespace penstock::testing {
namespace {

std::vector<store::ObjectSpec> random_objects(std::mt19937_64& random) {
    std::vector<store::ObjectSpec> objects(random() % 12 + 1);
    for (std::size_t i = 0; i < objects.size(); ++i) {
        objects[i] = {
            .name = "object" + std::to_string(i), .bytes = random() % 300'000 + 1, .tile_bytes = random() % 50'000 + 1};
        if (random() % 4 == 0) objects[i].tile_bytes = 1ULL << (random() % 18);
        if (random() % 8 == 0) objects[i].bytes = objects[i].tile_bytes;
        if (objects[i].bytes / objects[i].tile_bytes > 500)
            objects[i].bytes = objects[i].tile_bytes * 500 - 1 + (random() % 2);
        objects[i].bytes = std::max<std::uint64_t>(objects[i].bytes, 1);
    }
    return objects;
}

store::Geometry random_geometry(std::mt19937_64& random) {
    store::Geometry geometry{.shares = std::vector<std::uint16_t>(random() % 5 + 1),
                             .slots = static_cast<std::uint32_t>(random() % 2 + 1),
                             .granule_bytes = 512ULL << (random() % 5)};
    const bool equal = random() % 2 == 0;
    for (std::uint16_t& share : geometry.shares) share = static_cast<std::uint16_t>(equal ? 1 : random() % 9 + 1);
    return geometry;
}

struct Piece {
    std::uint32_t device = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    auto key() const { return std::tuple(device, begin); }
};

// Every extent in the promised order (object, slot, tile), checked one by one.
std::vector<Piece> pieces_of(const store::Layout& layout) {
    std::vector<Piece> pieces;
    for (std::uint32_t object = 0; object < layout.objects().size(); ++object) {
        for (std::uint32_t slot = 0; slot < layout.geometry().slots; ++slot) {
            std::uint64_t logical_bytes = 0;
            for (std::uint32_t tile = 0; tile < layout.tile_count(object); ++tile) {
                const store::Extent extent = layout.extent({object, tile}, slot);
                logical_bytes += layout.tile_bytes({object, tile});
                EXPECT_EQ(extent.offset_bytes % layout.granule_bytes(), 0U);
                EXPECT_EQ(extent.bytes % layout.granule_bytes(), 0U);
                EXPECT_GE(extent.bytes, layout.tile_bytes({object, tile}));
                EXPECT_LT(extent.bytes - layout.tile_bytes({object, tile}), layout.granule_bytes());
                pieces.push_back({extent.device, extent.offset_bytes, extent.offset_bytes + extent.bytes});
            }
            EXPECT_EQ(logical_bytes, layout.objects()[object].bytes);
        }
    }
    return pieces;
}

TEST(Layout, ExtentsTileEachDeviceWithoutGapOrOverlapInOrder) {
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(60); ++seed) {
        SCOPED_TRACE(replay(seed));
        std::mt19937_64 random(seed);
        const store::Layout layout(random_objects(random), random_geometry(random));
        const std::uint32_t devices = layout.device_count();
        std::vector<Piece> pieces = pieces_of(layout);
        // In the order (object, slot, tile) a device's extents already lie one after the other.
        std::vector<std::uint64_t> ends(devices, 0);
        for (const Piece& piece : pieces) {
            ASSERT_EQ(piece.begin, ends[piece.device]);
            ends[piece.device] = piece.end;
        }
        for (std::uint32_t device = 0; device < devices; ++device) ASSERT_EQ(ends[device], layout.device_bytes(device));
    }
}

TEST(Layout, TilesGoToTheDevicesInTurnAndIndicesAreDense) {
    const std::uint64_t seed = first_seed();
    SCOPED_TRACE(replay(seed));
    std::mt19937_64 random(seed);
    const store::Layout layout(random_objects(random), {.shares = {1, 1, 1}});
    std::uint32_t index = 0;
    for (std::uint32_t object = 0; object < layout.objects().size(); ++object) {
        for (std::uint32_t tile = 0; tile < layout.tile_count(object); ++tile, ++index) {
            ASSERT_EQ(layout.tile_index({object, tile}), index);
            ASSERT_EQ(layout.tile(index), (store::TileId{object, tile}));
            ASSERT_EQ(layout.extent({object, tile}, 0).device, index % 3);
            ASSERT_EQ(layout.extent({object, tile}, 1).device, index % 3);
        }
    }
    EXPECT_EQ(layout.tile_count(), index);
}

TEST(Layout, SharesAreKeptInEachRoundAndSpreadOverIt) {
    const store::Layout layout({{"a", 700, 1}}, {.shares = {4, 2, 1}});
    std::string order;
    for (std::uint32_t tile = 0; tile < 7; ++tile) order += std::to_string(layout.extent({0, tile}, 0).device);
    EXPECT_EQ(order, "0102010");
    for (std::uint32_t tile = 0; tile < 700; ++tile)
        ASSERT_EQ(std::to_string(layout.extent({0, tile}, 1).device)[0], order[tile % 7]);
    EXPECT_EQ(layout.device_bytes(0), 2 * 400U * 4096);
    EXPECT_EQ(layout.device_bytes(2), 2 * 100U * 4096);
}

TEST(Layout, OneSlotTakesHalfTheRoom) {
    const store::Layout two({{"a", 10'000, 8192}, {"b", 1, 8192}}, {.shares = {1, 1}});
    const store::Layout one({{"a", 10'000, 8192}, {"b", 1, 8192}}, {.shares = {1, 1}, .slots = 1});
    EXPECT_EQ(2 * one.device_bytes(0), two.device_bytes(0));
    EXPECT_EQ(2 * one.device_bytes(1), two.device_bytes(1));
    EXPECT_DEATH(static_cast<void>(one.extent({0, 0}, 1)), "slot 1 of 1");
}

TEST(Layout, ImpossibleGeometriesAreKnown) {
    EXPECT_TRUE(store::Layout::is_possible({}));
    EXPECT_TRUE(store::Layout::is_possible({.shares = std::vector<std::uint16_t>(64, 4)}));
    EXPECT_FALSE(store::Layout::is_possible({.shares = {}}));
    EXPECT_FALSE(store::Layout::is_possible({.shares = {1, 0}}));
    EXPECT_FALSE(store::Layout::is_possible({.shares = {256, 1}}));
    EXPECT_FALSE(store::Layout::is_possible({.shares = std::vector<std::uint16_t>(65, 1)}));
    EXPECT_FALSE(store::Layout::is_possible({.slots = 0}));
    EXPECT_FALSE(store::Layout::is_possible({.slots = 3}));
    EXPECT_FALSE(store::Layout::is_possible({.granule_bytes = 256}));
    EXPECT_FALSE(store::Layout::is_possible({.granule_bytes = 5000}));
    EXPECT_FALSE(store::Layout::is_possible({.granule_bytes = 4U << 20}));
}

TEST(Layout, AWorkedExample) {
    const store::Layout layout({{"a", 10'000, 8192}, {"b", 1, 8192}}, {});
    EXPECT_EQ(layout.tile_count(), 3U);
    EXPECT_EQ(layout.extent({0, 0}, 0).offset_bytes, 0U);
    EXPECT_EQ(layout.extent({0, 1}, 0).offset_bytes, 8192U);
    EXPECT_EQ(layout.extent({0, 1}, 0).bytes, 4096U);
    EXPECT_EQ(layout.extent({0, 0}, 1).offset_bytes, 12288U);
    EXPECT_EQ(layout.extent({1, 0}, 0).offset_bytes, 24576U);
    EXPECT_EQ(layout.extent({1, 0}, 1).offset_bytes, 28672U);
    EXPECT_EQ(layout.device_bytes(0), 32768U);
}

ExitCode refusal_of(std::vector<store::ObjectSpec> objects) {
    try {
        const store::Layout layout(std::move(objects), {});
    } catch (const Error& error) {
        return error.code();
    }
    return ExitCode::ok;
}

TEST(Layout, ImpossibleObjectsAreRefused) {
    const std::string longest(255, 'x');
    EXPECT_EQ(refusal_of({{longest, 1, 1}}), ExitCode::ok);
    EXPECT_EQ(refusal_of({{"größe.層", 1, 1}}), ExitCode::ok);
    EXPECT_EQ(refusal_of({{"a", 1ULL << 60, 1ULL << 50}}),
              ExitCode::usage);  // two slots are more than one device holds
    EXPECT_EQ(refusal_of({{"", 1, 1}}), ExitCode::usage);
    EXPECT_EQ(refusal_of({{longest + "x", 1, 1}}), ExitCode::usage);
    EXPECT_EQ(refusal_of({{"a", 0, 1}}), ExitCode::usage);
    EXPECT_EQ(refusal_of({{"a", 1, 0}}), ExitCode::usage);
    EXPECT_EQ(refusal_of({{"a", 1, 1}, {"b", 1, 1}, {"a", 2, 2}}), ExitCode::usage);
    EXPECT_EQ(refusal_of({{"a\nb", 1, 1}}), ExitCode::usage);
    EXPECT_EQ(refusal_of({{"a\x7f", 1, 1}}), ExitCode::usage);
    EXPECT_EQ(refusal_of({{"\xc3", 1, 1}}), ExitCode::usage);          // cut short
    EXPECT_EQ(refusal_of({{"\xc0\x80", 1, 1}}), ExitCode::usage);      // overlong
    EXPECT_EQ(refusal_of({{"\xed\xa0\x80", 1, 1}}), ExitCode::usage);  // surrogate
    EXPECT_EQ(refusal_of({{"a", 1ULL << 61, 1ULL << 40}}), ExitCode::usage);
    EXPECT_EQ(refusal_of({{"a", UINT64_MAX, UINT64_MAX}}), ExitCode::usage);
    EXPECT_EQ(refusal_of({{"a", (1ULL << 24) + 1, 1}}), ExitCode::usage);
    EXPECT_EQ(refusal_of({{"a", 1ULL << 24, 1}, {"b", 1, 1}}), ExitCode::usage);
}

// What a hostile manifest may name: each of its objects would have a place of its own on each device.
TEST(Layout, OfManyObjectsOnManyDevicesTakesLittleMemory) {
    constexpr std::uint32_t count = 1U << 18;
    std::vector<store::ObjectSpec> objects(count);
    for (std::uint32_t i = 0; i < count; ++i)
        objects[i] = {.name = std::to_string(i), .bytes = i % 3 * 5000 + 1, .tile_bytes = 4096};
    const auto heap_bytes = [] {
        const struct mallinfo2 heap = ::mallinfo2();
        return heap.uordblks + heap.hblkhd;
    };
    const std::size_t before = heap_bytes();
    const store::Layout layout(std::move(objects), {.shares = std::vector<std::uint16_t>(64, 1)});
    EXPECT_LT(heap_bytes() - before, 64U << 20);
    std::vector<std::uint64_t> ends(64, 0);
    for (std::uint32_t object = 0; object < count; ++object) {
        for (std::uint32_t slot = 0; slot < 2; ++slot) {
            for (std::uint32_t tile = 0; tile < layout.tile_count(object); ++tile) {
                const store::Extent extent = layout.extent({object, tile}, slot);
                ASSERT_EQ(extent.offset_bytes, ends[extent.device]) << "object " << object;
                ends[extent.device] += extent.bytes;
            }
        }
    }
    for (std::uint32_t device = 0; device < 64; ++device) EXPECT_EQ(layout.device_bytes(device), ends[device]);
}

}  // namespace
}  // namespace penstock::testing
