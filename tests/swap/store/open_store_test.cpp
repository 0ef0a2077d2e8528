#include "swap/store/open_store.h"
#include "swap/directory/descriptor.h"
#include "swap/directory/recovery.h"
#include "swap/store/blocking.h"

#include "tests/swap/store/exercise.h"

#include "aio/words/error.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

namespace penstock::testing {
namespace {

class OpenStoreTest : public ::testing::Test {
   protected:
    std::string path(const std::string& name = "store") const { return scratch.file(name); }
    // Committed, with a first tile of these bytes.
    void make(const std::string& name, std::uint64_t seed) const {
        store::OpenStore open({path(name)}, "test");
        open.start_io({.backend = aio::BackendKind::threads});
        store::TensorStore& store = open.create({.objects = Exercise::objects()});
        aio::ScratchMemory memory(store.extent_bytes({0, 0}));
        Exercise(seed).fill(memory.span().first(store.layout().tile_bytes({0, 0})), {0, 0}, 0);
        write_blocking(open.io(), store, {0, 0}, memory.span());
        commit_blocking(open.io(), store, {});
    }
    // Whether the first tile is the one that make() wrote.
    static bool holds(const store::OpenStore& open, std::uint64_t seed) {
        store::TensorStore& store = open.store();
        const std::uint64_t bytes = store.layout().tile_bytes({0, 0});
        aio::ScratchMemory expected(store.extent_bytes({0, 0}));
        aio::ScratchMemory found(store.extent_bytes({0, 0}));
        Exercise(seed).fill(expected.span().first(bytes), {0, 0}, 0);
        read_blocking(open.io(), store, {0, 0}, found.span());
        return std::ranges::equal(expected.span().first(bytes), found.span().first(bytes));
    }

    TemporaryDirectory scratch{aio::quick_temporary_path()};
};

TEST_F(OpenStoreTest, CreatesAndThenOpensWithTheBackendThatIsAskedFor) {
    make("store", 1);
    store::OpenStore again({path()}, "test");
    EXPECT_TRUE(again.committed());
    again.start_io({.caching = aio::Caching::buffered, .backend = aio::BackendKind::threads});
    EXPECT_STREQ(again.io().backend_name(), "threads");
    again.open();
    EXPECT_TRUE(holds(again, 1));
    EXPECT_TRUE(again.store().notes().empty());  // nothing fell back to the page cache: it was asked for
}

TEST_F(OpenStoreTest, HoldsTheLocksOfAllItsDirectoriesUntilItEnds) {
    std::optional<store::OpenStore> first(std::in_place, std::vector{path("one"), path("two")}, "test");
    EXPECT_THROW(store::StoreDirectory(path("two"), "test"), Error);
    first->start_io({.backend = aio::BackendKind::threads});
    first->create({.objects = Exercise::objects()});
    first.reset();
    EXPECT_NO_THROW(store::OpenStore({path("one"), path("two")}, "test"));
}

TEST_F(OpenStoreTest, FindsOnlyAStoreThatIsThereWhoseverItIs) {
    EXPECT_THROW(store::OpenStore::find({path()}, store::Sharing::shared), Error);
    make("store", 1);
    EXPECT_THROW(store::OpenStore({path()}, "another job"), Error);
    store::OpenStore found = store::OpenStore::find({path()}, store::Sharing::shared);
    found.start_io({.backend = aio::BackendKind::threads});
    found.open();
    EXPECT_TRUE(holds(found, 1));
}

TEST_F(OpenStoreTest, AnIoThatIsSharedLivesAsLongAsTheLastStoreOnIt) {
    make("one", 1);
    make("two", 2);
    store::OpenStore second = store::OpenStore::find({path("two")}, store::Sharing::shared);
    {
        store::OpenStore first = store::OpenStore::find({path("one")}, store::Sharing::shared);
        first.start_io({.backend = aio::BackendKind::threads});
        first.open();
        second.share_io(first);
        EXPECT_EQ(&second.io(), &first.io());
    }
    second.open();
    EXPECT_TRUE(holds(second, 2));
}

// What was found before the last write of a killed process has landed is not what is opened.
TEST_F(OpenStoreTest, AManifestThatLandsAfterTheLookIsOpened) {
    const Exercise exercise(1);
    const std::string next_manifest = path() + "/" + store::manifest_file_names[0];  // of generation 2
    const std::string landing = scratch.file("landing");
    {
        store::OpenStore open({path()}, "test");
        open.start_io({.backend = aio::BackendKind::threads});
        store::TensorStore& store = open.create({.objects = Exercise::objects()});
        for (const std::uint64_t generation : {0U, 1U}) ASSERT_FALSE(exercise.advance(open.io(), store, generation));
        const std::string before = scratch.file("before");
        std::filesystem::copy_file(next_manifest, before);
        ASSERT_FALSE(exercise.advance(open.io(), store, 2));
        std::filesystem::copy_file(next_manifest, landing);
        std::filesystem::copy_file(before, next_manifest, std::filesystem::copy_options::overwrite_existing);
    }
    // What the kernel has of a process that was killed within a write: the file, open and locked, by nobody.
    store::Descriptor left_behind(::open(next_manifest.c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(::flock(left_behind.get(), LOCK_EX | LOCK_NB), 0);
    store::OpenStore again({path()}, "test");
    again.start_io({.backend = aio::BackendKind::threads});
    EXPECT_EQ(again.found().newest.value().generation, 1U);
    std::filesystem::copy_file(landing, next_manifest, std::filesystem::copy_options::overwrite_existing);
    left_behind = store::Descriptor();
    EXPECT_EQ(again.open().generation(), 2U);
    EXPECT_EQ(exercise.difference(again.io(), again.store(), 2), "");
}

TEST_F(OpenStoreTest, AssigningEndsTheOneThatWasThereInItsOrder) {
    make("one", 1);
    make("two", 2);
    std::vector<store::OpenStore> opened;
    for (const char* name : {"one", "two"}) {
        opened.push_back(store::OpenStore::find({path(name)}, store::Sharing::exclusive));
        opened.back().start_io({.backend = aio::BackendKind::threads});
        opened.back().open();
    }
    std::swap(opened[0], opened[1]);
    EXPECT_TRUE(holds(opened[0], 2));
    opened[0] = std::move(opened[1]);
    EXPECT_TRUE(holds(opened[0], 1));
    EXPECT_NO_THROW(store::StoreDirectory::find(path("two"), store::Sharing::exclusive));
}

}  // namespace
}  // namespace penstock::testing
