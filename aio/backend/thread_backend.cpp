// pread, pwrite and fdatasync on a few threads: works wherever files work.
#include "aio/backend/attempt_list.h"
#include "aio/backend/backend_limits.h"
#include "aio/backend/perform.h"
#include "aio/backend/wake_event.h"
#include "aio/words/check.h"
#include "aio/words/error.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace penstock::aio {

namespace {

constexpr std::size_t max_threads = 256;

// Signals belong to the threads of the program, so workers are born with all of them blocked.
class BlockedSignals {
   public:
    BlockedSignals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    BlockedSignals(const BlockedSignals&) = delete;
    BlockedSignals& operator=(const BlockedSignals&) = delete;

   private:
    sigset_t before_;
};

// A worker that is stuck in the kernel keeps its attempt, with the memory behind it, and this object: when the system
// call ends it writes the result, puts the attempt on finished_ and writes to the eventfd. It touches nothing else, and
// ends when abandon() or the destructor said so. That is why a backend that is stuck is never destroyed: it would wait
// for the worker.
class ThreadBackend final : public Backend {
   public:
    explicit ThreadBackend(const BackendOptions& options);
    ~ThreadBackend() override;

    bool submit(Attempt& attempt) override;
    Attempt* reap(std::chrono::nanoseconds timeout) override;
    void wake() noexcept override { event_.signal(); }
    Attempt* abandon() noexcept override;
    std::chrono::steady_clock::time_point now() const noexcept override { return std::chrono::steady_clock::now(); }
    int ready_fd() override { return event_.fd(); }
    std::size_t depth() const noexcept override { return depth_; }
    const char* name() const noexcept override { return word_of(BackendKind::threads); }

   private:
    void start_workers(std::size_t count);
    void stop_workers() noexcept;
    void work() noexcept;
    Attempt* take_finished() noexcept;
    void sleep(std::chrono::nanoseconds timeout) noexcept;

    std::size_t depth_;
    WakeEvent event_;  // something finished, or wake()

    // The owner's.
    std::size_t in_flight_ = 0;

    std::mutex mutex_;
    std::condition_variable work_there_;
    AttemptList waiting_;    // mutex_
    AttemptList finished_;   // mutex_
    bool stopping_ = false;  // mutex_; workers end once nothing waits

    std::vector<std::thread> workers_;
};

ThreadBackend::ThreadBackend(const BackendOptions& options) : depth_(checked_depth(options.depth)) {
    try {
        start_workers(options.thread_count);
    } catch (const std::system_error& error) {
        stop_workers();
        throw Error(ExitCode::storage,
                    fmt::format("cannot start {} I/O threads: {}; raise the limit on threads (ulimit -u)",
                                options.thread_count, error.code().message()));
    }
}

ThreadBackend::~ThreadBackend() {
    PENSTOCK_CHECK(in_flight_ == 0, "the I/O threads are stopped with {} attempts in flight", in_flight_);
    stop_workers();
}

bool ThreadBackend::submit(Attempt& attempt) {
    if (in_flight_ == depth_) return false;
    ++in_flight_;
    {
        const std::lock_guard lock(mutex_);
        PENSTOCK_CHECK(!stopping_, "an attempt for the I/O threads after they were abandoned");
        waiting_.push(attempt);
    }
    work_there_.notify_one();
    return true;
}

Attempt* ThreadBackend::reap(std::chrono::nanoseconds timeout) {
    const bool polls = timeout <= std::chrono::nanoseconds(0);
    if (polls) event_.take();  // before what it speaks of is taken, so that nothing is missed
    Attempt* finished = take_finished();
    if (finished != nullptr || polls) return finished;
    sleep(timeout);
    return take_finished();
}

// The workers that are not stuck end now: nothing is left for them to do.
Attempt* ThreadBackend::abandon() noexcept {
    Attempt* never_begun = nullptr;
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        never_begun = waiting_.take_all();
    }
    work_there_.notify_all();
    for (Attempt* attempt = never_begun; attempt != nullptr; attempt = attempt->next) {
        attempt->result = -ECANCELED;
        --in_flight_;
    }
    return never_begun;
}

void ThreadBackend::work() noexcept {
    std::unique_lock lock(mutex_);
    for (;;) {
        work_there_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        Attempt& attempt = waiting_.pop();
        lock.unlock();
        const std::int32_t result = perform(attempt);
        lock.lock();
        const bool first = finished_.empty();
        finished_.push(attempt, result);
        if (first) wake();  // the owner takes them all, so it need not hear of each
    }
}

Attempt* ThreadBackend::take_finished() noexcept {
    Attempt* finished = nullptr;
    {
        const std::lock_guard lock(mutex_);
        finished = finished_.take_all();
    }
    for (const Attempt* attempt = finished; attempt != nullptr; attempt = attempt->next) --in_flight_;
    return finished;
}

void ThreadBackend::sleep(std::chrono::nanoseconds timeout) noexcept {
    const auto limit = bounded_timespec<timespec>(timeout);
    pollfd event = {.fd = event_.fd(), .events = POLLIN, .revents = 0};
    if (::ppoll(&event, 1, &limit, nullptr) <= 0) return;
    event_.take();
}

void ThreadBackend::start_workers(std::size_t count) {
    const BlockedSignals blocked;
    workers_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) workers_.emplace_back([this] { work(); });
}

void ThreadBackend::stop_workers() noexcept {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    work_there_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
}

}  // namespace

std::unique_ptr<Backend> make_thread_backend(const BackendOptions& options) {
    PENSTOCK_CHECK(options.thread_count > 0 && options.thread_count <= max_threads, "thread_count {} is not in 1..{}",
                   options.thread_count, max_threads);
    return std::make_unique<ThreadBackend>(options);
}

}  // namespace penstock::aio
