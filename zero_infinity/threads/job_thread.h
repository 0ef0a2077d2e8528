// A thread that does one job after another, in the order in which they were given to it.
#pragma once

#include "aio/words/error.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace penstock::zero {

// One owner's thread posts, waits and stops; jobs run on another. A job that throws ends it: those behind it are not
// done, and every later call but stop() throws what it has thrown.
//
//   JobThread jobs;
//   const JobThread::Number number = jobs.post([&] { update(unit); });
//   …                                                                  // meanwhile
//   jobs.wait(number);
class JobThread {
   public:
    using Number = std::uint64_t;  // of a job: counts from 1

    // `failed`: told what a job has thrown, on the jobs' thread, before who waits. Throws Error (out_of_memory) when
    // the system gives no more threads.
    explicit JobThread(std::function<void(const Error&)> failed = {});
    // As stop().
    ~JobThread();
    JobThread(const JobThread&) = delete;
    JobThread& operator=(const JobThread&) = delete;

    Number post(std::function<void()> job);
    void wait(Number number);  // until it and those before it are done; what they wrote is then visible to the caller
    void finish();             // all of them
    // Waits for the job under way, as long as it takes; those behind it are not done. Nothing but the destructor
    // follows.
    void stop() noexcept;

   private:
    void run() noexcept;
    std::exception_ptr thrown_by(const std::function<void()>& job) const noexcept;  // null: nothing

    const std::function<void(const Error&)> failed_;
    std::mutex mutex_;  // over all that follows but the thread
    std::condition_variable posted_, ended_;
    std::deque<std::function<void()>> waiting_;
    Number given_ = 0, done_ = 0;
    std::exception_ptr failure_;
    bool stopping_ = false;

    std::thread thread_;  // starts last
};

}  // namespace penstock::zero
