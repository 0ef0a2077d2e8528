// Bit rot, lost, misdirected and stale writes: each is found when the tile is read, and named.
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "swap/directory/recovery.h"
#include "swap/store/tensor_store.h"
#include "tests/seeds.h"
#include "tests/swap/hashing/hashed_by.h"
#include "tests/swap/power/power_device.h"
#include "tests/swap/store/exercise.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace penstock::testing {
namespace {

class DamageTest : public ::testing::TestWithParam<HashedBy> {
   protected:
    DamageTest() {
        store = store::TensorStore::create(
            io, {&directory},
            {.objects = Exercise::objects(), .caching = aio::Caching::direct, .hashers = hashers.get()});
        EXPECT_FALSE(exercise.advance(io, *store, 0));
    }

    std::vector<char> peek(std::uint64_t offset_bytes, std::uint64_t bytes) const {
        std::vector<char> text(bytes);
        std::ifstream file(directory.path() + "/data", std::ios::binary);
        file.seekg(static_cast<std::streamoff>(offset_bytes));
        file.read(text.data(), static_cast<std::streamsize>(bytes));
        EXPECT_TRUE(file.good());
        return text;
    }
    void poke(std::uint64_t offset_bytes, const std::vector<char>& text) const {
        std::ofstream file(directory.path() + "/data", std::ios::binary | std::ios::in | std::ios::out);
        file.seekp(static_cast<std::streamoff>(offset_bytes));
        file.write(text.data(), static_cast<std::streamsize>(text.size()));
    }
    void flip(std::uint64_t offset_bytes, unsigned bit) const {
        flip_bit(directory.path() + "/data", offset_bytes, bit);
    }
    void expect_damaged(store::TileId tile) {
        aio::ScratchMemory memory(store->extent_bytes(tile));
        const auto error = read_tile(io, *store, tile, memory.span());
        ASSERT_TRUE(error);
        EXPECT_EQ(error->kind, store::StoreError::Kind::damaged);
        const store::TileLocation place = store->location(tile);
        for (const std::string& part :
             {"object '" + store->layout().objects()[tile.object].name + "'", "tile " + std::to_string(tile.tile),
              place.path, "offset " + std::to_string(place.offset_bytes), std::string("generation "),
              std::string("smartctl")}) {
            EXPECT_NE(error->message.find(part), std::string::npos) << part << " is not in: " << error->message;
        }
    }

    TemporaryDirectory scratch;
    store::StoreDirectory directory{scratch.file("store"), "test"};
    PowerDevice device{1};
    aio::Io io{device.backend(), {}};
    std::unique_ptr<store::TileHashers> hashers = hashers_of(GetParam(), io);
    Exercise exercise{7};
    std::unique_ptr<store::TensorStore> store;
};

TEST_P(DamageTest, AnyFlippedBitOfAnyTileIsFoundAndNamed) {
    const std::uint64_t seed = first_seed();
    SCOPED_TRACE(replay(seed));
    std::mt19937_64 random(seed);
    for (int i = 0; i < 100; ++i) {
        const store::TileId tile =
            store->layout().tile(static_cast<std::uint32_t>(random() % store->layout().tile_count()));
        // Also past the tile's length: the rest of the extent is promised to be zero.
        const std::uint64_t at = store->location(tile).offset_bytes + random() % store->extent_bytes(tile);
        const unsigned bit = random() % 8;
        flip(at, bit);
        expect_damaged(tile);
        flip(at, bit);
    }
    EXPECT_EQ(exercise.difference(io, *store, 0), "");
}

// What a program's tools can do, its users are told in its words.
TEST_P(DamageTest, WhatCannotBeOpenedSaysTheProgramsRemedies) {
    class Words final : public store::Remedies {
       public:
        std::string of_loss(const std::string& directory) const override { return "lost: " + directory; }
        std::string of_manifest(const std::string& directory) const override { return "manifest: " + directory; }
    };
    const auto words = std::make_shared<Words>();
    const auto refusal = [&] {
        return storage_refusal(
            [&] { store::TensorStore::open(io, {&directory}, {.remedies = words, .hashers = hashers.get()}); });
    };
    const std::string lost = "lost: " + directory.path() + ".";
    store.reset();
    const std::filesystem::path data = directory.path() + "/data";
    std::filesystem::rename(data, data.string() + ".away");
    EXPECT_NE(refusal().find(lost), std::string::npos) << refusal();
    std::filesystem::rename(data.string() + ".away", data);
    for (const char* manifest : {"/manifest.0", "/manifest.1"})
        for (std::uint64_t at = 0; at < std::filesystem::file_size(directory.path() + manifest); at += 64)
            flip_bit(directory.path() + manifest, at, 3);
    EXPECT_NE(refusal().find(lost), std::string::npos) << refusal();
    std::filesystem::remove(directory.path() + "/manifest.0");
    EXPECT_NE(refusal().find("there is no file 'manifest.0'"), std::string::npos) << refusal();
    EXPECT_NE(refusal().find("manifest: " + directory.path() + "."), std::string::npos) << refusal();
    std::filesystem::remove(directory.path() + "/manifest.1");
    EXPECT_NE(refusal().find("there is no file 'manifest.0' and there is no file 'manifest.1'"), std::string::npos)
        << refusal();
    EXPECT_NE(refusal().find(lost), std::string::npos) << refusal();
}

TEST_P(DamageTest, AnUncommittedTileIsCheckedToo) {
    ASSERT_FALSE(exercise.write(io, *store, 1));
    flip(store->location({1, 0}).offset_bytes + 100, 3);
    expect_damaged({1, 0});
}

TEST_P(DamageTest, ALostWriteIsFound) {
    device.hook = [](aio::Attempt& attempt, const std::string&) {
        return attempt.kind == aio::IoKind::write ? std::optional(static_cast<std::int32_t>(attempt.bytes))
                                                  : std::nullopt;
    };
    aio::ScratchMemory memory(store->extent_bytes({0, 0}));
    exercise.fill(memory.span(), {0, 0}, 1);
    ASSERT_FALSE(write_tile(io, *store, {0, 0}, memory.span()));
    device.hook = {};
    expect_damaged({0, 0});
}

TEST_P(DamageTest, AMisdirectedWriteIsFound) {
    poke(store->location({0, 1}).offset_bytes, peek(store->location({0, 2}).offset_bytes, store->extent_bytes({0, 1})));
    expect_damaged({0, 1});
}

TEST_P(DamageTest, AStaleTileOfAnOlderGenerationIsFound) {
    const std::uint64_t old_place = store->location({1, 1}).offset_bytes;
    aio::ScratchMemory memory(store->extent_bytes({1, 1}));
    exercise.fill(memory.span(), {1, 1}, 1);
    ASSERT_FALSE(write_tile(io, *store, {1, 1}, memory.span()));
    ASSERT_FALSE(commit(io, *store, {}));
    poke(store->location({1, 1}).offset_bytes, peek(old_place, store->extent_bytes({1, 1})));
    expect_damaged({1, 1});
}

// What swap/FORMAT.md says of the hash, computed from the files alone.
TEST_P(DamageTest, EveryTileIsHashedWithItsIdentityAsTheFormatSays) {
    ASSERT_FALSE(exercise.advance(io, *store, 1));
    const store::Manifest manifest = store::recover(directory.fd(), directory.uuid()).newest.value();
    std::uint64_t store_id = 0;
    std::memcpy(&store_id, directory.uuid().data(), sizeof store_id);
    for (std::uint32_t index = 0; index < manifest.tiles.size(); ++index) {
        const store::TileId tile = store->layout().tile(index);
        const store::TileRecord& record = manifest.tiles[index];
        const store::Extent extent = store->layout().extent(tile, record.slot);
        const std::vector<char> bytes = peek(extent.offset_bytes, extent.bytes);
        EXPECT_EQ(record.hash,
                  store::hash_tile(
                      std::as_bytes(std::span(bytes)),
                      {.store = store_id, .object = tile.object, .tile = tile.tile, .generation = record.generation}));
    }
}

TEST_P(DamageTest, OneWrongReadIsReadAgainAndNotedTwoAreDamage) {
    int wrong_reads = 0;
    device.hook = [&](aio::Attempt& attempt, const std::string&) -> std::optional<std::int32_t> {
        if (attempt.kind != aio::IoKind::read || wrong_reads == 0) return std::nullopt;
        --wrong_reads;
        std::fill_n(attempt.data, attempt.bytes, std::byte{0});
        return static_cast<std::int32_t>(attempt.bytes);
    };
    aio::ScratchMemory memory(store->extent_bytes({0, 0}));
    wrong_reads = 1;
    EXPECT_FALSE(read_tile(io, *store, {0, 0}, memory.span()));
    ASSERT_EQ(notes_of(*store).size(), 1U);
    EXPECT_NE(notes_of(*store)[0].find("'block.weights', tile 0"), std::string::npos) << notes_of(*store)[0];
    wrong_reads = 2;
    EXPECT_EQ(read_tile(io, *store, {0, 0}, memory.span())->kind, store::StoreError::Kind::damaged);
    EXPECT_EQ(wrong_reads, 0);
}

TEST_P(DamageTest, AReadErrorOfTheDeviceIsNamed) {
    device.hook = [](aio::Attempt& attempt, const std::string&) {
        return attempt.kind == aio::IoKind::read ? std::optional<std::int32_t>(-EIO) : std::nullopt;
    };
    aio::ScratchMemory memory(store->extent_bytes({0, 0}));
    const auto error = read_tile(io, *store, {0, 0}, memory.span());
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind, store::StoreError::Kind::io);
    EXPECT_NE(error->message.find("EIO"), std::string::npos) << error->message;
    EXPECT_NE(error->message.find("'block.weights', tile 0"), std::string::npos) << error->message;
}

INSTANTIATE_TEST_SUITE_P(HashedBy, DamageTest, anybody(), name_of_hashers);

}  // namespace
}  // namespace penstock::testing
