#include "zero_infinity/threads/job_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace penstock::zero {
namespace {

// Plain memory, no atomics: ThreadSanitizer fails here when a job is handed over or back without synchronisation.
TEST(JobThread, DoesJobsInTheirOrderAndHandsBackWhatTheyWrote) {
    JobThread jobs;
    std::vector<int> done;
    JobThread::Number last = 0;
    for (int round = 0; round < 20; ++round) {
        for (int job = 0; job < 10; ++job) last = jobs.post([&done, job, round] { done.push_back(10 * round + job); });
        jobs.wait(last);
        ASSERT_EQ(done.size(), 10U * static_cast<std::size_t>(round + 1));
    }
    for (std::size_t at = 0; at < done.size(); ++at) EXPECT_EQ(done[at], static_cast<int>(at));
    jobs.wait(1);  // long done
}

TEST(JobThread, WaitsForTheJobAndNotForThoseBehindIt) {
    JobThread jobs;
    std::atomic<bool> open{false};
    const JobThread::Number first = jobs.post([] {});
    const JobThread::Number second = jobs.post([&] {
        while (!open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    jobs.wait(first);
    open = true;
    jobs.wait(second);
}

TEST(JobThread, AJobThatThrowsEndsItForAllThatFollows) {
    JobThread jobs;
    std::atomic<int> done{0};
    const JobThread::Number first = jobs.post([&] { ++done; });
    const JobThread::Number bad = jobs.post([] { throw std::runtime_error("no"); });
    EXPECT_THROW(jobs.wait(bad), std::runtime_error);
    EXPECT_THROW(jobs.wait(first), std::runtime_error);
    EXPECT_THROW(jobs.post([&] { ++done; }), std::runtime_error);
    EXPECT_EQ(done, 1);
}

TEST(JobThread, TellsOfAFailureBeforeWhoWaits) {
    std::string told;
    JobThread jobs([&](const Error& error) { told = error.what(); });
    const JobThread::Number bad = jobs.post([] { throw Error(ExitCode::storage, "no room"); });
    EXPECT_THROW(jobs.wait(bad), Error);
    EXPECT_EQ(told, "no room");
}

TEST(JobThread, StopWaitsForTheJobUnderWayAndLeavesThoseBehindIt) {
    std::atomic<bool> begun{false}, ended{false}, left{true};
    JobThread jobs;
    jobs.post([&] {
        begun = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        ended = true;
    });
    jobs.post([&] { left = false; });
    while (!begun) std::this_thread::yield();
    jobs.stop();
    EXPECT_TRUE(ended);
    EXPECT_TRUE(left);
}

}  // namespace
}  // namespace penstock::zero
