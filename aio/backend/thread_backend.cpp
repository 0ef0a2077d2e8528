// pread, pwrite and fdatasync on a few threads for each device: works wherever files work.
#include "aio/backend/attempt_list.h"
#include "aio/backend/backend_limits.h"
#include "aio/backend/blocked_signals.h"
#include "aio/backend/device_activity.h"
#include "aio/backend/perform.h"
#include "aio/backend/wake_event.h"
#include "aio/words/check.h"
#include "aio/words/error.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace penstock::aio {

namespace {

constexpr std::size_t max_threads = 256;  // per device
constexpr std::size_t max_crews = 16;     // further devices share the first one's

// The workers of one device, and what they have to do: they may all be stuck while another device's go on.
struct Crew {
    std::uint64_t device = 0;  // 0: free for the first that comes
    std::condition_variable work_there;
    AttemptList waiting;  // the backend's mutex
    std::vector<std::thread> workers;
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
    std::optional<std::uint64_t> sectors_written(std::uint64_t device) const noexcept override {
        return aio::sectors_written(device);
    }
    std::size_t depth() const noexcept override { return depth_; }
    const char* name() const noexcept override { return word_of(BackendKind::threads); }

   private:
    void start_crew(std::uint64_t device);
    Crew& crew_of(std::uint64_t device) noexcept;
    void stop_workers() noexcept;
    void work(Crew& crew) noexcept;
    Attempt* take_finished() noexcept;
    void sleep(std::chrono::nanoseconds timeout) noexcept;

    std::size_t depth_;
    std::size_t threads_per_device_;
    WakeEvent event_;  // something finished, or wake()

    // The owner's.
    std::size_t in_flight_ = 0;
    std::vector<std::unique_ptr<Crew>> crews_;  // in the order in which their devices came; the first is there at once

    std::mutex mutex_;
    AttemptList finished_;   // mutex_
    bool stopping_ = false;  // mutex_; workers end once nothing waits
};

ThreadBackend::ThreadBackend(const BackendOptions& options)
    : depth_(checked_depth(options.depth)), threads_per_device_(options.threads_per_device) {
    crews_.reserve(max_crews);
    try {
        start_crew(0);
    } catch (const std::system_error& error) {
        stop_workers();
        throw Error(ExitCode::storage,
                    fmt::format("cannot start {} I/O threads: {}; raise the limit on threads (ulimit -u)",
                                options.threads_per_device, error.code().message()));
    } catch (...) {  // no memory for the next one
        stop_workers();
        throw;
    }
}

ThreadBackend::~ThreadBackend() {
    PENSTOCK_CHECK(in_flight_ == 0, "the I/O threads are stopped with {} attempts in flight", in_flight_);
    stop_workers();
}

bool ThreadBackend::submit(Attempt& attempt) {
    if (in_flight_ == depth_) return false;
    ++in_flight_;
    Crew& crew = crew_of(attempt.device);
    {
        const std::lock_guard lock(mutex_);
        PENSTOCK_CHECK(!stopping_, "an attempt for the I/O threads after they were abandoned");
        crew.waiting.push(attempt);
    }
    crew.work_there.notify_one();
    return true;
}

// A device's crew is started with its first attempt. Where no more threads can be had, fewer serve it, or the first
// crew does.
Crew& ThreadBackend::crew_of(std::uint64_t device) noexcept {
    Crew& first = *crews_.front();
    if (first.device == 0) first.device = device;
    for (const std::unique_ptr<Crew>& crew : crews_) {
        if (crew->device == device) return *crew;
    }
    if (crews_.size() == max_crews) return first;
    try {
        start_crew(device);
    } catch (const std::exception&) {
        if (crews_.back()->workers.empty()) crews_.pop_back();
    }
    return crews_.back()->device == device ? *crews_.back() : first;
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
        AttemptList all;
        for (const std::unique_ptr<Crew>& crew : crews_) {
            while (!crew->waiting.empty()) all.push(crew->waiting.pop());
        }
        never_begun = all.take_all();
    }
    for (const std::unique_ptr<Crew>& crew : crews_) crew->work_there.notify_all();
    for (Attempt* attempt = never_begun; attempt != nullptr; attempt = attempt->next) {
        attempt->result = -ECANCELED;
        --in_flight_;
    }
    return never_begun;
}

void ThreadBackend::work(Crew& crew) noexcept {
    std::unique_lock lock(mutex_);
    for (;;) {
        crew.work_there.wait(lock, [&] { return stopping_ || !crew.waiting.empty(); });
        if (crew.waiting.empty()) return;
        Attempt& attempt = crew.waiting.pop();
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

// Throws what starting a thread throws; the crew has the workers that were started.
void ThreadBackend::start_crew(std::uint64_t device) {
    const BlockedSignals blocked;
    Crew& crew = *crews_.emplace_back(std::make_unique<Crew>());
    crew.device = device;
    crew.workers.reserve(threads_per_device_);
    for (std::size_t i = 0; i < threads_per_device_; ++i) crew.workers.emplace_back([this, &crew] { work(crew); });
}

void ThreadBackend::stop_workers() noexcept {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    for (const std::unique_ptr<Crew>& crew : crews_) crew->work_there.notify_all();
    for (const std::unique_ptr<Crew>& crew : crews_) {
        for (std::thread& worker : crew->workers) worker.join();
    }
    crews_.clear();
}

}  // namespace

std::unique_ptr<Backend> make_thread_backend(const BackendOptions& options) {
    PENSTOCK_CHECK(options.threads_per_device > 0 && options.threads_per_device <= max_threads,
                   "threads_per_device {} is not in 1..{}", options.threads_per_device, max_threads);
    return std::make_unique<ThreadBackend>(options);
}

}  // namespace penstock::aio
