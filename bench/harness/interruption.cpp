#include "bench/harness/interruption.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace penstock::bench {
namespace {

sigset_t stopping_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int one : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&signals, one);
    return signals;
}

}  // namespace

Interruption::Interruption() {
    const sigset_t signals = stopping_signals();
    PENSTOCK_CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0, "errno {}", errno);
    fd_ = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd_ >= 0) return;
    const int error = errno;
    throw Error(ExitCode::storage,
                fmt::format("signalfd, to take signals: {}; raise the limit on open files (ulimit -n), or allow the "
                            "call in the container's seccomp profile",
                            aio::errno_text(error)));
}

Interruption::~Interruption() {
    ::close(fd_);
    const sigset_t signals = stopping_signals();
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

void Interruption::check() {
    signalfd_siginfo info{};
    if (::read(fd_, &info, sizeof(info)) == sizeof(info)) came_ = true;
    if (came_) throw Error(ExitCode::interrupted, "stopped by a signal; what was made for measuring is removed");
}

}  // namespace penstock::bench
