#include "swap/hashing/twice_read.h"

#include <gtest/gtest.h>

namespace penstock::testing {
namespace {

using store::TwiceRead;
using Verdict = TwiceRead::Verdict;

TEST(TwiceRead, WhatIsWrongIsReadOnceMoreAndDamagedWhenItIsWrongAgain) {
    TwiceRead reading;
    reading.begin();
    EXPECT_EQ(reading.judge(true), Verdict::right);
    reading.begin();
    EXPECT_EQ(reading.judge(false), Verdict::again);
    EXPECT_EQ(reading.judge(true), Verdict::right_again);
    reading.begin();
    EXPECT_EQ(reading.judge(false), Verdict::again);
    EXPECT_EQ(reading.judge(false), Verdict::damaged);
}

// A device's error ends an operation between its two readings; the next one begins anew.
TEST(TwiceRead, TheNextReadingHasTwoTriesWhateverBecameOfTheLast) {
    TwiceRead reading;
    reading.begin();
    EXPECT_EQ(reading.judge(false), Verdict::again);
    reading.begin();
    EXPECT_EQ(reading.judge(false), Verdict::again);
}

}  // namespace
}  // namespace penstock::testing
