#include "bench/harness/interruption.h"

#include "aio/words/check.h"
#include "aio/words/error.h"

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
    PENSTOCK_CHECK(fd_ >= 0, "errno {}", errno);
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
