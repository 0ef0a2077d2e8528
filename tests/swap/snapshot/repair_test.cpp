#include "swap/snapshot/repair.h"
#include "aio/words/error.h"

#include "swap/directory/recovery.h"
#include "swap/snapshot/snapshot_copy.h"
#include "swap/store/blocking.h"
#include "tests/swap/power/power_device.h"
#include "tests/swap/store/exercise.h"
#include "tests/swap/store/moving_store.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;

class MendTest : public ::testing::Test {
   protected:
    MendTest() {
        auto store = store::TensorStore::create(io, {&directory}, {.objects = MovingStore::objects()});
        MovingStore moving(io, *store, 1);
        for (int i = 0; i < 4; ++i) EXPECT_FALSE(moving.round());  // generation 3 is newest, in manifest.1
        newest = moving.committed();
        manifest_bytes = fs::file_size(manifest(0));
    }

    std::string manifest(int file) const { return fmt::format("{}/manifest.{}", directory.path(), file); }
    std::uint64_t place_bytes() const { return manifest_bytes / 2; }
    void overwrite(int file, std::uint64_t offset, const std::string& text) const {
        std::fstream stream(manifest(file), std::ios::in | std::ios::out | std::ios::binary);
        stream.seekp(static_cast<std::streamoff>(offset));
        stream << text;
    }
    static std::string bytes_of(const std::string& path) {
        std::ifstream file(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    // Both copies of generation `whole` in this file, and nothing is left to mend.
    void expect_whole(int file, std::uint64_t generation) const {
        const store::Recovery recovery = store::recover(directory.fd(), directory.uuid());
        for (const store::ManifestCopy& copy : recovery.copies.at(static_cast<std::size_t>(file))) {
            EXPECT_EQ(copy.state, store::ManifestCopy::State::whole);
            EXPECT_EQ(copy.generation, generation);
        }
        EXPECT_TRUE(repair_manifests(directory).empty());
    }
    void expect_store(const std::string& note = {}) {
        const auto store = store::TensorStore::open(io, {&directory}, {.verify = store::VerifyScope::all});
        EXPECT_EQ(store->generation(), 3U);
        EXPECT_EQ(difference(io, *store, newest), "");
        ASSERT_EQ(notes_of(*store).size(), note.empty() ? 0U : 1U);
        if (!note.empty()) {
            EXPECT_NE(notes_of(*store)[0].find(note), std::string::npos) << notes_of(*store)[0];
        }
    }

    TemporaryDirectory scratch{aio::quick_temporary_path()};
    store::StoreDirectory directory{scratch.file("store"), "test"};
    aio::Io io{aio::make_thread_backend({}), {}};
    TileSeeds newest;
    std::uint64_t manifest_bytes = 0;
};

TEST_F(MendTest, NothingIsDoneToWhatIsWhole) {
    const std::string before = bytes_of(manifest(0)) + bytes_of(manifest(1));
    EXPECT_TRUE(repair_manifests(directory).empty());
    EXPECT_EQ(bytes_of(manifest(0)) + bytes_of(manifest(1)), before);
}

TEST_F(MendTest, ADamagedOrEmptyCopyIsRewrittenFromTheOtherOne) {
    const std::string before = bytes_of(manifest(0)) + bytes_of(manifest(1));
    for (const int file : {0, 1}) {
        for (const std::uint64_t copy : {0, 1}) {
            for (const std::string& damage : {std::string("rubbish"), std::string(place_bytes(), '\0')}) {
                overwrite(file, copy * place_bytes(), damage);
                const std::vector<std::string> lines = repair_manifests(directory);
                ASSERT_EQ(lines.size(), 1U);
                EXPECT_NE(lines[0].find(manifest(file)), std::string::npos) << lines[0];
                EXPECT_NE(lines[0].find(fmt::format("rewritten from copy {}", 2 - copy)), std::string::npos)
                    << lines[0];
                expect_whole(file, file == 0 ? 2 : 3);
                EXPECT_EQ(bytes_of(manifest(0)) + bytes_of(manifest(1)), before);
            }
        }
    }
    expect_store();
}

TEST_F(MendTest, TwoDamagedCopiesStayAsTheyAre) {
    overwrite(0, 0, "rubbish");
    overwrite(0, place_bytes(), "rubbish");
    const std::string before = bytes_of(manifest(0));
    EXPECT_TRUE(repair_manifests(directory).empty());
    EXPECT_EQ(bytes_of(manifest(0)), before);
}

TEST_F(MendTest, ACommitThatWasInterruptedBetweenItsCopiesIsFinished) {
    const std::string older = bytes_of(manifest(1));
    {
        auto store = store::TensorStore::open(io, {&directory});
        MovingStore moving(io, *store, 2);
        for (int i = 0; i < 2; ++i) ASSERT_FALSE(moving.round());
        newest = moving.committed();
    }
    overwrite(1, place_bytes(), older.substr(place_bytes()));  // as if the kill came before copy 2
    const std::vector<std::string> lines = repair_manifests(directory);
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_NE(lines[0].find("copy 2 was still of generation 3"), std::string::npos) << lines[0];
    expect_whole(1, 5);
}

TEST_F(MendTest, AMissingManifestFileIsMadeAgainSoThatTheStoreOpens) {
    fs::remove(manifest(0));
    EXPECT_THROW(store::TensorStore::open(io, {&directory}), Error);
    const std::vector<std::string> lines = repair_manifests(directory);
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_NE(lines[0].find("was missing"), std::string::npos) << lines[0];
    EXPECT_EQ(fs::file_size(manifest(0)), manifest_bytes);
    EXPECT_EQ(fs::status(manifest(0)).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    expect_store("says nothing of generation 2");
}

TEST_F(MendTest, AManifestFileThatWasCutGetsItsLengthAndItsSecondCopyAgain) {
    fs::resize_file(manifest(1), place_bytes() + 100);
    const std::vector<std::string> lines = repair_manifests(directory);
    ASSERT_EQ(lines.size(), 2U);
    EXPECT_NE(lines[0].find("has its"), std::string::npos) << lines[0];
    expect_whole(1, 3);
    expect_store();
}

TEST_F(MendTest, AManifestThatIsALinkIsNotFollowed) {
    fs::rename(manifest(0), scratch.file("elsewhere"));
    fs::create_symlink(scratch.file("elsewhere"), manifest(0));
    const std::string before = bytes_of(scratch.file("elsewhere"));
    EXPECT_THROW(repair_manifests(directory), Error);
    EXPECT_EQ(bytes_of(scratch.file("elsewhere")), before);
}

TEST_F(MendTest, BytesAreFoundUnderTheIdentityOfAnotherStoreAndOnlyTheSameBytes) {
    auto store = store::TensorStore::open(io, {&directory});
    store::StoreDirectory snapshot_directory(scratch.file("kept"), "test");
    store::StoreDirectory older_directory(scratch.file("older"), "test");
    auto kept = create_snapshot(io, *store, snapshot_directory, aio::Caching::direct);
    copy_tiles(io, *store, *kept, {});
    // One tile of the other copy is not what this store has.
    auto older = create_snapshot(io, *store, older_directory, aio::Caching::direct);
    copy_tiles(io, *store, *older, {});
    aio::ScratchMemory memory(16'384);
    aio::fill_random(memory.span(), 99);
    ASSERT_FALSE(write_tile(io, *older, {1, 2}, memory.span()));
    const store::Recovery recovery = store::recover(directory.fd(), directory.uuid());
    const std::vector<store::TensorStore*> sources = {older.get(), kept.get()};
    const auto find = [&](store::TileId tile, std::size_t count = 2) {
        const store::TileRecord& record = recovery.newest->tiles[store->layout().tile_index(tile)];
        return find_bytes(io, *store, tile, record, std::span(sources).first(count), memory.span());
    };
    EXPECT_EQ(find({1, 1}).source, 0U);
    EXPECT_EQ(find({1, 2}).source, 1U);
    aio::ScratchMemory expected(16'384);
    read_blocking(io, *store, {1, 2}, expected.span());
    EXPECT_TRUE(std::equal(memory.data(), memory.data() + 16'384, expected.data()));
    EXPECT_FALSE(find({1, 2}, 1).source);
    EXPECT_TRUE(find({1, 2}, 1).problems.empty());
    // What cannot be read is not said to be another's.
    const store::TileLocation place = older->location({1, 1});
    flip_bit(place.path, place.offset_bytes, 0);
    EXPECT_EQ(find({1, 1}).source, 1U);
    ASSERT_EQ(find({1, 1}, 1).problems.size(), 1U);
    EXPECT_NE(find({1, 1}, 1).problems.front().find(place.path), std::string::npos);
}

}  // namespace
}  // namespace penstock::testing
