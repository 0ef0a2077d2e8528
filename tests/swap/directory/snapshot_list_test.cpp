#include "swap/directory/snapshot_list.h"
#include "aio/words/error.h"

#include "swap/directory/recovery.h"
#include "swap/directory/store_look.h"
#include "swap/snapshot/snapshot_copy.h"
#include "tests/refusal.h"
#include "tests/swap/power/power_device.h"
#include "tests/swap/store/moving_store.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;

TEST(SnapshotName, NamesAreShortPlainAndNotHidden) {
    for (const char* name : {"a", "step-100", "best_loss.v2", "0", "A-Z", "x..y"})
        EXPECT_TRUE(store::is_snapshot_name(name)) << name;
    EXPECT_TRUE(store::is_snapshot_name(std::string(100, 'n')));
    for (const char* name : {"", ".", "..", ".hidden", "a/b", "a b", "a\n", "é", "../x", "a\\b"})
        EXPECT_FALSE(store::is_snapshot_name(name)) << name;
    EXPECT_FALSE(store::is_snapshot_name(std::string(101, 'n')));
    EXPECT_FALSE(store::is_snapshot_name(std::string("a\0b", 3)));
}

class SnapshotListTest : public ::testing::Test {
   protected:
    SnapshotListTest() { fs::create_directory(folder); }

    void keep(const std::string& name) {
        store::StoreDirectory target(folder + "/" + name, "test");
        store::SnapshotCopy copying(*store, create_snapshot(io, *store, target, aio::Caching::direct), memory.span());
        while (!copying.finished()) io.wait(std::chrono::seconds(1));
        ASSERT_FALSE(copying.error());
    }
    void begin_only(const std::string& name) {
        store::StoreDirectory target(folder + "/" + name, "test");
        create_snapshot(io, *store, target, aio::Caching::direct);
    }
    std::vector<std::string> names() const {
        std::vector<std::string> found;
        for (const store::ListedSnapshot& snapshot : store::list_snapshots(folder)) found.push_back(snapshot.name);
        return found;
    }
    // The message of the refusal; the files there are the same afterwards.
    static std::string refusal(const std::string& path) {
        const auto files = [&] {
            std::string text;
            std::error_code none;
            for (const auto& entry : fs::recursive_directory_iterator(path, none)) text += entry.path().string() + "\n";
            return text;
        };
        const std::string before = files();
        std::string words = refusal_of(ExitCode::storage, [&] { store::remove_snapshot(path); });
        if (words != "accepted") {
            EXPECT_EQ(files(), before);
        }
        return words;
    }
    static bool contains(const std::string& text, const std::string& part) {
        return text.find(part) != std::string::npos;
    }

    TemporaryDirectory scratch{aio::quick_temporary_path()};
    const std::string folder = scratch.file("kept");
    store::StoreDirectory directory{scratch.file("store"), "test"};
    aio::Io io{aio::make_thread_backend({}), {}};
    std::unique_ptr<store::TensorStore> store =
        store::TensorStore::create(io, {&directory}, {.objects = MovingStore::objects()});
    MovingStore moving{io, *store, 1};
    aio::ScratchMemory memory{2 * 16'384};
};

TEST_F(SnapshotListTest, SnapshotsAreListedWithWhatTheyHold) {
    EXPECT_TRUE(store::list_snapshots(scratch.file("nothing")).empty());
    EXPECT_TRUE(store::list_snapshots(folder).empty());
    ASSERT_FALSE(moving.round());
    keep("step-1");
    ASSERT_FALSE(moving.round());
    keep("first");
    begin_only("half");
    fs::create_directory(folder + "/foreign");
    std::ofstream(folder + "/file") << "x";
    fs::create_directory_symlink(folder + "/first", folder + "/link");
    { const store::StoreDirectory only_locked(folder + "/.hidden", "test"); }
    const std::vector<store::ListedSnapshot> found = store::list_snapshots(folder);
    ASSERT_EQ(found.size(), 3U);
    EXPECT_EQ(names().back(), "half");
    const store::ListedSnapshot& step = found[found[0].name == "step-1" ? 0 : 1];
    EXPECT_EQ(step.path, folder + "/step-1");
    EXPECT_EQ(step.problem, "");
    ASSERT_TRUE(step.manifest);
    EXPECT_EQ(step.manifest->origin, (store::Origin{.store = store->uuid(), .generation = 0}));
    EXPECT_EQ(step.manifest->client.at("step"), "1");
    EXPECT_GE(step.disk_bytes, 209'004U);
    EXPECT_FALSE(found[2].manifest);
    EXPECT_TRUE(contains(found[2].problem, "unfinished")) << found[2].problem;
}

TEST_F(SnapshotListTest, TheOrderIsByTimeThenName) {
    ASSERT_FALSE(moving.round());
    for (const char* name : {"b", "a", "c"}) keep(name);
    std::vector<store::ListedSnapshot> found = store::list_snapshots(folder);
    ASSERT_EQ(found.size(), 3U);
    for (std::size_t i = 1; i < found.size(); ++i) {
        const auto key = [&](std::size_t at) { return std::pair(found[at].manifest->time_s, found[at].name); };
        EXPECT_LT(key(i - 1), key(i));
    }
}

TEST_F(SnapshotListTest, ADamagedSnapshotIsListedAsDamagedAndNotRemoved) {
    ASSERT_FALSE(moving.round());
    keep("bad");
    for (const std::uint64_t copy : {0, 1}) {
        std::fstream file(folder + "/bad/manifest.0", std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(static_cast<std::streamoff>(copy * fs::file_size(folder + "/bad/manifest.0") / 2 + 60));
        file << "rubbish";
    }
    const std::vector<store::ListedSnapshot> found = store::list_snapshots(folder);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_FALSE(found[0].manifest);
    EXPECT_TRUE(contains(found[0].problem, "damaged")) << found[0].problem;
    EXPECT_TRUE(contains(refusal(folder + "/bad"), "manifests are damaged"));
}

TEST_F(SnapshotListTest, LiveStoresAndPartsOfThemAreNotListedAndNotRemoved) {
    ASSERT_FALSE(moving.round());
    {
        store::StoreDirectory live(folder + "/live", "test");
        store::StoreDirectory second(folder + "/second", "test");
        const auto two = store::TensorStore::create(io, {&live, &second}, {.objects = MovingStore::objects()});
        MovingStore other(io, *two, 2);
        ASSERT_FALSE(other.round());
        store::StoreDirectory single(folder + "/single", "test");
        const auto one = store::TensorStore::create(io, {&single}, {.objects = MovingStore::objects()});
        MovingStore third(io, *one, 2);
        ASSERT_FALSE(third.round());
    }
    EXPECT_TRUE(names().empty());
    EXPECT_TRUE(contains(refusal(folder + "/live"), "device 0 of 2"));
    EXPECT_TRUE(contains(refusal(folder + "/second"), "device 1 of 2"));
    EXPECT_TRUE(contains(refusal(folder + "/single"), "not a kept snapshot"));
    EXPECT_TRUE(contains(refusal(directory.path()), "in use by"));
}

TEST_F(SnapshotListTest, RemovingTakesFinishedAndUnfinishedSnapshotsAway) {
    ASSERT_FALSE(moving.round());
    keep("a");
    begin_only("b");
    { const store::StoreDirectory only_locked(folder + "/c", "test"); }
    ASSERT_EQ(names().size(), 3U);
    for (const char* name : {"a", "b", "c"}) store::remove_snapshot(folder + "/" + name);
    EXPECT_TRUE(fs::is_empty(folder));
    EXPECT_TRUE(contains(refusal(folder + "/a"), "cannot be found"));
}

TEST_F(SnapshotListTest, WhatAnInterruptedRemovalLeavesIsRemovedTheNextTime) {
    ASSERT_FALSE(moving.round());
    const std::vector<std::string> order = {"manifest.0", "manifest.1", "data"};
    for (std::size_t done = 1; done <= order.size(); ++done) {
        keep("a");
        for (std::size_t i = 0; i < done; ++i) fs::remove(folder + "/a/" + order[i]);
        ASSERT_EQ(names(), (std::vector<std::string>{"a"}));
        EXPECT_EQ(refusal(folder + "/a"), "accepted");
    }
    EXPECT_TRUE(fs::is_empty(folder));
}

TEST_F(SnapshotListTest, RemovingRefusesWhatIsForeignInUseOrBehindALink) {
    ASSERT_FALSE(moving.round());
    keep("a");
    std::ofstream(folder + "/a/notes.txt") << "mine";
    EXPECT_TRUE(contains(refusal(folder + "/a"), "'notes.txt'"));
    fs::remove(folder + "/a/notes.txt");
    {
        const store::StoreDirectory user = store::StoreDirectory::find(folder + "/a", store::Sharing::shared);
        EXPECT_TRUE(contains(refusal(folder + "/a"), "in use by"));
    }
    fs::create_directory_symlink(folder + "/a", folder + "/link");
    EXPECT_TRUE(contains(refusal(folder + "/link"), "links are not followed"));
    fs::create_directory(folder + "/foreign");
    EXPECT_TRUE(contains(refusal(folder + "/foreign"), "no store's"));
    fs::rename(folder + "/a/data", scratch.file("data"));
    fs::create_symlink(scratch.file("data"), folder + "/a/data");
    EXPECT_TRUE(contains(refusal(folder + "/a"), "'data'"));
    EXPECT_TRUE(fs::exists(scratch.file("data")));
}

TEST_F(SnapshotListTest, AFolderThatCannotBeReadIsNamed) {
    std::ofstream(scratch.file("plain")) << "x";
    try {
        store::list_snapshots(scratch.file("plain"));
        FAIL() << "a file was taken for a folder";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::storage);
        EXPECT_TRUE(contains(error.what(), scratch.file("plain"))) << error.what();
    }
}

TEST_F(SnapshotListTest, TheHolderOfADirectoryIsSeenWithoutItsLock) {
    const auto look = [](const std::string& path) {
        const store::Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        return store::look_at_store(fd.get(), path);
    };
    const auto held = look(directory.path());
    ASSERT_TRUE(held);
    EXPECT_TRUE(held->in_use);
    EXPECT_EQ(held->lock.pid, ::getpid());
    EXPECT_TRUE(contains(describe_holder(held->lock), fmt::format("this process, {} on ", ::getpid())));
    { const store::StoreDirectory before(folder + "/a", "test"); }
    ASSERT_TRUE(look(folder + "/a"));
    EXPECT_FALSE(look(folder + "/a")->in_use);
    {
        const store::StoreDirectory reader = store::StoreDirectory::find(folder + "/a", store::Sharing::shared);
        EXPECT_FALSE(look(folder + "/a")->in_use);
        EXPECT_EQ(look(folder + "/a")->holders, (std::vector<store::LockHolder>{{.pid = ::getpid()}}));
    }
    EXPECT_TRUE(look(folder + "/a")->holders.empty());
    EXPECT_FALSE(look(folder));
}

}  // namespace
}  // namespace penstock::testing
