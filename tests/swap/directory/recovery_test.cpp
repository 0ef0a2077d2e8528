#include "swap/directory/recovery.h"
#include "aio/words/error.h"

#include "tests/swap/power/power_device.h"
#include "tests/swap/store/exercise.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace penstock::testing {
namespace {

class RecoveryTest : public ::testing::Test {
   protected:
    // Generations 0 to `last` are committed; nothing is written after.
    void commit_up_to(std::uint64_t last) {
        auto store = store::TensorStore::create(
            io, {&directory}, {.objects = Exercise::objects(), .caching = aio::Caching::direct, .progress = {}});
        place_bytes = manifest_capacity(store->layout());
        for (std::uint64_t generation = 0; generation <= last; ++generation)
            ASSERT_FALSE(exercise.advance(io, *store, generation));
    }
    std::string manifest(std::uint64_t generation) const {
        return directory.path() + "/manifest." + std::to_string(generation % 2);
    }
    void overwrite(const std::string& path, std::uint64_t offset_bytes, const std::string& text) const {
        std::ofstream file(path, std::ios::binary | std::ios::in | std::ios::out);
        file.seekp(static_cast<std::streamoff>(offset_bytes));
        file << text;
    }
    void damage(std::uint64_t generation, std::uint32_t copy) const {
        flip_bit(manifest(generation), (copy - 1) * place_bytes + 300);
    }
    std::unique_ptr<store::TensorStore> reopen() { return store::TensorStore::open(io, {&directory}); }
    std::string refusal() {
        return storage_refusal([&] { reopen(); });
    }

    TemporaryDirectory scratch;
    store::StoreDirectory directory{scratch.file("store"), "test"};
    PowerDevice device{1};
    aio::Io io{device.backend(), {}};
    Exercise exercise{7};
    std::uint64_t place_bytes = 0;
};

TEST_F(RecoveryTest, OneDamagedCopyOfTheNewestManifestIsNotedAndTheOtherUsed) {
    commit_up_to(4);
    for (const std::uint64_t generation : {3U, 4U}) damage(generation, generation == 3 ? 2 : 1);
    const auto store = reopen();
    EXPECT_EQ(store->generation(), 4U);
    EXPECT_EQ(exercise.difference(io, *store, 4), "");
    ASSERT_EQ(notes_of(*store).size(), 2U);
    EXPECT_NE(notes_of(*store)[0].find(manifest(4) + " at offset 0: copy 1"), std::string::npos) << notes_of(*store)[0];
    EXPECT_NE(notes_of(*store)[1].find(fmt::format("{} at offset {}: copy 2", manifest(3), place_bytes)),
              std::string::npos)
        << notes_of(*store)[1];
}

// There no later commit would overwrite it.
TEST_F(RecoveryTest, AManifestInTheOtherFileIsNone) {
    commit_up_to(2);
    std::filesystem::copy_file(manifest(0), manifest(1), std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(manifest(0), 0);
    std::filesystem::resize_file(manifest(0), 2 * place_bytes);
    const std::string message = refusal();
    EXPECT_NE(message.find("it is of generation 2, which belongs into manifest.0"), std::string::npos) << message;
}

TEST_F(RecoveryTest, TheSecondCopyMayBeTheDamagedOne) {
    commit_up_to(3);
    damage(3, 2);
    const auto store = reopen();
    EXPECT_EQ(store->generation(), 3U);
    EXPECT_EQ(exercise.difference(io, *store, 3), "");
    EXPECT_EQ(notes_of(*store).size(), 1U);
}

TEST_F(RecoveryTest, BothCopiesDamagedFallBackToThePreviousGenerationWhichIsWholeAsNothingWasWrittenSince) {
    commit_up_to(3);
    damage(3, 1);
    damage(3, 2);
    auto store = reopen();
    EXPECT_EQ(store->generation(), 2U);
    EXPECT_EQ(exercise.difference(io, *store, 2), "");
    EXPECT_EQ(notes_of(*store).size(), 3U);  // one per copy, and that a commit is lost
    // What could not be read may be readable again later: it must be gone before generation 3 is written anew.
    const store::Recovery after = store::recover(directory.fd(), directory.uuid());
    for (const store::ManifestCopy& copy : after.copies[1]) EXPECT_EQ(copy.state, store::ManifestCopy::State::blank);
    ASSERT_FALSE(exercise.advance(io, *store, 3));
    store = nullptr;
    store = reopen();
    EXPECT_EQ(store->generation(), 3U);
    EXPECT_EQ(exercise.difference(io, *store, 3), "");
    EXPECT_TRUE(notes_of(*store).empty());
}

TEST_F(RecoveryTest, NothingIsErasedForAGenerationThatWasWrittenOver) {
    commit_up_to(3);
    auto store = reopen();
    ASSERT_FALSE(exercise.write(io, *store, 4));  // over the slots of generation 2
    store = nullptr;
    damage(3, 1);
    damage(3, 2);
    EXPECT_NE(refusal().find("of generation 2 are damaged"), std::string::npos) << refusal();
    damage(3, 1);  // back: one copy is right again
    store = reopen();
    EXPECT_EQ(store->generation(), 3U);
    EXPECT_EQ(exercise.difference(io, *store, 3), "");
}

// Descriptors or memory that are short for a moment, a link that drops, somebody's symbolic link: what a file holds
// that was not read, nobody knows.
TEST_F(RecoveryTest, AManifestThatCannotBeReadIsNotABrokenOneAndNothingIsGivenUpForIt) {
    commit_up_to(3);
    ASSERT_FALSE(exercise.write(io, *reopen(), 4));
    for (const std::uint64_t generation : {2U, 3U}) {
        SCOPED_TRACE(generation);
        const std::string away = scratch.file("away");
        std::filesystem::rename(manifest(generation), away);
        std::filesystem::create_symlink(away, manifest(generation));
        EXPECT_EQ(directory.content(), store::DirectoryContent::committed);
        const store::Recovery recovery = store::recover(directory.fd(), directory.uuid());
        EXPECT_EQ(recovery.newest->generation, 5 - generation);
        const std::vector<std::string> hidden = recovery.hidden(directory.path());
        ASSERT_EQ(hidden.size(), 2U);
        EXPECT_NE(hidden[0].find(manifest(generation) + " at offset 0: copy 1 of the manifest could not be read"),
                  std::string::npos)
            << hidden[0];
        EXPECT_NE(refusal().find(fmt::format("'manifest.{}'", generation % 2)), std::string::npos) << refusal();
        std::filesystem::remove(manifest(generation));
        std::filesystem::rename(away, manifest(generation));
        const auto store = reopen();
        EXPECT_EQ(store->generation(), 3U);
        EXPECT_EQ(exercise.difference(io, *store, 3), "");
    }
}

TEST_F(RecoveryTest, DataWithoutManifestsIsNothingThatMayBeCreatedOver) {
    commit_up_to(3);
    for (const char* missing : {"manifest.0", "manifest.1"}) {
        std::filesystem::rename(directory.path() + "/" + missing, scratch.file(missing));
        EXPECT_EQ(directory.content(), store::DirectoryContent::committed) << missing;
    }
    EXPECT_NE(refusal().find("there is no file 'manifest.0'"), std::string::npos) << refusal();
    EXPECT_THROW(
        store::TensorStore::create(io, {&directory},
                                   {.objects = Exercise::objects(), .caching = aio::Caching::direct, .progress = {}}),
        Error);
    for (const char* missing : {"manifest.0", "manifest.1"})
        std::filesystem::rename(scratch.file(missing), directory.path() + "/" + missing);
    EXPECT_EQ(reopen()->generation(), 3U);
}

// It has the older generation, or nothing: the store may have reported more than what is found.
TEST_F(RecoveryTest, AManifestThatWasPutBackFromElsewhereIsNoticed) {
    commit_up_to(1);
    std::filesystem::copy_file(manifest(1), scratch.file("of 1"));
    {
        const auto store = reopen();
        for (std::uint64_t next = 2; next <= 5; ++next) ASSERT_FALSE(exercise.advance(io, *store, next));
    }
    std::filesystem::copy_file(scratch.file("of 1"), manifest(5), std::filesystem::copy_options::overwrite_existing);
    {
        const auto store = reopen();
        EXPECT_EQ(store->generation(), 4U);
        EXPECT_EQ(exercise.difference(io, *store, 4), "");
        ASSERT_EQ(notes_of(*store).size(), 1U);
        EXPECT_NE(notes_of(*store)[0].find("says nothing of generation 3"), std::string::npos) << notes_of(*store)[0];
    }
    // The newest one alone is left, and it is of slots that were written over since.
    overwrite(manifest(4), 0, std::string(2 * place_bytes, '\0'));
    EXPECT_NE(refusal().find("of generation 1 are damaged"), std::string::npos) << refusal();
}

TEST_F(RecoveryTest, WithoutAWholeManifestEveryCopyIsNamedAndNothingIsCreatedOver) {
    commit_up_to(3);
    for (const std::uint64_t generation : {2U, 3U}) {
        for (const std::uint32_t copy : {1U, 2U}) damage(generation, copy);
    }
    EXPECT_EQ(directory.content(), store::DirectoryContent::committed);
    const std::string message = refusal();
    for (const std::uint64_t generation : {2U, 3U}) {
        for (const std::uint64_t offset : {std::uint64_t{0}, place_bytes}) {
            EXPECT_NE(message.find(fmt::format("{} at offset {}:", manifest(generation), offset)), std::string::npos)
                << message;
        }
    }
    EXPECT_THROW(
        store::TensorStore::create(io, {&directory},
                                   {.objects = Exercise::objects(), .caching = aio::Caching::direct, .progress = {}}),
        Error);
}

TEST_F(RecoveryTest, ATornFirstCommitIsUnfinishedButDamageToBothCopiesIsNot) {
    commit_up_to(0);
    overwrite(manifest(0), place_bytes, std::string(place_bytes, '\0'));  // copy 2 was not begun
    EXPECT_EQ(directory.content(), store::DirectoryContent::committed);
    damage(0, 1);
    EXPECT_EQ(directory.content(), store::DirectoryContent::unfinished);
    damage(0, 2);
    EXPECT_EQ(directory.content(), store::DirectoryContent::committed);
}

TEST_F(RecoveryTest, TheManifestOfAnotherStoreIsNotTaken) {
    commit_up_to(1);
    store::StoreDirectory other(scratch.file("other"), "test");
    {
        auto store = store::TensorStore::create(
            io, {&other}, {.objects = Exercise::objects(), .caching = aio::Caching::direct, .progress = {}});
        for (std::uint64_t generation = 0; generation < 8; ++generation)
            ASSERT_FALSE(exercise.advance(io, *store, generation));
    }
    std::filesystem::copy_file(other.path() + "/manifest.1", manifest(1),
                               std::filesystem::copy_options::overwrite_existing);
    const auto store = reopen();
    EXPECT_EQ(store->generation(), 0U);
    EXPECT_NE(notes_of(*store).at(0).find("it is of store " + store::to_string(other.uuid())), std::string::npos)
        << notes_of(*store)[0];
}

// What was cut off may be of slots that nobody needs.
TEST_F(RecoveryTest, ACutDataFileIsNamedVerifiedAndUsedAsFarAsItIsWhole) {
    commit_up_to(3);
    const std::string data = directory.path() + "/data";
    const auto bytes = std::filesystem::file_size(data);
    std::filesystem::resize_file(data, bytes - 4096);
    const std::string cut = fmt::format("{} ends at offset {}", data, bytes - 4096);
    {
        const auto store = reopen();
        const std::uint64_t found = store->generation().value();
        EXPECT_GE(found, 2U);
        EXPECT_EQ(exercise.difference(io, *store, found), "");
        const std::string notes = fmt::format("{}", fmt::join(notes_of(*store), "\n"));
        EXPECT_NE(notes.find(cut), std::string::npos) << notes;
        EXPECT_EQ(notes.find("one commit is lost") == std::string::npos, found == 3) << notes;
    }
    EXPECT_EQ(std::filesystem::file_size(data), bytes);
    std::filesystem::resize_file(data, bytes / 4);
    EXPECT_NE(refusal().find("tiles of generation"), std::string::npos) << refusal();
}

TEST_F(RecoveryTest, AMissingDataFileIsNamed) {
    commit_up_to(1);
    const std::string data = directory.path() + "/data";
    std::filesystem::rename(data, scratch.file("away"));
    EXPECT_NE(refusal().find("there is no file 'data'"), std::string::npos) << refusal();
    std::filesystem::create_symlink(scratch.file("away"), data);
    EXPECT_NE(refusal().find("'data' is a symbolic link"), std::string::npos) << refusal();
}

TEST_F(RecoveryTest, AManifestFileThatWasCutOrGrewIsTakenAsFarAsItIsWholeAndGetsItsLengthBeforeTheNextCommit) {
    commit_up_to(1);
    std::uint64_t newest = 1;
    for (const std::uint64_t bytes : {2 * place_bytes - 8192, 2 * place_bytes - 1, place_bytes, 2 * place_bytes + 8192,
                                      4 * place_bytes, std::uint64_t{100}, std::uint64_t{0}}) {
        SCOPED_TRACE(bytes);
        std::filesystem::resize_file(manifest(newest), bytes);
        auto store = reopen();
        const std::uint64_t found = bytes >= place_bytes ? newest : newest - 1;
        ASSERT_EQ(store->generation(), found);
        EXPECT_EQ(exercise.difference(io, *store, found), "");
        EXPECT_EQ(std::filesystem::file_size(manifest(newest)), 2 * place_bytes);
        EXPECT_NE(fmt::format("{}", fmt::join(notes_of(*store), "\n")).find(manifest(newest)), std::string::npos);
        for (const std::uint64_t next : {found + 1, found + 2}) {
            ASSERT_FALSE(exercise.advance(io, *store, next));
            store = nullptr;
            store = reopen();
            ASSERT_EQ(store->generation(), next);
            EXPECT_EQ(exercise.difference(io, *store, next), "");
        }
        newest = found + 2;
    }
}

// A shared opening changes nothing, and finds as much.
TEST_F(RecoveryTest, AManifestFileThatWasCutIsFoundByAReader) {
    commit_up_to(2);
    std::filesystem::resize_file(manifest(2), place_bytes + 4096);
    EXPECT_EQ(store::recover(directory).newest.value().generation, 2U);
}

// What is to be made anew says so: a link or a directory in a manifest's place is no passing error.
TEST_F(RecoveryTest, WhatIsNoFileInAManifestsPlaceGetsTheRemedyOfAMissingOne) {
    commit_up_to(3);
    const std::string away = scratch.file("away");
    std::filesystem::rename(manifest(3), away);
    std::filesystem::create_symlink(away, manifest(3));
    EXPECT_NE(refusal().find("'manifest.1' is a symbolic link"), std::string::npos) << refusal();
    std::filesystem::remove(manifest(3));
    std::filesystem::create_directory(manifest(3));
    EXPECT_NE(refusal().find("'manifest.1' is no file"), std::string::npos) << refusal();
    std::filesystem::remove(manifest(3));
    std::filesystem::rename(away, manifest(3));
    EXPECT_EQ(reopen()->generation(), 3U);
}

TEST_F(RecoveryTest, AWholeCopyOfThePreviousGenerationIsKeptBesideABrokenOne) {
    commit_up_to(3);
    damage(2, 1);
    reopen().reset();
    const store::Recovery recovery = store::recover(directory.fd(), directory.uuid());
    EXPECT_EQ(recovery.copies[0][0].state, store::ManifestCopy::State::blank);
    EXPECT_EQ(recovery.copies[0][1].state, store::ManifestCopy::State::whole);
    EXPECT_EQ(recovery.copies[0][1].generation, 2U);
}

// Found by fuzz_store: the next generation was 0 then, and an older manifest won over it.
TEST_F(RecoveryTest, NumbersFromWhichNothingCountsOnAreRefused) {
    commit_up_to(1);
    std::vector<std::byte> place(place_bytes);
    std::ifstream(manifest(1), std::ios::binary).read(reinterpret_cast<char*>(place.data()), std::ssize(place));
    const store::Manifest newest = store::decode(place).manifest;
    const auto forge = [&](std::uint64_t generation, std::uint64_t incarnation) {
        store::Manifest forged = newest;
        forged.generation = generation;
        forged.incarnation = incarnation;
        const std::size_t bytes = encode(forged, place);
        const std::string text(reinterpret_cast<const char*>(place.data()), bytes);
        for (const std::uint64_t offset : {std::uint64_t{0}, place_bytes}) overwrite(manifest(1), offset, text);
    };
    for (const std::uint64_t number : {(1ULL << 63) + 1, ~0ULL}) {
        forge(number, newest.incarnation);
        EXPECT_NE(refusal().find(fmt::format("generation {}", number)), std::string::npos) << refusal();
        forge(newest.generation, number);
        EXPECT_NE(refusal().find(fmt::format("incarnation {}", number)), std::string::npos) << refusal();
    }
    forge((1ULL << 63) - 1, (1ULL << 63) - 1);
    EXPECT_EQ(reopen()->generation(), (1ULL << 63) - 1);
}

TEST_F(RecoveryTest, AHugeManifestFileIsNotReadIntoMemory) {
    commit_up_to(1);
    std::filesystem::resize_file(manifest(1), 1ULL << 42);
    const store::Recovery recovery = store::recover(directory.fd(), directory.uuid());
    EXPECT_EQ(recovery.copies[1][0].state, store::ManifestCopy::State::broken);
    EXPECT_EQ(recovery.newest->generation, 0U);
}

// Several stores that are one go on from what all of them have.
TEST_F(RecoveryTest, TheGenerationBeforeIsGoneOnFromWhereItIsAskedFor) {
    commit_up_to(4);
    const auto open_at = [&](std::uint64_t generation) {
        return store::TensorStore::open(io, {&directory}, {.generation = generation});
    };
    EXPECT_EQ(storage_refusal([&] { open_at(2); }),
              directory.path() + ": generation 2 is to be gone on from, but there are 4 and 3. Nothing was changed.");
    EXPECT_EQ(open_at(4)->generation(), 4U);
    {
        const auto store = open_at(3);
        EXPECT_EQ(store->generation(), 3U);
        EXPECT_EQ(exercise.difference(io, *store, 3), "");
        EXPECT_EQ(notes_of(*store), std::vector<std::string>{"Generation 3 is gone on from, and 4 given up."});
    }
    const auto store = reopen();
    EXPECT_EQ(store->generation(), 3U) << "4 is erased for good";
    EXPECT_FALSE(exercise.advance(io, *store, 4));
    EXPECT_EQ(exercise.difference(io, *store, 4), "");
}

TEST_F(RecoveryTest, WhatIsAskedForIsNotSurvivedByTheOneBefore) {
    commit_up_to(3);
    {
        const auto store = reopen();
        const store::StoredTile tile = store->stored({0, 0});
        flip_bit(directory.path() + "/data", tile.offset_bytes + 1);
    }
    EXPECT_NE(storage_refusal([&] {
                  store::TensorStore::open(io, {&directory}, {.verify = store::VerifyScope::all, .generation = 3});
              }).find("The generation before is not what was asked for."),
              std::string::npos);
}

}  // namespace
}  // namespace penstock::testing
