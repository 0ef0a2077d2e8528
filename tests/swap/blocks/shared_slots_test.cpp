// The room past the slots; which slots are shared in truth is asked of a real XFS in
// block_device/shared_blocks_test.cpp.
#include "swap/blocks/shared_slots.h"

#include "tests/temporary_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace penstock::testing {
namespace {

constexpr std::uint64_t mib = 1ULL << 20;
constexpr std::uint32_t tile_count = 64;

class SharedSlots : public ::testing::Test {
   protected:
    SharedSlots() { data.reserve(layout.device_bytes(0)); }

    std::uint64_t room_mib() const { return (data.bytes() - layout.device_bytes(0)) / mib; }

    TemporaryDirectory scratch;
    store::Layout layout{{{"a", tile_count* mib, mib}}, {.slots = 2}};
    std::string path = scratch / "data";
    aio::File data{AT_FDCWD, path, path, {.mode = aio::FileMode::create, .caching = aio::Caching::buffered}};
    std::vector<store::TileRecord> tiles = std::vector<store::TileRecord>(tile_count, {.slot = 1, .written = true});
};

TEST_F(SharedSlots, RoomForThemIsCutInStepsAheadOfTheWritesThatNeedIt) {
    store::SharedSlots slots(layout, data);
    slots.add(tiles);
    EXPECT_EQ(room_mib(), 64U + 2);
    for (std::uint32_t tile = 0; tile < tile_count; ++tile) slots.write_begins(tile, 0);
    EXPECT_EQ(room_mib(), 64U + 2) << "the other slots are not shared";
    std::vector<std::uint64_t> rooms;
    for (std::uint32_t tile = 0; tile < tile_count; ++tile) {
        slots.write_begins(tile, 1);
        if (rooms.empty() || rooms.back() != room_mib()) rooms.push_back(room_mib());
        ASSERT_LE(room_mib(), tile_count - 1 - tile) << "no room for tile " << tile;
    }
    EXPECT_EQ(rooms, (std::vector<std::uint64_t>{47, 30, 13, 0}));
    EXPECT_EQ(slots.shared_bytes(), 0U);
}

TEST_F(SharedSlots, ThatAreSharedTwiceNeedTheirRoomOnce) {
    store::SharedSlots slots(layout, data);
    slots.add(tiles);
    slots.add(tiles);
    EXPECT_EQ(slots.shared_bytes(), 64 * mib);
    EXPECT_EQ(room_mib(), 64U + 2);
    tiles.assign(tile_count, {.slot = 0, .written = true});
    slots.add(tiles);
    EXPECT_EQ(room_mib(), 128U + 2);
    slots.take_back();
    EXPECT_EQ(slots.shared_bytes(), 64 * mib);
    EXPECT_EQ(room_mib(), 128U + 2) << "the next write cuts it";
}

TEST_F(SharedSlots, ThatAreNotSharedAfterAllNeedNone) {
    store::SharedSlots slots(layout, data);
    slots.add(tiles);
    slots.take_back();
    EXPECT_EQ(slots.shared_bytes(), 0U);
    EXPECT_EQ(room_mib(), 0U);
}

TEST_F(SharedSlots, OfAnEarlierLifeAreFoundByTheRoomThatWasLeftForThem) {
    EXPECT_EQ(store::SharedSlots::find(layout, data), nullptr);
    data.reserve(layout.device_bytes(0) + 5 * mib);
    const auto found = store::SharedSlots::find(layout, data);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->room_bytes(), 5 * mib);
    EXPECT_EQ(room_mib(), 5U) << "finding changes nothing";
    for (std::uint32_t tile = 0; tile < tile_count; ++tile) found->write_begins(tile, 0);
    for (std::uint32_t tile = 0; tile < tile_count; ++tile) found->write_begins(tile, 1);
    EXPECT_EQ(room_mib(), 0U);
}

}  // namespace
}  // namespace penstock::testing
