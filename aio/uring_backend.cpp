// The only file that knows liburing. Nothing newer than Linux 5.10 is used, so nothing needs a probe but the operations
// themselves; no SQPOLL and no IOPOLL (on two busy cores the first collapses, on virtio the second fails every read).
#include "aio/backend.h"
#include "aio/check.h"

#include <fmt/format.h>
#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace penstock {

namespace {

// Places in the ring beside the attempts: the poll on the eventfd, and the timeouts that liburing puts into the ring on
// kernels without IORING_FEAT_EXT_ARG (before 5.11).
constexpr unsigned extra_entries = 8;
constexpr std::size_t max_depth = 4096;
constexpr std::size_t batch = 64;
constexpr std::chrono::nanoseconds longest_wait = std::chrono::hours(1);  // the kernel adds it to its clock

const char* likely_cause(int errno_value) {
    switch (errno_value) {
        case ENOSYS:
            return "the kernel has no io_uring or a container's seccomp profile hides it";
        case EPERM:
        case EACCES:
            return "a container's seccomp profile or the sysctl kernel.io_uring_disabled forbids it";
        case ENOMEM:
            return "the limit on locked memory (ulimit -l) is too small for this kernel";
        case EMFILE:
        case ENFILE:
            return "the limit on open files (ulimit -n) is reached";
        default:
            return "the kernel refuses it";
    }
}

[[noreturn]] void refuse(const char* call, int errno_value) {
    throw Error(ExitCode::storage, fmt::format("{}: {}; {}", call, errno_text(errno_value), likely_cause(errno_value)));
}

struct Ring {
    explicit Ring(unsigned entries) {
        if (const int error = io_uring_queue_init(entries, &ring, 0); error < 0) refuse("io_uring_setup", -error);
    }
    ~Ring() { io_uring_queue_exit(&ring); }
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;
    io_uring ring{};
};

struct EventFd {
    EventFd() : fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        if (fd < 0) refuse("eventfd", errno);
    }
    ~EventFd() { ::close(fd); }
    EventFd(const EventFd&) = delete;
    EventFd& operator=(const EventFd&) = delete;
    int fd;
};

void require_operations(io_uring& ring) {
    io_uring_probe* probe = io_uring_get_probe_ring(&ring);
    if (probe == nullptr) refuse("io_uring probe", EOPNOTSUPP);
    bool all = true;
    for (const int operation : {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_FSYNC, IORING_OP_POLL_ADD}) {
        all = all && io_uring_opcode_supported(probe, operation) != 0;
    }
    io_uring_free_probe(probe);
    if (!all) refuse("io_uring probe", EOPNOTSUPP);
}

__kernel_timespec to_timespec(std::chrono::nanoseconds time) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
    return {.tv_sec = seconds.count(), .tv_nsec = (time - seconds).count()};
}

// Results that say "not now": what was not taken stays in the submission queue for the next call.
bool passing(int result) {
    return result >= 0 || result == -ETIME || result == -EINTR || result == -EAGAIN || result == -EBUSY;
}

class UringBackend final : public Backend {
   public:
    explicit UringBackend(const BackendOptions& options)
        : depth_(options.depth), ring_(static_cast<unsigned>(options.depth) + extra_entries) {
        require_operations(ring_.ring);
        arm_wake();
    }

    ~UringBackend() override {
        PENSTOCK_CHECK(in_flight_ == 0, "io_uring is closed with {} attempts in flight", in_flight_);
    }

    bool submit(Attempt& attempt) override;
    Attempt* reap(std::chrono::nanoseconds timeout) override;

    void wake() noexcept override {
        const int saved = errno;  // a signal handler may call this
        const std::uint64_t one = 1;
        [[maybe_unused]] const ssize_t written = ::write(wake_.fd, &one, sizeof one);  // fails only when already awake
        errno = saved;
    }

    std::size_t depth() const noexcept override { return depth_; }
    const char* name() const noexcept override { return "io_uring"; }

   private:
    io_uring_sqe& next_entry();
    void arm_wake();
    void enter(std::chrono::nanoseconds timeout);
    void take_wake();

    std::size_t depth_;
    std::size_t in_flight_ = 0;
    EventFd wake_;  // outlives the ring, which polls it
    Ring ring_;
};

// An attempt travels as the entry's user data; the poll on the eventfd has none.
bool UringBackend::submit(Attempt& attempt) {
    if (in_flight_ == depth_) return false;
    io_uring_sqe& entry = next_entry();
    switch (attempt.kind) {
        case IoKind::read:
            io_uring_prep_read(&entry, attempt.fd, attempt.data, attempt.bytes, attempt.offset_bytes);
            break;
        case IoKind::write:
            io_uring_prep_write(&entry, attempt.fd, attempt.data, attempt.bytes, attempt.offset_bytes);
            break;
        case IoKind::flush:
            io_uring_prep_fsync(&entry, attempt.fd, IORING_FSYNC_DATASYNC);
            break;
    }
    io_uring_sqe_set_data(&entry, &attempt);
    ++in_flight_;
    return true;
}

Attempt* UringBackend::reap(std::chrono::nanoseconds timeout) {
    enter(timeout);
    Attempt* first = nullptr;
    Attempt** end = &first;
    std::array<io_uring_cqe*, batch> completions;
    while (const unsigned count = io_uring_peek_batch_cqe(&ring_.ring, completions.data(), batch)) {
        bool woken = false;
        for (unsigned i = 0; i < count; ++i) {
            auto* attempt = static_cast<Attempt*>(io_uring_cqe_get_data(completions[i]));
            woken = woken || attempt == nullptr;
            if (attempt == nullptr) continue;
            attempt->result = completions[i]->res;
            attempt->next = nullptr;
            *end = attempt;
            end = &attempt->next;
            --in_flight_;
        }
        io_uring_cq_advance(&ring_.ring, count);
        if (woken) take_wake();
    }
    return first;
}

// Hands the held-back entries to the kernel and, unless something is there already, waits: one system call for both.
void UringBackend::enter(std::chrono::nanoseconds timeout) {
    io_uring& ring = ring_.ring;
    int result = 0;
    if (timeout <= std::chrono::nanoseconds(0) || io_uring_cq_ready(&ring) > 0) {
        result = io_uring_submit(&ring);
    } else {
        __kernel_timespec limit = to_timespec(std::min(timeout, longest_wait));
        io_uring_cqe* first = nullptr;
        result = io_uring_submit_and_wait_timeout(&ring, &first, 1, &limit, nullptr);
    }
    PENSTOCK_CHECK(passing(result), "io_uring_enter: {}", errno_text(-result));
}

io_uring_sqe& UringBackend::next_entry() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_.ring);
    PENSTOCK_CHECK(entry != nullptr, "the ring has no entry for one of its {} places", depth_);
    return *entry;
}

// A poll needs no memory of ours while it waits, so closing the ring cannot leave the kernel with a dangling pointer.
void UringBackend::arm_wake() {
    io_uring_sqe& entry = next_entry();
    io_uring_prep_poll_add(&entry, wake_.fd, POLLIN);
    io_uring_sqe_set_data(&entry, nullptr);
}

void UringBackend::take_wake() {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t taken = ::read(wake_.fd, &count, sizeof count);
    arm_wake();
}

}  // namespace

std::unique_ptr<Backend> make_uring_backend(const BackendOptions& options) {
    PENSTOCK_CHECK(options.depth > 0 && options.depth <= max_depth, "depth {} is not in 1..{}", options.depth,
                   max_depth);
    return std::make_unique<UringBackend>(options);
}

}  // namespace penstock
