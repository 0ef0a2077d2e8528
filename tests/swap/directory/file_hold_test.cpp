#include "swap/directory/file_hold.h"

#include "swap/directory/descriptor.h"
#include "swap/directory/snapshot_list.h"
#include "swap/snapshot/repair.h"
#include "swap/snapshot/snapshot_copy.h"
#include "tests/child.h"
#include "tests/refusal.h"
#include "tests/swap/power/power_device.h"
#include "tests/swap/store/exercise.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>

#include <atomic>
#include <filesystem>
#include <thread>

namespace penstock::testing {
namespace {

class FileHoldTest : public ::testing::Test {
   protected:
    void create() {
        auto store = store::TensorStore::create(io, {&directory}, {.objects = Exercise::objects()});
        ASSERT_FALSE(exercise.advance(io, *store, 0));
    }
    // What the kernel has of a process that was killed within a write: the file, open and locked, by nobody.
    store::Descriptor left_behind(const std::string& name) const {
        store::Descriptor file(::open((directory.path() + "/" + name).c_str(), O_RDWR | O_CLOEXEC));
        EXPECT_EQ(::flock(file.get(), LOCK_EX | LOCK_NB), 0);
        return file;
    }

    TemporaryDirectory scratch;
    store::StoreDirectory directory{scratch.file("store"), "test"};
    PowerDevice device{1};
    aio::Io io{device.backend(), {.deadline = std::chrono::milliseconds(300)}};
    Exercise exercise{7};
};

TEST_F(FileHoldTest, AStoreIsOpenedWhenTheLastRequestOfAnEarlierUserHasEnded) {
    create();
    for (const char* name : {"data", "manifest.0", "manifest.1"}) {
        SCOPED_TRACE(name);
        store::Descriptor file = left_behind(name);
        std::atomic<bool> ended = false;
        std::thread device_ends([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            ended = true;
            file = store::Descriptor();
        });
        const auto store = store::TensorStore::open(io, {&directory});
        EXPECT_TRUE(ended) << "it was opened under a request that may still land";
        device_ends.join();
        EXPECT_EQ(store->generation(), 0U);
    }
}

TEST_F(FileHoldTest, AnEarlierUsersRequestThatDoesNotEndIsNamedAndNothingIsTouched) {
    create();
    for (const char* name : {"data", "manifest.0", "manifest.1"}) {
        SCOPED_TRACE(name);
        const store::Descriptor file = left_behind(name);
        const std::string message = storage_refusal([&] { store::TensorStore::open(io, {&directory}); });
        EXPECT_NE(message.find(directory.path() + "/" + name), std::string::npos) << message;
        EXPECT_NE(message.find("has not ended"), std::string::npos) << message;
    }
    EXPECT_EQ(store::TensorStore::open(io, {&directory})->generation(), 0U);
}

TEST_F(FileHoldTest, ACreationWaitsAsWell) {
    {
        // Interrupted before its first commit.
        store::TensorStore::create(io, {&directory}, {.objects = Exercise::objects()});
    }
    const store::Descriptor file = left_behind("data");
    EXPECT_NE(storage_refusal([&] {
                  store::TensorStore::create(io, {&directory}, {.objects = Exercise::objects()});
              }).find("has not ended"),
              std::string::npos);
}

// A wait that may last minutes is not a silent one. The file is given up when that is told.
TEST_F(FileHoldTest, AWaitThatLastsIsToldWithTheFileAndHowLongItLastsAtMost) {
    create();
    aio::Io patient(device.backend(), {.deadline = std::chrono::seconds(5)});
    for (const char* name : {"data", "manifest.0", "manifest.1"}) {
        SCOPED_TRACE(name);
        store::Descriptor file = left_behind(name);
        std::vector<std::string> told;
        const auto notice = [&](const std::string& line) {
            told.push_back(line);
            file = store::Descriptor();
        };
        EXPECT_EQ(store::TensorStore::open(patient, {&directory}, {.waiting = notice})->generation(), 0U);
        ASSERT_EQ(told.size(), 1U);
        EXPECT_NE(told[0].find(directory.path() + "/" + name), std::string::npos) << told[0];
        EXPECT_NE(told[0].find("at most 5 s"), std::string::npos) << told[0];
        if (std::string_view(name) == "data") continue;
        file = left_behind(name);
        repair_manifests(directory, std::chrono::seconds(5), notice);
        EXPECT_EQ(told.size(), 2U);
    }
}

// As an opening does: what a killed process had under way lands in what was repaired, or decides what it is.
TEST_F(FileHoldTest, ARepairOfManifestsWaitsAsWell) {
    create();
    for (const char* name : {"manifest.0", "manifest.1"}) {
        const store::Descriptor file = left_behind(name);
        const auto repair = [&] { repair_manifests(directory, std::chrono::milliseconds(50)); };
        const std::string message = storage_refusal(repair);
        EXPECT_NE(message.find(directory.path() + "/" + name), std::string::npos) << message;
        EXPECT_NE(message.find("has not ended"), std::string::npos) << message;
    }
    EXPECT_NO_THROW(repair_manifests(directory, std::chrono::milliseconds(50)));
}

TEST_F(FileHoldTest, ARemovalOfASnapshotWaitsAsWell) {
    const std::string path = scratch.file("kept");
    {
        create();
        auto from = store::TensorStore::open(io, {&directory});
        store::StoreDirectory target(path, "test");
        auto to = create_snapshot(io, *from, target, aio::Caching::direct);
        copy_tiles(io, *from, *to, {});
        ASSERT_FALSE(commit(io, *to, {}));
    }
    for (const char* name : {"data", "manifest.0", "manifest.1"}) {
        const store::Descriptor file(::open((path + "/" + name).c_str(), O_RDWR | O_CLOEXEC));
        ASSERT_EQ(::flock(file.get(), LOCK_EX | LOCK_NB), 0);
        const auto remove = [&] { store::remove_snapshot(path, std::chrono::milliseconds(50)); };
        EXPECT_NE(storage_refusal(remove).find("has not ended"), std::string::npos);
        EXPECT_TRUE(std::filesystem::exists(path + "/" + name)) << "it was removed under the write";
    }
    store::remove_snapshot(path, std::chrono::milliseconds(50));
    EXPECT_FALSE(std::filesystem::exists(path));
}

// It has the descriptors, as after a fork() without exec() in a program that loads data by processes of its own.
TEST_F(FileHoldTest, AChildThatLivesDoesNotHoldAStoreThatWasClosed) {
    create();
    auto own = std::make_unique<store::StoreDirectory>(scratch.file("own"), "test");
    auto store = store::TensorStore::create(io, {own.get()}, {.objects = Exercise::objects()});
    ASSERT_FALSE(exercise.advance(io, *store, 0));
    const Child child([](const Child::Say&) { ::pause(); });
    store.reset();
    own.reset();
    own = std::make_unique<store::StoreDirectory>(scratch.file("own"), "test");
    EXPECT_EQ(store::TensorStore::open(io, {own.get()})->generation(), 0U);
}

TEST_F(FileHoldTest, ReadersShareTheFiles) {
    create();
    { const store::StoreDirectory closed = std::move(directory); }
    auto first = store::StoreDirectory::find(scratch.file("store"), store::Sharing::shared);
    auto second = store::StoreDirectory::find(scratch.file("store"), store::Sharing::shared);
    const auto one = store::TensorStore::open(io, {&first});
    const auto other = store::TensorStore::open(io, {&second});
    EXPECT_EQ(one->generation(), other->generation());
}

}  // namespace
}  // namespace penstock::testing
