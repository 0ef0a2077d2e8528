#include "swap/directory/store_directory.h"
#include "aio/words/error.h"

#include "aio/profile.h"
#include "tests/aio/fakes/scratch.h"
#include "tests/child.h"
#include "tests/refusal.h"

#include <gtest/gtest.h>

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

namespace penstock::testing {
namespace {

class StoreDirectoryTest : public ::testing::Test {
   protected:
    std::string path() const { return scratch_.file("store"); }
    std::string file(const std::string& name) const { return path() + "/" + name; }
    void put(const std::string& name, const std::string& text) const {
        std::ofstream(file(name), std::ios::binary) << text;
    }
    std::string text(const std::string& name) const {
        std::ifstream stream(file(name), std::ios::binary);
        return {std::istreambuf_iterator<char>(stream), {}};
    }
    std::string refusal(const std::string& job = "job", ExitCode code = ExitCode::storage) const {
        return refusal_of(code, [&] { const store::StoreDirectory directory(path(), job); });
    }
    static void expect_in(const std::string& part, const std::string& message) {
        EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in: " << message;
    }

   private:
    TemporaryDirectory scratch_;
};

TEST_F(StoreDirectoryTest, IsMadeForItsOwnerOnlyAndKeepsItsIdentity) {
    store::StoreUuid uuid;
    {
        const store::StoreDirectory directory(path(), "job one");
        EXPECT_EQ(directory.content(), store::DirectoryContent::nothing);
        EXPECT_EQ(directory.job(), "job one");
        uuid = directory.uuid();
        struct stat status {};
        ASSERT_EQ(::stat(path().c_str(), &status), 0);
        EXPECT_EQ(status.st_mode & 07777, 0700U);
        ASSERT_EQ(::stat(file("lock").c_str(), &status), 0);
        EXPECT_EQ(status.st_mode & 07777, 0600U);
    }
    const store::StoreDirectory again(path(), "job one");
    EXPECT_EQ(again.uuid(), uuid);
    EXPECT_NE(uuid, store::StoreUuid{});
}

TEST_F(StoreDirectoryTest, ASecondOneInTheSameProcessIsRefused) {
    store::StoreDirectory directory(path(), "job");
    expect_in("in use by this process, " + std::to_string(::getpid()) + " on ", refusal());
    expect_in("given twice", refusal());
    store::StoreDirectory moved = std::move(directory);
    expect_in("in use", refusal());
    moved = store::StoreDirectory(path() + "2", "job");
    EXPECT_EQ(refusal(), "accepted");
}

TEST_F(StoreDirectoryTest, ASecondProcessIsRefusedWithThePidOfTheFirstAndADeadOneIsTakenOver) {
    Child child([&](const Child::Say& say) {
        const store::StoreDirectory directory(path(), "first job");
        say("x");
        for (;;) ::pause();
    });
    ASSERT_EQ(child.hear(1), "x");
    const std::string message = refusal("second job");
    std::array<char, 65> host{};
    ASSERT_EQ(::gethostname(host.data(), 64), 0);
    expect_in(path(), message);
    expect_in("process " + std::to_string(child.pid()), message);
    expect_in(host.data(), message);
    expect_in("since 2", message);
    expect_in("first job", message);
    child.kill();
    child.end();
    expect_in("belongs to job 'first job'", refusal("second job"));
    EXPECT_EQ(refusal("first job"), "accepted");
}

TEST_F(StoreDirectoryTest, AnotherJobIsRefusedAndChangesNothing) {
    { const store::StoreDirectory directory(path(), "job one"); }
    const std::string before = text("lock");
    const std::string message = refusal("job two");
    expect_in("'job one'", message);
    expect_in(path(), message);
    EXPECT_EQ(text("lock"), before);
}

TEST_F(StoreDirectoryTest, ADirectoryWithFilesOfOthersIsRefusedAndUntouched) {
    ASSERT_EQ(::mkdir(path().c_str(), 0755), 0);
    put("data", "somebody's");
    const std::string message = refusal();
    expect_in("'data'", message);
    expect_in(path(), message);
    EXPECT_EQ(text("data"), "somebody's");
    EXPECT_NE(::access(file("lock").c_str(), F_OK), 0);
}

TEST_F(StoreDirectoryTest, AForeignFileNamedLockIsRefusedAndUntouched) {
    ASSERT_EQ(::mkdir(path().c_str(), 0755), 0);
    put("lock", "pid 17\n");
    expect_in("it is no lock of a store", refusal());
    EXPECT_EQ(text("lock"), "pid 17\n");
}

TEST_F(StoreDirectoryTest, FilesOfOthersInADirectoryOfOursAreLeftAlone) {
    { const store::StoreDirectory directory(path(), "job"); }
    put("notes.txt", "mine");
    EXPECT_EQ(refusal(), "accepted");
    EXPECT_EQ(text("notes.txt"), "mine");
}

TEST_F(StoreDirectoryTest, AnEmptyDirectoryAndTheRootOfAFileSystemAreFree) {
    ASSERT_EQ(::mkdir(path().c_str(), 0755), 0);
    ASSERT_EQ(::mkdir(file("lost+found").c_str(), 0700), 0);
    EXPECT_EQ(refusal(), "accepted");
}

TEST_F(StoreDirectoryTest, TheDevicesProfileIsNotForeignAndIsKept) {
    ASSERT_EQ(::mkdir(path().c_str(), 0755), 0);
    put(aio::profile_name, "measured");
    EXPECT_EQ(refusal(), "accepted");
    EXPECT_EQ(refusal(), "accepted");
    EXPECT_EQ(text(aio::profile_name), "measured");
}

TEST_F(StoreDirectoryTest, AStartThatWasInterruptedBeforeItSignedIsTakenOver) {
    ASSERT_EQ(::mkdir(path().c_str(), 0700), 0);
    put("lock", "");
    EXPECT_EQ(refusal(), "accepted");
    put("lock", std::string(512, '\0'));  // the length reached the disk, the text did not
    EXPECT_EQ(refusal(), "accepted");
    put("lock", text("lock").substr(0, 60));  // nor all of the text
    expect_in("before its lock was written",
              refusal_of(ExitCode::storage, [&] { store::StoreDirectory::find(path(), store::Sharing::shared); }));
    EXPECT_EQ(refusal(), "accepted");
    put("lock", "");
    put("data", "x");
    expect_in("'data'", refusal());
}

TEST_F(StoreDirectoryTest, LinksAreNotFollowedBeneathTheDirectory) {
    ASSERT_EQ(::mkdir(path().c_str(), 0700), 0);
    std::ofstream(path() + "-victim") << "victim";
    ASSERT_EQ(::symlink((path() + "-victim").c_str(), file("lock").c_str()), 0);
    expect_in("symbolic link", refusal());
    std::ifstream victim(path() + "-victim");
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(victim), {}), "victim");
}

TEST_F(StoreDirectoryTest, ThePathItselfMayLeadThroughALink) {
    ASSERT_EQ(::mkdir((path() + "-real").c_str(), 0700), 0);
    ASSERT_EQ(::symlink((path() + "-real").c_str(), path().c_str()), 0);
    EXPECT_EQ(refusal(), "accepted");
}

TEST_F(StoreDirectoryTest, AMissingParentAndAFileInItsPlaceAreNamed) {
    const std::string missing = path() + "/a/b";
    try {
        const store::StoreDirectory directory(missing, "job");
        FAIL() << "made without a parent";
    } catch (const Error& error) {
        expect_in(missing, error.what());
        expect_in("create its parent", error.what());
    }
    std::ofstream(path()) << "a file";
    expect_in("ENOTDIR", refusal());
}

TEST_F(StoreDirectoryTest, AnImpossibleJobNameIsRefused) {
    expect_in("0 bytes", refusal("", ExitCode::usage));
    expect_in("201 bytes", refusal(std::string(201, 'x'), ExitCode::usage));
    refusal("a\nb", ExitCode::usage);
    EXPECT_EQ(refusal(std::string(200, 'x')), "accepted");
}

TEST_F(StoreDirectoryTest, ARoleOutlivesTheProcess) {
    store::DeviceRole role;
    {
        store::StoreDirectory directory(path(), "job");
        EXPECT_FALSE(directory.role());
        role = {.store = directory.uuid(), .device = 1, .device_count = 3};
        directory.assign(role);
    }
    const store::StoreDirectory again(path(), "job");
    EXPECT_EQ(again.role(), role);
    EXPECT_EQ(again.content(), store::DirectoryContent::committed);
}

TEST_F(StoreDirectoryTest, WhatIsWithdrawnLeavesNothingThatItMade) {
    {
        store::StoreDirectory directory(path(), "job");
        directory.withdraw();
    }
    EXPECT_NE(::access(path().c_str(), F_OK), 0);
    ASSERT_EQ(::mkdir(path().c_str(), 0755), 0);
    for (const char* left : {"", "penstock store dir"}) {  // by a start that was interrupted
        put("lock", left);
        store::StoreDirectory directory(path(), "job");
        put(aio::profile_name, "measured");
        directory.withdraw();
        EXPECT_NE(::access(file("lock").c_str(), F_OK), 0);
        EXPECT_EQ(text(aio::profile_name), "measured");
    }
    { const store::StoreDirectory directory(path(), "job"); }
    {
        store::StoreDirectory again(path(), "job");  // whose lock is another's work
        again.withdraw();
    }
    EXPECT_EQ(::access(file("lock").c_str(), F_OK), 0);
}

TEST_F(StoreDirectoryTest, ADirectoryThatBecameAStoresIsNotWithdrawn) {
    {
        store::StoreDirectory directory(path(), "job");
        directory.assign({.store = directory.uuid(), .device = 0, .device_count = 1});
        directory.withdraw();
    }
    EXPECT_EQ(::access(file("lock").c_str(), F_OK), 0);
}

TEST_F(StoreDirectoryTest, ARefusalNamesTheReadersOfNow) {
    { const store::StoreDirectory directory(path(), "job"); }
    const auto read_and_tell = [&](const Child::Say& say) {
        const store::StoreDirectory directory = store::StoreDirectory::find(path(), store::Sharing::shared);
        say("x");
        for (;;) ::pause();
    };
    std::array<Child, 2> readers{Child(read_and_tell), Child(read_and_tell)};
    for (Child& reader : readers) ASSERT_EQ(reader.hear(1), "x");
    const std::string message = refusal();
    for (Child& reader : readers) {
        expect_in("process " + std::to_string(reader.pid()) + " (", message);
        reader.kill();
        reader.end();
    }
    expect_in(", which reads it", message);
    EXPECT_EQ(message.find(" since "), std::string::npos) << "the last writer's words: " << message;
    EXPECT_EQ(refusal(), "accepted");
}

// A child that outlives its parent has the parent's lock.
TEST_F(StoreDirectoryTest, ARefusalSaysWhenTheHolderHasEndedAndLeftSomethingRunning) {
    std::array<int, 2> ready{};
    ASSERT_EQ(::pipe(ready.data()), 0);
    const pid_t holder = ::fork();
    if (holder == 0) {
        const store::StoreDirectory directory(path(), "job");
        const pid_t left = ::fork();
        if (left == 0)
            for (;;) ::pause();
        static_cast<void>(!::write(ready[1], &left, sizeof left));
        ::_exit(0);  // no destructor gives the lock up
    }
    pid_t left = 0;
    ASSERT_EQ(::read(ready[0], &left, sizeof left), static_cast<ssize_t>(sizeof left));
    ::waitpid(holder, nullptr, 0);
    const std::string message = refusal();
    ::kill(left, SIGKILL);
    expect_in("what process " + std::to_string(holder) + ", which has ended, left running", message);
    ::close(ready[0]);
    ::close(ready[1]);
}

}  // namespace
}  // namespace penstock::testing
