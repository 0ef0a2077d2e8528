#include "swap/format/disk_place.h"

#include "tests/swap/directory/mounts.h"
#include "tests/temporary_directory.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace penstock::store {
namespace {

namespace fs = std::filesystem;

class DiskPlaceTest : public ::testing::Test {
   protected:
    DiskPlaceTest() {
        fs::create_directories(directory_ / "store/kept");
        fs::create_directory_symlink(directory_ / "store", directory_ / "link");
        fs::create_directory_symlink("nowhere", directory_ / "dangling");
    }
    DiskPlace at(const std::string& path) const { return DiskPlace(directory_ / path); }

    TemporaryDirectory directory_;
};

TEST_F(DiskPlaceTest, SpellingsOfOnePlaceAreEqual) {
    for (const char* spelling : {"store/", "./store", "store/.", "store/kept/..", "link", "link/", "store//",
                                 "link/kept/../../store", "no/such/../../store"}) {
        EXPECT_EQ(at(spelling), at("store")) << spelling;
    }
    for (const char* spelling : {"link/new/run/", "store/new/./run", "store/new/x/../run", "link/kept/../new/run"}) {
        EXPECT_EQ(at(spelling), at("store/new/run")) << spelling;
        EXPECT_FALSE(at(spelling).is_there());
    }
}

TEST_F(DiskPlaceTest, OtherPlacesAreNot) {
    for (const char* other : {"stor", "store2", "store/kept", "new", "dangling", ".", ".."})
        EXPECT_FALSE(at(other) == at("store")) << other;
    EXPECT_FALSE(at("store/new/run") == at("store/new/runs"));
    EXPECT_FALSE(at("dangling") == at("nowhere"));
}

TEST_F(DiskPlaceTest, WhatIsBeneathIsKnownWhetherItIsThereOrNot) {
    for (const char* path : {"store/kept", "store/new", "link/new/run", "store/kept/../run", "link/kept/x/y"}) {
        EXPECT_TRUE(at(path).is_beneath(at("store"))) << path;
        EXPECT_TRUE(at(path).is_at_or_beneath(at("link"))) << path;
    }
    EXPECT_TRUE(at("no/such/run").is_beneath(at("no/such")));
    EXPECT_TRUE(at("no/such/run").is_beneath(at("no")));
    for (const char* path : {"store", "store2/x", "link/../run", "run", "store/../run", "."})
        EXPECT_FALSE(at(path).is_beneath(at("store"))) << path;
    EXPECT_TRUE(at("store/").is_at_or_beneath(at("store")));
    EXPECT_FALSE(at("no/such").is_beneath(at("no/such")));
}

TEST_F(DiskPlaceTest, ARelativePathCountsFromTheWorkingDirectory) {
    const fs::path before = fs::current_path();
    fs::current_path(directory_ / "store");
    EXPECT_EQ(DiskPlace("."), at("store"));
    EXPECT_EQ(DiskPlace("kept"), at("store/kept"));
    EXPECT_EQ(DiskPlace("../new"), at("new"));
    EXPECT_TRUE(DiskPlace("run").is_beneath(at("store")));
    fs::current_path(before);
}

TEST_F(DiskPlaceTest, InAWorkingDirectoryThatIsGoneSpellingsAreAllThereIs) {
    const fs::path before = fs::current_path();
    fs::create_directory(directory_ / "gone");
    fs::current_path(directory_ / "gone");
    fs::remove(directory_ / "gone");
    EXPECT_EQ(DiskPlace("swap/"), DiskPlace("./swap"));
    EXPECT_FALSE(DiskPlace("swap") == DiskPlace("run"));
    EXPECT_TRUE(DiskPlace("swap/run").is_beneath(DiskPlace("swap")));
    EXPECT_EQ(at("link"), at("store"));
    fs::current_path(before);
}

TEST_F(DiskPlaceTest, ABindMountIsTheDirectoryThatItShows) {
    fs::create_directory(directory_ / "bound");
    const penstock::testing::MountOutcome outcome = penstock::testing::run_with_mounts(
        [&] {
            return ::mount((directory_ / "store").c_str(), (directory_ / "bound").c_str(), nullptr, MS_BIND, nullptr) ==
                   0;
        },
        [&]() -> std::string {
            if (!(at("bound") == at("store"))) return "not equal";
            if (!at("bound/run").is_beneath(at("store"))) return "not beneath";
            if (!at("store/kept/run").is_beneath(at("bound"))) return "not beneath the mount";
            return "right";
        });
    if (!outcome.allowed) GTEST_SKIP() << "nobody may mount here";
    EXPECT_EQ(outcome.text, "right");
}

}  // namespace
}  // namespace penstock::store
