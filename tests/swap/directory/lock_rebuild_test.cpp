#include "swap/directory/lock_rebuild.h"

#include "swap/directory/recovery.h"
#include "swap/store/blocking.h"
#include "swap/store/open_store.h"
#include "tests/refusal.h"
#include "tests/swap/store/exercise.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& words) {
    return text.find(words) != std::string::npos;
}

class LockRebuildTest : public ::testing::Test {
   protected:
    std::string path(const std::string& name) const { return scratch.file(name); }
    std::string lock(const std::string& name) const { return path(name) + "/lock"; }
    static store::OpenStore open(const std::vector<std::string>& paths, const std::string& job = "work") {
        store::OpenStore open(paths, job);
        open.start_io({.backend = aio::BackendKind::threads});
        return open;
    }
    static void create(const std::vector<std::string>& paths) {
        store::OpenStore made = open(paths);
        commit_blocking(made.io(), made.create({.objects = Exercise::objects()}), {{"step", "7"}});
    }
    // With bytes in it, which say whose they are.
    static void fill(const std::vector<std::string>& paths, const std::string& job = "work", std::uint64_t seed = 3) {
        store::OpenStore made = open(paths, job);
        ASSERT_FALSE(Exercise(seed).advance(made.io(), made.create({.objects = Exercise::objects()}), 0));
    }
    void put_lock_of(const std::string& from, const std::string& to) const {
        fs::copy_file(lock(from), lock(to), fs::copy_options::overwrite_existing);
    }
    static void write(const std::string& file, const std::string& text) {
        std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
    }
    static std::string refusal(const std::function<void()>& call) { return refusal_of(ExitCode::storage, call); }

    TemporaryDirectory scratch{aio::quick_temporary_path()};
};

TEST_F(LockRebuildTest, MakesALostLockFromTheManifests) {
    create({path("store")});
    const std::string lock = this->lock("store");
    const store::StoreUuid uuid = store::StoreDirectory(path("store"), "work").uuid();
    const std::pair<const char*, std::function<void()>> losses[] = {
        {"missing", [] {}},
        {"empty", [&] { write(lock, ""); }},
        {"zeros", [&] { write(lock, std::string(1024, '\0')); }},
        {"text", [&] { write(lock, "somebody's own notes"); }},
        {"link", [&] { fs::create_symlink("elsewhere", lock); }},
        {"directory", [&] { fs::create_directory(lock); }},
        {"pipe", [&] { ASSERT_EQ(::mkfifo(lock.c_str(), 0600), 0); }},
    };
    for (const auto& [name, lose] : losses) {
        SCOPED_TRACE(name);
        fs::remove_all(lock);
        fs::remove_all(lock + ".damaged");
        lose();
        for (const auto& call :
             {std::function([&] { store::StoreDirectory(path("store"), "work"); }),
              std::function([&] { store::StoreDirectory::find(path("store"), store::Sharing::exclusive); })}) {
            EXPECT_TRUE(has(refusal(call), "and its manifests are there. Nothing was changed. Put it back"))
                << refusal(call);
        }
        const std::vector<std::string> lines = store::rebuild_locks({path("store")}, "work");
        ASSERT_EQ(lines.size(), 1U);
        EXPECT_TRUE(has(lines[0], "device 0 of 1 of store " + store::to_string(uuid))) << lines[0];
        EXPECT_EQ(fs::exists(fs::symlink_status(lock + ".damaged")), std::string(name) != "missing");
        store::OpenStore again = open({path("store")});
        EXPECT_EQ(again.directory().uuid(), uuid);
        EXPECT_EQ(again.open().client().at("step"), "7");
    }
    EXPECT_TRUE(store::rebuild_locks({path("store")}, "work").empty()) << "it is there";
}

TEST_F(LockRebuildTest, MakesThoseOfFurtherDevices) {
    create({path("one"), path("two"), path("three")});
    fs::remove(lock("two"));
    EXPECT_TRUE(has(refusal([&] { open({path("one"), path("two"), path("three")}); }), path("two")));
    EXPECT_TRUE(has(refusal_of(ExitCode::usage,
                               [&] {
                                   store::rebuild_locks({path("one"), path("two")}, "work");
                               }),
                    "lies on 3 devices, but 2 directories are given"));
    EXPECT_EQ(store::rebuild_locks({path("one"), path("two"), path("three")}, "another").size(), 1U);
    EXPECT_EQ(open({path("one"), path("two"), path("three")}).open().client().at("step"), "7")
        << "the first knows the job";
    for (const char* name : {"one", "two", "three"}) fs::remove(lock(name));
    EXPECT_EQ(store::rebuild_locks({path("one"), path("two"), path("three")}, "work").size(), 3U);
    EXPECT_EQ(open({path("one"), path("two"), path("three")}).open().client().at("step"), "7");
}

TEST_F(LockRebuildTest, IsNotDoneUnderARunningUser) {
    create({path("store")});
    write(lock("store"), "damaged");
    const store::Descriptor held(::open(lock("store").c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(::flock(held.get(), LOCK_EX | LOCK_NB), 0);
    EXPECT_TRUE(has(refusal([&] { store::rebuild_locks({path("store")}, "work"); }), "a running process holds"));
    EXPECT_FALSE(fs::exists(lock("store") + ".damaged"));
}

TEST_F(LockRebuildTest, NeedsTheManifestsOfOneStore) {
    create({path("store")});
    create({path("other")});
    fs::remove(lock("store"));
    for (const char* name : {"manifest.0", "manifest.1"}) {
        fs::rename(path("store") + "/" + name, path("store") + "/" + name + ".own");
        write(path("store") + "/" + name, "");
    }
    EXPECT_TRUE(store::rebuild_locks({path("store")}, "work").empty()) << "nothing says whose it is";
    // Generation 0 lies in the first; so that the other one is right in itself, it is put there, too.
    fs::rename(path("store") + "/manifest.0.own", path("store") + "/manifest.0");
    fs::copy_file(path("other") + "/manifest.0", path("store") + "/manifest.1", fs::copy_options::overwrite_existing);
    EXPECT_TRUE(has(refusal([&] { store::rebuild_locks({path("store")}, "work"); }), "are of two stores"));
    EXPECT_FALSE(fs::exists(lock("store")));
    const TemporaryDirectory empty;
    EXPECT_TRUE(store::rebuild_locks({empty.path()}, "work").empty());
    EXPECT_TRUE(fs::is_empty(empty.path()));
}

// In a backup that was put together, say.
TEST_F(LockRebuildTest, MakesTheLockAnewThatIsAnotherStores) {
    fill({path("store")});
    const store::StoreUuid uuid = store::StoreDirectory(path("store"), "work").uuid();
    fill({path("other")});
    fill({path("job")}, "another job");
    fill({path("one"), path("two")});
    for (const char* another : {"other", "job", "one", "two"}) {
        SCOPED_TRACE(another);
        fs::remove(lock("store") + ".damaged");
        put_lock_of(another, "store");
        const std::string words = refusal([&] { open({path("store")}).open(); });
        EXPECT_TRUE(has(words, "the manifests beside it are of store " + store::to_string(uuid)) ||
                    std::string(another) == "two")
            << words;
        const std::vector<std::string> lines = store::rebuild_locks({path("store")}, "work");
        ASSERT_EQ(lines.size(), 1U);
        EXPECT_TRUE(has(lines[0], "was of store ") && has(lines[0], "device 0 of 1 of store " + store::to_string(uuid)))
            << lines[0];
        EXPECT_TRUE(fs::exists(lock("store") + ".damaged"));
        store::OpenStore again = open({path("store")});
        EXPECT_EQ(Exercise(3).difference(again.io(), again.open(), 0), "");
    }
}

TEST_F(LockRebuildTest, MakesThatOfAFurtherDeviceAnewWhereItsTilesSayWhoseItIs) {
    fill({path("one"), path("two")});
    fill({path("other"), path("others second")});
    fs::copy_file(lock("two"), lock("two") + ".right");
    for (const char* another : {"others second", "other"}) {
        put_lock_of(another, "two");
        EXPECT_TRUE(has(refusal([&] { open({path("one"), path("two")}).open(); }), "is another store's: Put it back"));
        ASSERT_EQ(store::rebuild_locks({path("one"), path("two")}, "work").size(), 1U);
        store::OpenStore again = open({path("one"), path("two")});
        EXPECT_EQ(Exercise(3).difference(again.io(), again.open(), 0), "");
    }
}

// A directory that is given by mistake keeps its lock.
TEST_F(LockRebuildTest, LeavesALockWhoseTilesAreNotTheStores) {
    fill({path("one"), path("two")});
    fill({path("other"), path("others second")}, "work", 4);
    EXPECT_TRUE(store::rebuild_locks({path("one"), path("others second")}, "work").empty());
    EXPECT_TRUE(store::rebuild_locks({path("two"), path("one")}, "work").empty()) << "the wrong order";
    fs::copy_file(path("other") + "/manifest.0", path("one") + "/manifest.0", fs::copy_options::overwrite_existing);
    fs::copy_file(path("other") + "/manifest.1", path("one") + "/manifest.1", fs::copy_options::overwrite_existing);
    EXPECT_TRUE(store::rebuild_locks({path("one"), path("two")}, "work").empty()) << "the lock is right, they are not";
    for (const char* name : {"one", "two", "other", "others second"}) EXPECT_FALSE(fs::exists(lock(name) + ".damaged"));
}

}  // namespace
}  // namespace penstock::testing
