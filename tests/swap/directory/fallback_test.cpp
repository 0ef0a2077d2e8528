// Verification before the first write, and the generation before as the way out.
#include "aio/words/error.h"
#include "swap/directory/recovery.h"
#include "tests/swap/power/power_device.h"
#include "tests/swap/store/exercise.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

namespace penstock::testing {
namespace {

class FallbackTest : public ::testing::Test {
   protected:
    std::unique_ptr<store::TensorStore> commit_up_to(std::uint64_t last) {
        auto store = store::TensorStore::create(io, {&directory}, {.objects = Exercise::objects()});
        for (std::uint64_t generation = 0; generation <= last; ++generation)
            EXPECT_FALSE(exercise.advance(io, *store, generation));
        return store;
    }
    static store::TileId written_in_newest(const store::TensorStore& store, const store::Manifest& newest) {
        for (std::uint32_t index = 0; index < newest.tiles.size(); ++index) {
            if (newest.tiles[index].written && newest.tiles[index].generation == newest.generation)
                return store.layout().tile(index);
        }
        ADD_FAILURE() << "no tile was written in generation " << newest.generation;
        return {};
    }
    // One bit of a tile that the newest generation wrote.
    void damage_newest(std::unique_ptr<store::TensorStore> store) {
        const store::Manifest newest = *store::recover(directory.fd(), directory.uuid()).newest;
        damage(store->location(written_in_newest(*store, newest)));
    }
    static void damage(const store::TileLocation& place) { flip_bit(place.path, place.offset_bytes); }
    // Both copies of an even generation's manifest.
    void forge(const store::Manifest& manifest, const store::Layout& layout) const {
        std::vector<std::byte> place(manifest_capacity(layout));
        place.resize(encode(manifest, place));
        std::fstream file(directory.path() + "/manifest.0", std::ios::binary | std::ios::in | std::ios::out);
        for (const std::uint64_t offset : {std::uint64_t{0}, manifest_capacity(layout)}) {
            file.seekp(static_cast<std::streamoff>(offset));
            file.write(reinterpret_cast<const char*>(place.data()), static_cast<std::streamsize>(place.size()));
        }
    }
    std::unique_ptr<store::TensorStore> reopen(store::VerifyScope scope) {
        return store::TensorStore::open(io, {&directory}, {.verify = scope});
    }
    std::string refusal(store::VerifyScope scope) {
        return storage_refusal([&] { reopen(scope); });
    }

    TemporaryDirectory scratch;
    store::StoreDirectory directory{scratch.file("store"), "test"};
    PowerDevice device{1};
    aio::Io io{device.backend(), {}};
    Exercise exercise{7};
};

TEST_F(FallbackTest, ADamagedTileOfTheNewestGenerationIsSurvivedByTheOneBefore) {
    damage_newest(commit_up_to(5));
    auto store = reopen(store::VerifyScope::all);
    EXPECT_EQ(store->generation(), 4U);
    EXPECT_EQ(exercise.difference(io, *store, 4), "");
    ASSERT_EQ(notes_of(*store).size(), 1U);
    EXPECT_NE(notes_of(*store)[0].find("of generation 5 are damaged"), std::string::npos) << notes_of(*store)[0];
    EXPECT_NE(notes_of(*store)[0].find("Generation 4 is whole and used instead"), std::string::npos);
    // The given up generation is gone for good, and its number is taken again.
    const store::Recovery after = store::recover(directory.fd(), directory.uuid());
    for (const store::ManifestCopy& copy : after.copies[1]) EXPECT_EQ(copy.state, store::ManifestCopy::State::blank);
    ASSERT_FALSE(exercise.advance(io, *store, 5));
    store = nullptr;
    store = reopen(store::VerifyScope::all);
    EXPECT_EQ(store->generation(), 5U);
    EXPECT_EQ(exercise.difference(io, *store, 5), "");
}

TEST_F(FallbackTest, WithoutVerificationTheDamageIsFoundWhenTheTileIsRead) {
    damage_newest(commit_up_to(5));
    const auto store = reopen(store::VerifyScope::none);
    EXPECT_EQ(store->generation(), 5U);
    EXPECT_NE(exercise.difference(io, *store, 5).find("not the ones that were written"), std::string::npos);
}

TEST_F(FallbackTest, AGenerationBeforeThatWasWrittenOverIsNotGoneBackTo) {
    auto store = commit_up_to(5);
    ASSERT_FALSE(exercise.write(io, *store, 6));  // over the slots of generation 4
    store = nullptr;
    store = reopen(store::VerifyScope::none);
    damage_newest(std::move(store));
    const std::string message = refusal(store::VerifyScope::all);
    EXPECT_NE(message.find("of generation 5 are damaged"), std::string::npos) << message;
    EXPECT_NE(message.find("The generation before is not whole either"), std::string::npos) << message;
    EXPECT_NE(message.find(directory.path() + "/data at offset "), std::string::npos) << message;
    EXPECT_EQ(store::recover(directory.fd(), directory.uuid()).newest->generation, 5U);  // nothing was changed
}

TEST_F(FallbackTest, ATileThatBothGenerationsShareIsLostInBoth) {
    auto store = commit_up_to(5);
    const store::Manifest newest = *store::recover(directory.fd(), directory.uuid()).newest;
    store::TileId old{};
    for (std::uint32_t index = 0; index < newest.tiles.size(); ++index) {
        if (newest.tiles[index].written && newest.tiles[index].generation < 5) old = store->layout().tile(index);
    }
    damage(store->location(old));
    store = nullptr;
    EXPECT_NE(refusal(store::VerifyScope::all).find("not whole either"), std::string::npos);
}

TEST_F(FallbackTest, AStoreWithoutAGenerationBeforeIsRefused) {
    damage_newest(commit_up_to(0));
    EXPECT_NE(refusal(store::VerifyScope::all).find("not whole either"), std::string::npos);
}

TEST_F(FallbackTest, AnotherLifesGenerationIsNoneToGoBackTo) {
    auto store = commit_up_to(4);
    store = nullptr;
    store = reopen(store::VerifyScope::none);  // life 2
    ASSERT_FALSE(exercise.advance(io, *store, 5));
    // Generation 4 in its file once more, as if a later life had committed it.
    store::Recovery recovery = store::recover(directory.fd(), directory.uuid());
    store::Manifest forged = *recovery.previous;
    forged.incarnation = recovery.newest->incarnation + 1;
    forge(forged, store->layout());
    damage_newest(std::move(store));
    EXPECT_NE(refusal(store::VerifyScope::all).find("not whole either"), std::string::npos);
}

TEST_F(FallbackTest, AnOlderGenerationThanTheOneBeforeIsNoneToGoBackTo) {
    auto store = store::TensorStore::create(io, {&directory}, {.objects = {{"a", 8192, 4096}}});
    aio::ScratchMemory memory(4096);
    for (const std::uint32_t tile : {0U, 1U}) ASSERT_FALSE(write_tile(io, *store, {0, tile}, memory.span()));
    for (int generation = 0; generation < 5; ++generation) ASSERT_FALSE(commit(io, *store, {}));
    ASSERT_FALSE(write_tile(io, *store, {0, 0}, memory.span()));
    ASSERT_FALSE(commit(io, *store, {}));
    store::Manifest forged = *store::recover(directory.fd(), directory.uuid()).previous;
    forged.generation = 2;
    forge(forged, store->layout());
    damage(store->location({0, 0}));
    store = nullptr;
    EXPECT_NE(refusal(store::VerifyScope::all).find("not whole either"), std::string::npos);
}

TEST_F(FallbackTest, TheGenerationBeforeIsVerifiedWhollyAlsoWhenTheNewestWasSampled) {
    auto store = store::TensorStore::create(io, {&directory}, {.objects = {{"a", 4 * 4096, 4096}}});
    aio::ScratchMemory memory(4096);
    store::TileLocation of_generation_0;
    for (int generation = 0; generation < 2; ++generation) {
        for (std::uint32_t tile = 0; tile < 4; ++tile) ASSERT_FALSE(write_tile(io, *store, {0, tile}, memory.span()));
        ASSERT_FALSE(commit(io, *store, {}));
        if (generation == 0) of_generation_0 = store->location({0, 1});
    }
    damage(store->location({0, 0}));
    damage(of_generation_0);
    store = nullptr;
    EXPECT_NE(refusal(store::VerifyScope::sample).find("not whole either"), std::string::npos);
}

TEST_F(FallbackTest, AReaderDoesNotGoBackAndChangesNothing) {
    const std::string path = scratch.file("other");
    {
        store::StoreDirectory own(path, "test");
        auto store = store::TensorStore::create(io, {&own}, {.objects = Exercise::objects()});
        for (std::uint64_t g = 0; g <= 3; ++g) ASSERT_FALSE(exercise.advance(io, *store, g));
        const store::Manifest newest = *store::recover(own.fd(), own.uuid()).newest;
        damage(store->location(written_in_newest(*store, newest)));
    }
    store::StoreDirectory shared = store::StoreDirectory::find(path, store::Sharing::shared);
    try {
        store::TensorStore::open(io, {&shared}, {.verify = store::VerifyScope::all});
        FAIL() << "a damaged store was opened";
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("not looked at"), std::string::npos) << error.what();
    }
    EXPECT_EQ(store::recover(shared.fd(), shared.uuid()).newest->generation, 3U);
}

TEST_F(FallbackTest, ASampleSeesTheFirstAndLastTilesOfEachObject) {
    auto store = commit_up_to(0);
    const store::TileLocation last = store->location({0, store->layout().tile_count(0) - 1});
    store = nullptr;
    damage(last);
    EXPECT_NE(refusal(store::VerifyScope::sample), "opened");
}

}  // namespace
}  // namespace penstock::testing
