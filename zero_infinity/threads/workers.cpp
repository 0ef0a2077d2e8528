#include "zero_infinity/threads/workers.h"

#include "aio/words/check.h"
#include "aio/words/error.h"

#include <fmt/format.h>

#include <atomic>
#include <cfenv>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace penstock::zero {
namespace {

// The default arithmetic of the processor while it lives: a caller may flush subnormals to zero (torch's
// setFlushDenormal) and the threads may not, and then who takes which piece would decide the bits.
class DefaultArithmetic {
   public:
    DefaultArithmetic() noexcept {
        std::fegetenv(&callers_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~DefaultArithmetic() { std::fesetenv(&callers_); }
    DefaultArithmetic(const DefaultArithmetic&) = delete;
    DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;

   private:
    std::fenv_t callers_;
};

}  // namespace

struct Workers::State {
    // One call of run(). Indices are handed out by `next`, so a slow thread delays at most one piece of work.
    struct Job {
        void (*work)(void*, std::size_t) = nullptr;
        void* context = nullptr;
        std::size_t count = 0;
    };

    std::vector<std::thread> threads;
    std::atomic<std::size_t> next{0};
    std::atomic<bool> running{false};  // guards against a second caller

    std::mutex mutex;
    std::condition_variable started;
    std::condition_variable ended;
    Job job;                   // guarded by mutex
    std::uint64_t number = 0;  // of the job; guarded by mutex
    std::size_t active = 0;    // threads that have not ended the job; guarded by mutex
    bool stopping = false;     // guarded by mutex

    void work_on(const Job& taken) noexcept {
        const DefaultArithmetic arithmetic;
        for (std::size_t i = next.fetch_add(1); i < taken.count; i = next.fetch_add(1)) taken.work(taken.context, i);
    }

    void thread_main() noexcept {
        std::uint64_t done = 0;
        for (;;) {
            Job taken;
            {
                std::unique_lock lock(mutex);
                started.wait(lock, [&] { return stopping || number != done; });
                if (stopping) return;
                done = number;
                taken = job;
            }
            work_on(taken);
            const std::lock_guard lock(mutex);
            if (--active == 0) ended.notify_one();
        }
    }

    void stop() noexcept {
        {
            const std::lock_guard lock(mutex);
            stopping = true;
        }
        started.notify_all();
        for (std::thread& thread : threads) thread.join();
    }
};

void Workers::run_erased(std::size_t count, void (*work)(void*, std::size_t), void* context) noexcept {
    State& state = *state_;
    PENSTOCK_CHECK(!state.running.exchange(true), "Workers::run() was called while another call is under way");
    const State::Job job{work, context, count};
    state.next = 0;
    const bool alone = state.threads.empty() || count < 2;
    if (!alone) {
        const std::lock_guard lock(state.mutex);
        state.job = job;
        state.active = state.threads.size();
        ++state.number;
        state.started.notify_all();
    }
    state.work_on(job);
    if (!alone) {
        std::unique_lock lock(state.mutex);
        state.ended.wait(lock, [&] { return state.active == 0; });
    }
    state.running = false;
}

Workers::Workers(unsigned thread_count) : state_(std::make_unique<State>()) {
    PENSTOCK_CHECK(thread_count > 0, "a set of workers needs a thread");
    state_->threads.reserve(thread_count - 1);
    try {
        for (unsigned i = 1; i < thread_count; ++i) state_->threads.emplace_back([this] { state_->thread_main(); });
    } catch (const std::exception& error) {  // system_error or bad_alloc
        const std::size_t started = state_->threads.size();
        state_->stop();
        throw Error(ExitCode::out_of_memory,
                    fmt::format("cannot start worker thread {} of {}: {}; use fewer threads or raise the limit of "
                                "processes",
                                started + 2, thread_count, error.what()));
    }
}

Workers::~Workers() {
    state_->stop();
}

unsigned Workers::thread_count() const noexcept {
    return static_cast<unsigned>(state_->threads.size()) + 1;
}

}  // namespace penstock::zero
