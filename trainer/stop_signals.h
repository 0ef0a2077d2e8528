// SIGINT and SIGTERM: the first lets the running step finish, the second ends the process at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace penstock {

// A thread of its own takes the signals, so that nothing is done in a signal handler. Made before any other thread,
// because threads inherit which signals they do not take.
class StopSignals {
   public:
    enum class Reaction : std::uint8_t {
        end_at_once,  // as if there were no StopSignals: what is not committed is lost
        finish_step,  // the first signal sets requested() and says so on standard error
    };

    StopSignals();
    ~StopSignals();
    StopSignals(const StopSignals&) = delete;
    StopSignals& operator=(const StopSignals&) = delete;

    // Any thread.
    void react(Reaction reaction) noexcept { reaction_ = reaction; }
    bool requested() const noexcept { return requested_; }

   private:
    void watch();

    int signal_fd_ = -1;
    int end_fd_ = -1;
    std::atomic<Reaction> reaction_{Reaction::end_at_once};
    std::atomic<bool> requested_{false};
    std::thread watcher_;
};

}  // namespace penstock
