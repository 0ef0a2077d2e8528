#include "aio/backend/wake_event.h"

#include "aio/words/error.h"
#include "aio/words/io_error.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace penstock::aio {

namespace {

const char* remedy(int errno_value) {
    switch (errno_value) {
        case EMFILE:
        case ENFILE:
            return "raise the limit on open files (ulimit -n)";
        case EPERM:
        case EACCES:
        case ENOSYS:
            return "a container's seccomp profile forbids it: allow the call";
        default:
            return "the kernel refuses it: free some memory";
    }
}

}  // namespace

WakeEvent::WakeEvent() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ >= 0) return;
    const int error = errno;
    throw Error(ExitCode::storage, fmt::format("eventfd: {}; {}", errno_text(error), remedy(error)));
}

WakeEvent::~WakeEvent() {
    ::close(fd_);
}

void WakeEvent::signal() noexcept {
    const int saved = errno;  // of what the signal has interrupted
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(fd_, &one, sizeof one);  // fails only when already readable
    errno = saved;
}

void WakeEvent::take() noexcept {
    std::uint64_t signals = 0;
    [[maybe_unused]] const ssize_t taken = ::read(fd_, &signals, sizeof signals);
}

}  // namespace penstock::aio
