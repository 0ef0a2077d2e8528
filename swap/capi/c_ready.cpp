#include "swap/capi/c_ready.h"

#include "aio/words/error.h"
#include "aio/words/io_error.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <cerrno>

namespace penstock::store {
namespace {

constexpr long tick_ns = 10'000'000;
constexpr long tick_without_signal_ns = 1'000'000;

[[noreturn]] void fail(const char* call, int errno_value) {
    const bool full = errno_value == EMFILE || errno_value == ENFILE;
    throw Error(ExitCode::storage, fmt::format("{}: {}; {}", call, aio::errno_text(errno_value),
                                               full ? "raise the limit on open files (ulimit -n)"
                                                    : "free some memory, or raise fs.epoll.max_user_watches (sysctl)"));
}

Descriptor made(int fd, const char* call) {
    if (fd < 0) fail(call, errno);
    return Descriptor(fd);
}

}  // namespace

ReadyDescriptor::ReadyDescriptor(int backend_fd)
    : backend_fd_(backend_fd),
      timer_(made(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), "timerfd_create")),
      epoll_(made(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")) {
    watch(event_.fd());
    watch(timer_.get());
    if (backend_fd_ >= 0) watch(backend_fd_);
}

void ReadyDescriptor::watch(int fd) {
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    wanted.data.fd = fd;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &wanted) == 0) return;
    fail("epoll_ctl", errno);
}

// Setting a timer also takes back that it had expired.
void ReadyDescriptor::update(bool results, bool in_flight) noexcept {
    itimerspec next{};
    if (in_flight) next.it_value.tv_nsec = backend_fd_ >= 0 ? tick_ns : tick_without_signal_ns;
    [[maybe_unused]] const int set = ::timerfd_settime(timer_.get(), 0, &next, nullptr);
    if (results == results_) return;
    results_ = results;
    results ? event_.signal() : event_.take();
}

void ReadyDescriptor::drop_backend() noexcept {
    if (backend_fd_ < 0) return;
    [[maybe_unused]] const int dropped = ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, backend_fd_, nullptr);
    backend_fd_ = -1;
}

}  // namespace penstock::store
