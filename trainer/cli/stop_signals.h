// SIGINT, SIGTERM and SIGHUP: the first lets the running step finish, the second ends the process at once; once the run
// is done, the first changes nothing any more. SIGUSR1 asks for a snapshot. A SIGHUP that is ignored at the start
// (nohup) stays ignored.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <thread>

namespace penstock::trainer {

// A thread of its own takes the signals, so that nothing is done in a signal handler. Made before any other thread,
// because threads inherit which signals they do not take.
class StopSignals {
   public:
    enum class Reaction : std::uint8_t {
        end_at_once,  // as if there were no StopSignals: what is not committed is lost
        finish_step,  // the first signal sets requested() and says so on standard error
        end_copy,     // the next signal sets copy_unwanted(); nothing but a copy is waited for
        // The run's outcome stands, and so does its exit code: the next signal sets in_haste(), and what comes when
        // nobody takes signals any more is nobody's.
        hurry,
    };

    // Throws Error (storage): the system has no descriptors for it.
    StopSignals();
    ~StopSignals();
    StopSignals(const StopSignals&) = delete;
    StopSignals& operator=(const StopSignals&) = delete;

    // What is asked for is not said: another process of the run speaks.
    void keep_quiet() noexcept { quiet_ = true; }
    // Any thread.
    void react(Reaction reaction) noexcept { reaction_ = reaction; }
    bool requested() const noexcept { return requested_by_ != 0; }
    int requested_by() const noexcept { return requested_by_; }  // the signal; 0: none
    bool copy_unwanted() const noexcept { return copy_unwanted_; }
    bool in_haste() const noexcept { return in_haste_; }
    bool take_snapshot_request() noexcept { return snapshot_.exchange(false); }  // SIGUSR1 came since the last call

    // Ends the process as that signal would have.
    [[noreturn]] static void end_by(int signal);

   private:
    void watch();
    void stop(int signal);
    void say(std::string_view line) const;

    int signal_fd_ = -1;
    int end_fd_ = -1;
    std::atomic<Reaction> reaction_{Reaction::end_at_once};
    std::atomic<int> requested_by_{0};
    std::atomic<bool> copy_unwanted_{false};
    std::atomic<bool> in_haste_{false};
    std::atomic<bool> snapshot_{false};
    std::atomic<bool> quiet_{false};
    std::thread watcher_;
};

}  // namespace penstock::trainer
