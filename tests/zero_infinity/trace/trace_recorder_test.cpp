#include "zero_infinity/trace/trace_recorder.h"

#include <gtest/gtest.h>

#include <thread>

namespace penstock::testing {
namespace {

using zero::TraceThread;

TEST(TraceRecorder, OnlyWhatBeganInAStepIsRecordedAlsoWhereItEndsLater) {
    zero::TraceRecorder recorder(8);
    recorder.add(TraceThread::compute, recorder.start(), {.unit = 1});
    recorder.begin_step(7);
    const zero::TraceStart within = recorder.start();
    recorder.end_steps();
    recorder.add(TraceThread::compute, recorder.start(), {.unit = 2});
    recorder.add(TraceThread::compute, within, {.unit = 3});
    ASSERT_EQ(recorder.spans(TraceThread::compute).size(), 1U);
    const zero::TraceSpan& span = recorder.spans(TraceThread::compute).front();
    EXPECT_EQ(span.unit, 3U);
    EXPECT_EQ(span.step, 7U);
    EXPECT_EQ(span.begin_ns, within.begin_ns);
    EXPECT_GE(span.end_ns, span.begin_ns);
}

TEST(TraceRecorder, AFullBufferCountsWhatItLeavesOutAndStaysWhereItIs) {
    zero::TraceRecorder recorder(3);
    recorder.begin_step(1);
    const zero::TraceSpan* first = recorder.spans(TraceThread::driver).data();
    for (std::uint32_t unit = 0; unit < 5; ++unit) recorder.add(TraceThread::driver, recorder.start(), {.unit = unit});
    recorder.add(TraceThread::compute, recorder.start(), {.unit = 9});
    ASSERT_EQ(recorder.spans(TraceThread::driver).size(), 3U);
    EXPECT_EQ(recorder.spans(TraceThread::driver).data(), first);
    EXPECT_EQ(recorder.spans(TraceThread::driver).back().unit, 2U);
    EXPECT_EQ(recorder.spans(TraceThread::compute).size(), 1U);
    EXPECT_EQ(recorder.left_out(), 2U);
}

TEST(TraceRecorder, TwoThreadsAddEachToItsOwnInTheOrderOfTheirEnds) {
    constexpr std::uint32_t count = 20000;
    zero::TraceRecorder recorder(count);
    recorder.begin_step(1);
    const auto add = [&](TraceThread thread) {
        for (std::uint32_t unit = 0; unit < count; ++unit) recorder.add(thread, recorder.start(), {.unit = unit});
    };
    std::thread driver([&] { add(TraceThread::driver); });
    add(TraceThread::compute);
    driver.join();
    for (const TraceThread thread : {TraceThread::compute, TraceThread::driver}) {
        ASSERT_EQ(recorder.spans(thread).size(), count);
        for (std::uint32_t unit = 0; unit < count; ++unit) {
            ASSERT_EQ(recorder.spans(thread)[unit].unit, unit);
            if (unit == 0) continue;
            ASSERT_GE(recorder.spans(thread)[unit].end_ns, recorder.spans(thread)[unit - 1].end_ns);
        }
    }
    EXPECT_EQ(recorder.left_out(), 0U);
}

TEST(TraceRecorder, WithoutOneNothingHappens) {
    const zero::TraceStart start = zero::trace_start(nullptr);
    EXPECT_EQ(start.step, 0U);
    zero::trace_end(nullptr, TraceThread::compute, start, {});
}

}  // namespace
}  // namespace penstock::testing
