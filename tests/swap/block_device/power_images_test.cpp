// The store on a real file system on a disk whose power fails. Needs root, FUSE and loop devices; says so where it
// cannot run.
#include "tests/swap/block_device/power_images.h"

#include "tests/seeds.h"
#include "tests/swap/directory/mounts.h"

#include <gtest/gtest.h>

#include <chrono>
#include <iostream>

namespace penstock::testing {
namespace {

// Of one recording. On xfs each mount takes longer.
std::uint64_t usual_images(FileSystem kind) {
    return kind == FileSystem::ext4 ? 220 : 110;
}

class PowerImagesOn : public ::testing::TestWithParam<FileSystem> {};

// In the child: mounts are its own.
std::string cut_many(FileSystem kind, PowerImages& power) {
    const std::uint64_t first = first_seed();
    const std::uint64_t count = seed_count(1);
    std::cout << replay(first) << " --runs=" << count << '\n';
    const auto start = std::chrono::steady_clock::now();
    std::string wrong;
    for (std::uint64_t seed = first; seed < first + count && wrong.empty(); ++seed) {
        for (const std::string& complaint : power.run(seed, usual_images(kind)))
            wrong += complaint + '\n' + replay(seed);
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    const PowerTally& tally = power.tally();
    std::cout << "RESULT power cuts on " << to_string(kind) << ": " << to_string(tally)
              << "; seconds: " << seconds.count() << std::endl;
    if (wrong.empty() && (tally.images < 100 || tally.torn == 0 || tally.newer_than_told == 0))
        wrong = "the cuts have shown nothing: " + to_string(tally);
    return wrong;
}

TEST_P(PowerImagesOn, NothingThatWasReportedIsLostAtAnyCut) {
    const FileSystem kind = GetParam();
    if (!can_make(kind)) GTEST_SKIP() << "mkfs." << to_string(kind) << " is not installed";
    const TemporaryDirectory scratch(aio::quick_temporary_path());
    std::unique_ptr<PowerImages> power;
    std::string refusal;
    const MountOutcome outcome = run_with_mounts(
        [&] {
            try {
                power = std::make_unique<PowerImages>(scratch.file(""), kind, std::filesystem::temp_directory_path());
            } catch (const std::exception& error) {
                std::cout << error.what() << std::endl;
            }
            return power != nullptr;
        },
        [&] {
            const std::string wrong = cut_many(kind, *power);
            power.reset();
            return wrong;
        });
    if (!outcome.allowed) GTEST_SKIP() << "power cuts need root, /dev/fuse and loop devices";
    EXPECT_EQ(outcome.text, "");
}

INSTANTIATE_TEST_SUITE_P(All, PowerImagesOn, ::testing::Values(FileSystem::ext4, FileSystem::xfs),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace penstock::testing
