#include "trainer/ckpt/retention.h"

#include "swap/directory/descriptor.h"
#include "tests/temporary_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace penstock::testing {
namespace {

TEST(Retention, OnlyFinishedStepsOfTheStoreBeyondTheCountGoOldestFirst) {
    EXPECT_EQ(trainer::step_name(100), "step-100");
    const store::StoreUuid own{std::byte{1}};
    const auto snapshot_of = [](const std::string& name, const store::StoreUuid& store, std::uint64_t generation) {
        store::ListedSnapshot snapshot{.name = name, .manifest = store::Manifest{}};
        snapshot.manifest->origin = store::Origin{.store = store, .generation = generation};
        return snapshot;
    };
    std::vector<store::ListedSnapshot> snapshots;
    for (const char* name : {"step-30", "step-4", "best", "step-200", "step-007", "step-x", "step-", "step-5"})
        snapshots.push_back(snapshot_of(name, own, 7));
    snapshots.push_back(snapshot_of("step-2", {std::byte{2}}, 7));  // another run's in the same folder
    snapshots.push_back({.name = "step-1", .manifest = {}, .problem = "unfinished"});
    const auto names = [&](std::uint64_t count) {
        std::vector<std::string> gone;
        for (const store::ListedSnapshot& snapshot : trainer::beyond_retention(snapshots, own, count))
            gone.push_back(snapshot.name);
        return gone;
    };
    EXPECT_EQ(names(2), (std::vector<std::string>{"step-4", "step-5"}));
    EXPECT_EQ(names(0), (std::vector<std::string>{"step-4", "step-5", "step-30", "step-200"}));
    EXPECT_TRUE(names(4).empty());
    EXPECT_TRUE(names(UINT64_MAX).empty());
    snapshots.push_back(snapshot_of("step-3", own, 8));  // of a run that went back: the newest
    EXPECT_EQ(names(1), (std::vector<std::string>{"step-4", "step-5", "step-30", "step-200"}));
}

TEST(Retention, WhatAKillLeftEmptyGoesAndNothingElse) {
    const TemporaryDirectory folder;
    for (const char* name : {"step-1", "step-2", "best", "step-007"}) std::filesystem::create_directory(folder / name);
    std::ofstream(folder / "step-2/lock") << "x";
    std::ofstream(folder / "step-3") << "";  // no directory
    for (const char* name : {"step-4", "step-5", "step-6"}) {
        std::filesystem::create_directory(folder / name);
        std::ofstream(folder / (std::string(name) + "/lock")) << "";
    }
    std::ofstream(folder / "step-5/data") << "";
    const store::Descriptor held(::open((folder / "step-6/lock").c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_EQ(::flock(held.get(), LOCK_EX | LOCK_NB), 0);
    EXPECT_EQ(trainer::remove_empty_snapshots(folder.path()), 2);
    for (const char* name : {"step-1", "step-4"}) EXPECT_FALSE(std::filesystem::exists(folder / name)) << name;
    for (const char* name : {"step-2/lock", "best", "step-007", "step-3", "step-5/lock", "step-6/lock"})
        EXPECT_TRUE(std::filesystem::exists(folder / name)) << name;
    EXPECT_EQ(trainer::remove_empty_snapshots(folder / "none"), 0);
}

}  // namespace
}  // namespace penstock::testing
