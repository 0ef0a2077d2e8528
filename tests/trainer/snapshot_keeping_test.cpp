#include "trainer/snapshot_keeping.h"

#include "aio/error.h"
#include "tests/temporary_directory.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace penstock {
namespace {

using Decision = KeepSchedule::Decision;

TEST(KeepSchedule, KeepsEachNthStepAndWhatIsAskedFor) {
    KeepSchedule schedule(3);
    EXPECT_EQ(schedule.step_ended(1, Asked::no, false), Decision::nothing);
    EXPECT_EQ(schedule.step_ended(2, Asked::yes, false), Decision::begin);
    EXPECT_EQ(schedule.step_ended(3, Asked::no, false), Decision::begin);
    EXPECT_EQ(schedule.step_ended(4, Asked::no, true), Decision::nothing);
    EXPECT_FALSE(schedule.take_waiting());
}

TEST(KeepSchedule, KeepsNothingByItselfWithoutANumber) {
    KeepSchedule schedule(0);
    for (int step = 1; step < 100; ++step) EXPECT_EQ(schedule.step_ended(step, Asked::no, false), Decision::nothing);
    EXPECT_EQ(schedule.step_ended(100, Asked::yes, false), Decision::begin);
}

TEST(KeepSchedule, NeverBeginsASecondCopyAndSaysOnceThatOneWaits) {
    KeepSchedule schedule(2);
    EXPECT_EQ(schedule.step_ended(2, Asked::no, false), Decision::begin);
    EXPECT_EQ(schedule.step_ended(3, Asked::no, true), Decision::nothing);
    EXPECT_EQ(schedule.step_ended(4, Asked::no, true), Decision::wait);
    EXPECT_EQ(schedule.step_ended(5, Asked::yes, true), Decision::nothing);
    EXPECT_EQ(schedule.step_ended(6, Asked::no, true), Decision::nothing);
    EXPECT_EQ(schedule.step_ended(7, Asked::no, false), Decision::begin) << "the one that waited";
    EXPECT_EQ(schedule.step_ended(9, Asked::no, false), Decision::nothing) << "one waits, not three";
    EXPECT_EQ(schedule.step_ended(10, Asked::no, true), Decision::wait);
    EXPECT_TRUE(schedule.take_waiting());
    EXPECT_FALSE(schedule.take_waiting());
}

TEST(FindSnapshot, TakesAStepANameOrAPath) {
    const TemporaryDirectory directory;
    const KeepOptions options{.folder = directory / "kept"};
    for (const char* name : {"kept/step-7", "kept/best", "elsewhere"})
        std::filesystem::create_directories(directory / name);
    EXPECT_EQ(find_snapshot(options, "7"), directory / "kept/step-7");
    EXPECT_EQ(find_snapshot(options, "best"), directory / "kept/best");
    EXPECT_EQ(find_snapshot(options, directory / "elsewhere"), directory / "elsewhere");
    EXPECT_THROW(find_snapshot(options, "elsewhere"), Error);
    EXPECT_THROW(find_snapshot(options, "8"), Error);
    EXPECT_THROW(find_snapshot(options, "99999999999999999999999"), Error);
}

}  // namespace
}  // namespace penstock
