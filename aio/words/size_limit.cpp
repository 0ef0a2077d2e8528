#include "aio/words/size_limit.h"

#include <sys/resource.h>

#include <cerrno>
#include <ctime>
#include <limits>

namespace penstock::aio {

std::uint64_t longest_file_bytes() noexcept {
    rlimit limit{};
    const bool limited = ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return limited ? limit.rlim_cur : std::numeric_limits<std::uint64_t>::max();
}

NoSizeSignal::NoSizeSignal() noexcept
    : blocks_(longest_file_bytes() != std::numeric_limits<std::uint64_t>::max()), signal_(), before_() {
    if (!blocks_) return;
    sigset_t pending;
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGXFSZ) == 1;
    ::sigemptyset(&signal_);
    ::sigaddset(&signal_, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &signal_, &before_);
}

NoSizeSignal::~NoSizeSignal() {
    if (!blocks_) return;
    const int saved = errno;  // of the call that this stands around
    const timespec at_once{};
    while (!was_pending_ && ::sigtimedwait(&signal_, nullptr, &at_once) < 0 && errno == EINTR) continue;
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = saved;
}

}  // namespace penstock::aio
