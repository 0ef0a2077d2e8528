// A pinned generation stays readable while the store goes on; writes over it wait.
#include "tests/swap/hashing/hashed_by.h"
#include "tests/swap/power/power_device.h"
#include "tests/swap/store/exercise.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace penstock::testing {
namespace {

struct TestPin final : store::GenerationPin {
    std::vector<store::TileId> wished;
    void wanted(store::TileId tile) noexcept override { wished.push_back(tile); }
};

class PinTest : public ::testing::TestWithParam<HashedBy> {
   protected:
    void write_all(store::TensorStore& store, int value) {
        for (std::uint32_t tile = 0; tile < 3; ++tile) {
            std::memset(memory.data(), value, 8192);
            ASSERT_FALSE(write_tile(io, store, {0, tile}, {memory.data(), 8192}));
        }
    }
    int pinned_byte(store::TensorStore& store, std::uint32_t tile) {
        TestTile read;
        store.read_pinned(read, {0, tile}, {memory.data(), 8192}, aio::Urgency::scrub);
        while (!read.idle()) io.wait(std::chrono::seconds(1));
        EXPECT_FALSE(read.error());
        return std::to_integer<int>(memory.data()[5]);
    }
    int byte_of(store::TensorStore& store, std::uint32_t tile) {
        EXPECT_FALSE(read_tile(io, store, {0, tile}, {memory.data(), 8192}));
        return std::to_integer<int>(memory.data()[5]);
    }

    TemporaryDirectory scratch;
    store::StoreDirectory directory{scratch.file("store"), "test"};
    PowerDevice device{1};
    aio::Io io{device.backend(), {}};
    std::unique_ptr<store::TileHashers> hashers = hashers_of(GetParam(), io);
    aio::ScratchMemory memory{8192};
    aio::ScratchMemory other{8192};
    TestPin pin;
};

TEST_P(PinTest, APinnedGenerationIsReadableTwoCommitsLaterAndAWriteOverItWaits) {
    auto store =
        store::TensorStore::create(io, {&directory}, {.objects = {{"a", 24'576, 8192}}, .hashers = hashers.get()});
    write_all(*store, 10);
    ASSERT_FALSE(commit(io, *store, {}));
    store->pin(pin);
    write_all(*store, 11);  // into the other slots
    ASSERT_FALSE(commit(io, *store, {}));
    EXPECT_TRUE(pin.wished.empty());
    std::memset(other.data(), 12, 8192);
    TestTile write;
    store->write(write, {0, 1}, {other.data(), 8192}, aio::Urgency::write_back);
    ASSERT_EQ(pin.wished, std::vector<store::TileId>{(store::TileId{0, 1})});
    for (std::uint32_t tile = 0; tile < 3; ++tile) EXPECT_EQ(pinned_byte(*store, tile), 10);
    EXPECT_FALSE(write.idle());
    EXPECT_DEATH(write.~TestTile(), "waits for a pinned tile");
    store->release({0, 1});
    while (!write.idle()) io.wait(std::chrono::seconds(1));
    EXPECT_FALSE(write.error());
    EXPECT_EQ(byte_of(*store, 1), 12);
    EXPECT_EQ(pinned_byte(*store, 0), 10);
    EXPECT_EQ(pinned_byte(*store, 2), 10);
    store->unpin();
    write_all(*store, 13);
    ASSERT_FALSE(commit(io, *store, {}));
    EXPECT_EQ(byte_of(*store, 2), 13);
}

TEST_P(PinTest, UnpinningStartsAllThatWait) {
    auto store = store::TensorStore::create(
        io, {&directory},
        {.objects = {{"a", 24'576, 8192}}, .kind = store::StoreKind::scratch, .hashers = hashers.get()});
    write_all(*store, 1);
    store->pin(pin);
    std::vector<aio::ScratchMemory> memories;
    std::vector<TestTile> writes(3);
    for (std::uint32_t tile = 0; tile < 3; ++tile) {
        std::memset(memories.emplace_back(8192).data(), 2, 8192);
        store->write(writes[tile], {0, tile}, {memories.back().data(), 8192}, aio::Urgency::write_back);
    }
    EXPECT_EQ(pin.wished.size(), 3U);
    EXPECT_EQ(pinned_byte(*store, 1), 1);
    store->unpin();
    for (TestTile& write : writes) {
        while (!write.idle()) io.wait(std::chrono::seconds(1));
        EXPECT_FALSE(write.error());
    }
    for (std::uint32_t tile = 0; tile < 3; ++tile) EXPECT_EQ(byte_of(*store, tile), 2);
}

TEST_P(PinTest, TilesThatWereNeverWrittenAreNotPinned) {
    auto store =
        store::TensorStore::create(io, {&directory}, {.objects = {{"a", 24'576, 8192}}, .hashers = hashers.get()});
    ASSERT_FALSE(write_tile(io, *store, {0, 0}, {memory.data(), 8192}));
    ASSERT_FALSE(commit(io, *store, {}));
    store->pin(pin);
    TestTile read;
    EXPECT_DEATH(store->read_pinned(read, {0, 1}, {memory.data(), 8192}, aio::Urgency::scrub), "not pinned");
    write_all(*store, 3);
    EXPECT_TRUE(pin.wished.empty());
    EXPECT_DEATH(pin.~TestPin(), "destroyed while it holds tiles");
    store->unpin();
}

INSTANTIATE_TEST_SUITE_P(HashedBy, PinTest, anybody(), name_of_hashers);

}  // namespace
}  // namespace penstock::testing
