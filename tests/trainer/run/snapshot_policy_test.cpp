#include "trainer/run/snapshot_policy.h"

#include <gtest/gtest.h>

namespace penstock::trainer {
namespace {

using Decision = SnapshotSchedule::Decision;

TEST(SnapshotSchedule, KeepsEachNthStepAndWhatIsAskedFor) {
    SnapshotSchedule schedule(3);
    EXPECT_EQ(schedule.step_ended(1, Asked::no, false), Decision::nothing);
    EXPECT_EQ(schedule.step_ended(2, Asked::yes, false), Decision::begin);
    EXPECT_EQ(schedule.step_ended(3, Asked::no, false), Decision::begin);
    EXPECT_EQ(schedule.step_ended(4, Asked::no, true), Decision::nothing);
    EXPECT_FALSE(schedule.take_waiting());
}

TEST(SnapshotSchedule, KeepsNothingByItselfWithoutANumber) {
    SnapshotSchedule schedule(0);
    for (int step = 1; step < 100; ++step) EXPECT_EQ(schedule.step_ended(step, Asked::no, false), Decision::nothing);
    EXPECT_EQ(schedule.step_ended(100, Asked::yes, false), Decision::begin);
}

TEST(SnapshotSchedule, NeverBeginsASecondCopyAndSaysOnceThatOneWaits) {
    SnapshotSchedule schedule(2);
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

}  // namespace
}  // namespace penstock::trainer
