#include "zero_infinity/threads/job_thread.h"

#include "aio/words/check.h"
#include "aio/words/error.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

namespace penstock::zero {

JobThread::JobThread(std::function<void(const Error&)> failed) : failed_(std::move(failed)) {
    try {
        thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& error) {
        throw Error(ExitCode::out_of_memory,
                    fmt::format("cannot start a thread: {}; raise the limit of processes", error.what()));
    }
}

JobThread::~JobThread() {
    stop();
}

JobThread::Number JobThread::post(std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    PENSTOCK_CHECK(!stopping_, "a job is posted after the end");
    waiting_.push_back(std::move(job));
    posted_.notify_one();
    return ++given_;
}

void JobThread::wait(Number number) {
    std::unique_lock lock(mutex_);
    PENSTOCK_CHECK(number <= given_ && !stopping_, "job {} is waited for, of {}", number, given_);
    ended_.wait(lock, [&] { return done_ >= number || failure_; });
    if (failure_) std::rethrow_exception(failure_);
}

void JobThread::finish() {
    wait(given_);  // which its owner alone changes
}

void JobThread::stop() noexcept {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    posted_.notify_one();
    if (thread_.joinable()) thread_.join();
}

std::exception_ptr JobThread::thrown_by(const std::function<void()>& job) const noexcept {
    try {
        job();
        return nullptr;
    } catch (const Error& error) {
        if (failed_) failed_(error);
        return std::current_exception();
    } catch (...) {
        return std::current_exception();
    }
}

void JobThread::run() noexcept {
    std::unique_lock lock(mutex_);
    for (;;) {
        posted_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
        if (stopping_ || failure_) return;
        const std::function<void()> job = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        const std::exception_ptr thrown = thrown_by(job);
        lock.lock();
        failure_ = thrown;
        ++done_;
        ended_.notify_one();
        if (thrown) return;
    }
}

}  // namespace penstock::zero
