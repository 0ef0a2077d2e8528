#include "trainer/ckpt/retention.h"

#include <gtest/gtest.h>

#include <cstdint>

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

}  // namespace
}  // namespace penstock::testing
