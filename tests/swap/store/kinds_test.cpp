// Durable, scratch and kept stores; and directories that are shared for reading.
#include "tests/swap/store/exercise.h"

#include "aio/words/error.h"
#include "tests/swap/power/power_device.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>

namespace penstock::testing {
namespace {

class KindsTest : public ::testing::Test {
   protected:
    std::unique_ptr<store::TensorStore> create(store::StoreDirectory& directory, store::StoreKind kind) {
        store::CreateOptions options{.objects = {{"a", 20'000, 8192}}, .kind = kind};
        if (kind == store::StoreKind::snapshot)
            options.origin = store::Origin{.store = {std::byte{3}}, .generation = 12};
        return store::TensorStore::create(io, {&directory}, std::move(options));
    }
    void write_all(store::TensorStore& store, int value) {
        for (std::uint32_t tile = 0; tile < store.layout().tile_count(0); ++tile) {
            std::memset(memory.data(), value, 8192);
            ASSERT_FALSE(write_tile(io, store, {0, tile}, {memory.data(), 8192}));
        }
    }
    int byte_of(store::TensorStore& store, std::uint32_t tile) {
        EXPECT_FALSE(read_tile(io, store, {0, tile}, {memory.data(), 8192}));
        return std::to_integer<int>(memory.data()[5]);
    }
    static std::uint64_t bytes_of(const std::string& path) {
        struct stat status {};
        EXPECT_EQ(::stat(path.c_str(), &status), 0);
        return static_cast<std::uint64_t>(status.st_size);
    }

    TemporaryDirectory scratch;
    std::string path = scratch.file("store");
    PowerDevice device{1};
    aio::Io io{device.backend(), {}};
    aio::ScratchMemory memory{8192};
};

TEST_F(KindsTest, AScratchStoreTakesHalfTheRoomAndIsRewrittenInPlace) {
    store::StoreDirectory directory(path, "test");
    auto store = create(directory, store::StoreKind::scratch);
    EXPECT_EQ(store->kind(), store::StoreKind::scratch);
    EXPECT_EQ(bytes_of(path + "/data"), 8192U + 8192 + 4096);
    write_all(*store, 1);
    const std::uint64_t place = store->location({0, 1}).offset_bytes;
    write_all(*store, 2);
    EXPECT_EQ(store->location({0, 1}).offset_bytes, place);
    EXPECT_EQ(byte_of(*store, 1), 2);
    EXPECT_FALSE(store->generation());
    TestCommit commit;
    EXPECT_DEATH(store->commit(commit, {}), "a scratch store commits nothing");
}

TEST_F(KindsTest, WhatAScratchStoreLeftIsCreatedOver) {
    {
        store::StoreDirectory directory(path, "test");
        write_all(*create(directory, store::StoreKind::scratch), 1);
    }
    store::StoreDirectory directory(path, "test");
    EXPECT_EQ(directory.content(), store::DirectoryContent::unfinished);
    auto store = create(directory, store::StoreKind::durable);
    write_all(*store, 4);
    ASSERT_FALSE(commit(io, *store, {}));
    EXPECT_EQ(store->generation(), 0U);
}

TEST_F(KindsTest, AScratchStoreIsNotMadeOverADurableOne) {
    {
        store::StoreDirectory directory(path, "test");
        auto store = create(directory, store::StoreKind::durable);
        write_all(*store, 1);
        ASSERT_FALSE(commit(io, *store, {}));
    }
    store::StoreDirectory directory(path, "test");
    EXPECT_THROW(create(directory, store::StoreKind::scratch), Error);
    EXPECT_EQ(byte_of(*store::TensorStore::open(io, {&directory}), 2), 1);
}

TEST_F(KindsTest, AKeptStoreIsCommittedOnceAndThenOnlyRead) {
    store::StoreDirectory directory(path, "test");
    auto store = create(directory, store::StoreKind::snapshot);
    write_all(*store, 6);
    ASSERT_FALSE(commit(io, *store, {{"step", "9"}}));
    TestTile tile;
    EXPECT_DEATH(store->write(tile, {0, 0}, {memory.data(), 8192}, aio::Urgency::demand), "a snapshot is written once");
    store = nullptr;
    store = store::TensorStore::open(io, {&directory}, {.verify = store::VerifyScope::all});
    EXPECT_EQ(store->kind(), store::StoreKind::snapshot);
    EXPECT_EQ(store->origin(), (store::Origin{.store = {std::byte{3}}, .generation = 12}));
    EXPECT_EQ(store->client().at("step"), "9");
    EXPECT_EQ(byte_of(*store, 0), 6);
    TestCommit commit;
    EXPECT_DEATH(store->commit(commit, {}), "a snapshot is written once");
}

TEST_F(KindsTest, ReadersShareADirectoryAndKeepUsersOut) {
    {
        store::StoreDirectory directory(path, "test");
        auto store = create(directory, store::StoreKind::durable);
        write_all(*store, 7);
        ASSERT_FALSE(commit(io, *store, {}));
    }
    std::ifstream before(path + "/lock");
    const std::string text{std::istreambuf_iterator<char>(before), {}};
    {
        store::StoreDirectory one = store::StoreDirectory::find(path, store::Sharing::shared);
        store::StoreDirectory two = store::StoreDirectory::find(path, store::Sharing::shared);
        EXPECT_EQ(one.job(), "test");
        auto store = store::TensorStore::open(io, {&one});
        EXPECT_EQ(byte_of(*store, 0), 7);
        EXPECT_EQ(store->incarnation(), 1U);  // no new life
        TestTile tile;
        EXPECT_DEATH(store->write(tile, {0, 0}, {memory.data(), 8192}, aio::Urgency::demand), "open for reading");
        EXPECT_THROW(store::StoreDirectory(path, "test"), Error);
        EXPECT_THROW(store::StoreDirectory::find(path, store::Sharing::exclusive), Error);
    }
    std::ifstream after(path + "/lock");
    EXPECT_EQ(text, std::string(std::istreambuf_iterator<char>(after), {}));
    store::StoreDirectory user(path, "test");
    EXPECT_THROW(store::StoreDirectory::find(path, store::Sharing::shared), Error);
}

TEST_F(KindsTest, FindingMakesNothing) {
    EXPECT_THROW(store::StoreDirectory::find(scratch.file("absent"), store::Sharing::shared), Error);
    EXPECT_NE(::access(scratch.file("absent").c_str(), F_OK), 0);
    ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
    EXPECT_THROW(store::StoreDirectory::find(path, store::Sharing::exclusive), Error);
    EXPECT_NE(::access((path + "/lock").c_str(), F_OK), 0);
}

TEST_F(KindsTest, SharesAreKeptOverAReopen) {
    store::StoreDirectory a(scratch.file("a"), "test");
    store::StoreDirectory b(scratch.file("b"), "test");
    auto store = store::TensorStore::create(io, {&a, &b}, {.objects = {{"a", 60'000, 4096}}, .shares = {3, 1}});
    for (std::uint32_t tile = 0; tile < 15; ++tile) {
        std::memset(memory.data(), static_cast<int>(tile), 4096);
        ASSERT_FALSE(write_tile(io, *store, {0, tile}, {memory.data(), 4096}));
    }
    ASSERT_FALSE(commit(io, *store, {}));
    EXPECT_EQ(bytes_of(a.path() + "/data"), 2U * 11 * 4096);
    EXPECT_EQ(bytes_of(b.path() + "/data"), 2U * 4 * 4096);
    store = nullptr;
    store = store::TensorStore::open(io, {&a, &b}, {.verify = store::VerifyScope::all});
    EXPECT_EQ(store->layout().geometry().shares, (std::vector<std::uint16_t>{3, 1}));
    for (std::uint32_t tile = 0; tile < 15; ++tile) {
        ASSERT_FALSE(read_tile(io, *store, {0, tile}, {memory.data(), 4096}));
        EXPECT_EQ(memory.data()[9], static_cast<std::byte>(tile));
    }
}

}  // namespace
}  // namespace penstock::testing
