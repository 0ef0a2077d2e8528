#include "trainer/cli/stop_signals.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>

namespace penstock::trainer {
namespace {

sigset_t taken_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGUSR1);
    struct sigaction hangup {};
    const bool ignored = ::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler == SIG_IGN;
    if (!ignored) sigaddset(&signals, SIGHUP);  // a signal that is ignored would come through a signalfd all the same
    return signals;
}

[[noreturn]] void refuse(const char* call, int errno_value) {
    const bool full = errno_value == EMFILE || errno_value == ENFILE;
    throw Error(ExitCode::storage, fmt::format("{}, to take signals: {}; {}", call, aio::errno_text(errno_value),
                                               full ? "raise the limit on open files (ulimit -n)"
                                                    : "a container's seccomp profile forbids it, perhaps: allow the "
                                                      "call"));
}

}  // namespace

void StopSignals::end_by(int signal) {
    const sigset_t signals = taken_signals();
    std::signal(signal, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    ::raise(signal);
    ::_exit(128 + signal);
}

StopSignals::StopSignals() {
    const sigset_t signals = taken_signals();
    if (const int error = pthread_sigmask(SIG_BLOCK, &signals, nullptr); error != 0) refuse("rt_sigprocmask", error);
    signal_fd_ = ::signalfd(-1, &signals, SFD_CLOEXEC);
    if (signal_fd_ < 0) refuse("signalfd", errno);
    end_fd_ = ::eventfd(0, EFD_CLOEXEC);
    if (end_fd_ < 0) refuse("eventfd", errno);
    pollfd none{.fd = end_fd_, .events = POLLIN, .revents = 0};
    if (::poll(&none, 1, 0) < 0 && errno != EINTR) refuse("poll", errno);
    watcher_ = std::thread([this] { watch(); });
}

StopSignals::~StopSignals() {
    const std::uint64_t one = 1;
    PENSTOCK_CHECK(::write(end_fd_, &one, sizeof(one)) == sizeof(one), "errno {}", errno);
    watcher_.join();
    ::close(signal_fd_);
    ::close(end_fd_);
    if (reaction_ == Reaction::hurry) return;
    const sigset_t signals = taken_signals();
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

void StopSignals::watch() {
    std::array<pollfd, 2> waits = {{{signal_fd_, POLLIN, 0}, {end_fd_, POLLIN, 0}}};
    while (true) {
        if (::poll(waits.data(), waits.size(), -1) < 0) continue;  // EINTR
        if (waits[1].revents != 0) return;
        signalfd_siginfo info{};
        if (::read(signal_fd_, &info, sizeof(info)) != sizeof(info)) continue;
        if (info.ssi_signo == SIGUSR1)
            snapshot_ = true;
        else
            stop(static_cast<int>(info.ssi_signo));
    }
}

void StopSignals::say(std::string_view line) const {
    if (!quiet_) [[maybe_unused]]
        const ssize_t ignored = ::write(STDERR_FILENO, line.data(), line.size());
}

void StopSignals::stop(int signal) {
    const Reaction reaction = reaction_;
    if (reaction == Reaction::finish_step && !requested()) {
        requested_by_ = signal;
        say("\npenstock: stopping after this step; a second signal ends at once\n");
    } else if (reaction == Reaction::end_copy && !copy_unwanted_) {
        copy_unwanted_ = true;
        say("\npenstock: ending the copy; another signal ends at once\n");
    } else if (reaction == Reaction::hurry && !in_haste_) {
        in_haste_ = true;
        say("\npenstock: ending; another signal ends at once\n");
    } else {
        end_by(signal);
    }
}

}  // namespace penstock::trainer
