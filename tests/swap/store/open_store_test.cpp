#include "swap/store/open_store.h"
#include "swap/directory/descriptor.h"
#include "swap/directory/recovery.h"
#include "swap/store/blocking.h"
#include "swap/store/verify.h"

#include "tests/refusal.h"
#include "tests/swap/store/exercise.h"

#include "aio/words/error.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <algorithm>
#include <filesystem>
#include <functional>
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

// Its bytes mean something else: the C interface refuses it, too.
TEST_F(OpenStoreTest, AStoreOfOtherObjectsThanTheCallersIsRefusedUnchanged) {
    make("store", 1);
    const auto refusal = [&](std::vector<store::ObjectSpec> objects) {
        return refusal_of(ExitCode::usage, [&] {
            store::OpenStore open({path()}, "test");
            open.start_io({.backend = aio::BackendKind::threads});
            open.open({.objects = std::move(objects), .verify = store::VerifyScope::all});
        });
    };
    const auto before = std::filesystem::last_write_time(path() + "/manifest.0");
    std::vector<store::ObjectSpec> others = Exercise::objects();
    others[1].bytes += 1;
    EXPECT_NE(refusal(others).find("has other objects than are given: object 1 is "), std::string::npos)
        << refusal(others);
    others = Exercise::objects();
    others[0].tile_bytes *= 2;
    EXPECT_NE(refusal(others).find("object 0 is "), std::string::npos);
    others = Exercise::objects();
    others.pop_back();
    EXPECT_NE(refusal(others).find(" and none here"), std::string::npos) << refusal(others);
    others = Exercise::objects();
    others.push_back({"more", 1, 1});
    EXPECT_NE(refusal(others).find(" is none there"), std::string::npos) << refusal(others);
    EXPECT_EQ(std::filesystem::last_write_time(path() + "/manifest.0"), before);
    EXPECT_EQ(refusal(Exercise::objects()), "accepted");
    EXPECT_EQ(refusal({}), "accepted") << "whatever is there";
}

TEST_F(OpenStoreTest, WhatIsRefusedLeavesNothingBehind) {
    const auto refused = [&](ExitCode code, const auto& call) {
        EXPECT_NE(refusal_of(code, call), "accepted");
        EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
    };
    refused(ExitCode::storage, [&] { store::OpenStore({path("one"), path("missing") + "/two"}, "test"); });
    refused(ExitCode::does_not_fit, [&] {
        store::OpenStore open({path("one"), path("two")}, "test");
        open.start_io({.backend = aio::BackendKind::threads});
        open.create({.objects = {{"large", 1ULL << 58, 1ULL << 40}}});
    });
    refused(ExitCode::usage, [&] {
        store::OpenStore open({path("one")}, "test");
        open.start_io({.backend = aio::BackendKind::threads});
        open.create({.objects = {{"empty", 0, 1}}});
    });
    refused(ExitCode::storage, [&] {
        store::OpenStore open({path("one")}, "test");
        open.start_io({.backend = aio::BackendKind::threads});
        open.open();
    });
    make("store", 1);
    EXPECT_NO_THROW(store::OpenStore({path()}, "test"));
    EXPECT_TRUE(std::filesystem::exists(path() + "/lock")) << "a store is none of its making";
}

// Whoever gives the store up that a further directory was of says which.
TEST_F(OpenStoreTest, AStoreIsMadeOverTheFurtherDirectoriesOfOneThatIsGivenUpAndOverNoOther) {
    const std::vector<std::string> paths = {path("one"), path("two")};
    const auto make = [&](std::optional<store::StoreUuid> lost, const std::vector<std::string>& where) {
        store::OpenStore open(where, "test");
        open.start_io({.backend = aio::BackendKind::threads});
        store::TensorStore& store = open.create({.objects = Exercise::objects(), .lost = lost});
        EXPECT_FALSE(Exercise(5).advance(open.io(), store, 0));
        return store.uuid();
    };
    const store::StoreUuid first = make({}, paths);
    std::filesystem::remove_all(path("one"));
    const auto refusal = [&](std::optional<store::StoreUuid> lost, const std::vector<std::string>& where) {
        return refusal_of(ExitCode::storage, [&] { make(lost, where); });
    };
    EXPECT_NE(refusal({}, paths).find(path("two") + " holds a store already"), std::string::npos);
    EXPECT_NE(refusal(store::StoreUuid{std::byte{1}}, paths), "accepted") << "of another store";
    EXPECT_NE(refusal(first, {path("one"), path("new"), path("two")}), "accepted") << "in another place of another";
    EXPECT_NE(refusal(first, {path("two"), path("one")}), "accepted");
    EXPECT_FALSE(std::filesystem::exists(path("one")));
    const store::StoreUuid second = make(first, paths);
    EXPECT_NE(refusal(first, paths), "accepted") << "a store that is whole is never made over";
    store::OpenStore again(paths, "test");
    again.start_io({.backend = aio::BackendKind::threads});
    EXPECT_EQ(again.open().uuid(), second);
    EXPECT_EQ(Exercise(5).difference(again.io(), again.store(), 0), "");
}

// Of a store over several directories, all but the first may be lost where every tile is written anew.
TEST_F(OpenStoreTest, WhatIsMissingIsMadeAnewWhereEveryTileIsReplaced) {
    const std::vector<std::string> paths = {path("one"), path("two")};
    const auto open_it = [&](bool replaced, const auto& use) {
        store::OpenStore open(paths, "test");
        open.start_io({.backend = aio::BackendKind::threads});
        use(open, open.committed() ? open.open({.replaced = replaced}) : open.create({.objects = Exercise::objects()}));
    };
    const auto generation = [](std::uint64_t number) {
        return [number](store::OpenStore& open, store::TensorStore& store) {
            EXPECT_FALSE(Exercise(5).advance(open.io(), store, number));
        };
    };
    open_it(false, generation(0));
    const std::function<void()> losses[] = {
        [&] { std::filesystem::remove_all(path("two")); },
        [&] { std::filesystem::remove(path("two") + "/data"); },
        [&] { std::filesystem::remove(path("one") + "/data"); },
        [&] {
            std::filesystem::remove(path("one") + "/data");
            std::filesystem::create_directories(path("one") + "/data/of somebody");
        },
        [&] {
            std::filesystem::remove(path("two") + "/data");
            std::filesystem::create_symlink("nowhere", path("two") + "/data");
        },
    };
    std::uint64_t number = 1;
    for (const auto& lose : losses) {
        lose();
        EXPECT_NE(refusal_of(ExitCode::storage, [&] { open_it(false, generation(number)); }), "accepted");
        open_it(true, [&](store::OpenStore& open, store::TensorStore& store) {
            EXPECT_FALSE(store.notes().empty());
            aio::ScratchMemory memory(store.extent_bytes({0, 0}) * 4);
            for (std::uint32_t index = 0; index < store.layout().tile_count(); ++index) {
                const store::TileId tile = store.layout().tile(index);
                const std::span<std::byte> part = memory.span().first(store.extent_bytes(tile));
                Exercise(5).fill(part.first(store.layout().tile_bytes(tile)), tile, number);
                write_blocking(open.io(), store, tile, part);
            }
            commit_blocking(open.io(), store, {});
        });
        ++number;
    }
    open_it(false, [](store::OpenStore& open, store::TensorStore& store) {
        EXPECT_EQ(verify(open.io(), store, {.scope = store::VerifyScope::all}).damaged_tiles, 0U);
    });
}

}  // namespace
}  // namespace penstock::testing
