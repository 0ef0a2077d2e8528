// The only file that knows liburing. It needs nothing newer than Linux 5.10, so nothing needs a probe but the
// operations themselves; no SQPOLL and no IOPOLL (on two busy cores the first collapses, on virtio the second fails
// every read), and nothing that ties the ring to the thread that made it (SINGLE_ISSUER, a registered ring): an Io
// changes hands.
#include "aio/backend/attempt_list.h"
#include "aio/backend/backend_limits.h"
#include "aio/backend/device_activity.h"
#include "aio/backend/registered.h"
#include "aio/backend/uring_refusal.h"
#include "aio/backend/wake_event.h"
#include "aio/words/check.h"
#include "aio/words/io_error.h"
#include "aio/words/size_limit.h"

#include <fmt/format.h>
#include <liburing.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <vector>

namespace penstock::aio {

namespace {

constexpr unsigned extra_entries = 1;  // beside the attempts: the poll on the eventfd
constexpr std::size_t batch = 64;

// An attempt travels as the address of it in an entry's user data. These are none.
constexpr std::uint64_t wake_data = 0;     // the poll on the eventfd
constexpr std::uint64_t ignored_data = 1;  // an entry that means nothing

struct Ring {
    explicit Ring(unsigned entries) {
        if (const int error = io_uring_queue_init(entries, &ring, 0); error < 0) refuse_uring("io_uring_setup", -error);
    }
    ~Ring() { io_uring_queue_exit(&ring); }
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;
    io_uring ring{};
};

void require_operations(io_uring& ring) {
    constexpr unsigned most = 256;  // operations; the answers stand behind the probe
    std::vector<std::uint64_t> memory((sizeof(io_uring_probe) + most * sizeof(io_uring_probe_op)) / 8);
    auto* const probe = reinterpret_cast<io_uring_probe*>(memory.data());
    if (const int error = io_uring_register_probe(&ring, probe, most); error < 0)
        refuse_uring("io_uring_register of a probe", -error);
    for (const int operation : {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_FSYNC, IORING_OP_POLL_ADD}) {
        if (io_uring_opcode_supported(probe, operation) == 0) refuse_uring("io_uring probe", EOPNOTSUPP);
    }
}

template <class Call>
int repeat_interrupted(Call call) {
    int result = call();
    while (result == -EINTR) result = call();
    return result;
}

// Results that say "not now": what was not taken stays in the submission queue for the next call. Of memory, too, the
// kernel may be short for a moment; what lasts is seen by the deadline.
bool passing(int result) {
    return result >= 0 || result == -ETIME || result == -EINTR || result == -EAGAIN || result == -EBUSY ||
           result == -ENOMEM;
}

// `place`: of the registered range, or none.
void prepare(io_uring_sqe& entry, const Attempt& attempt, int place) {
    const int fd = attempt.fd;
    std::byte* const data = attempt.data;
    const std::uint32_t bytes = attempt.bytes;
    const std::uint64_t offset = attempt.offset_bytes;
    const bool fixed = place != RegisteredRanges::none;
    switch (attempt.kind) {
        case IoKind::read:
            return fixed ? io_uring_prep_read_fixed(&entry, fd, data, bytes, offset, place)
                         : io_uring_prep_read(&entry, fd, data, bytes, offset);
        case IoKind::write:
            return fixed ? io_uring_prep_write_fixed(&entry, fd, data, bytes, offset, place)
                         : io_uring_prep_write(&entry, fd, data, bytes, offset);
        case IoKind::flush:
            return io_uring_prep_fsync(&entry, fd, IORING_FSYNC_DATASYNC);
    }
}

class UringBackend final : public Backend {
   public:
    explicit UringBackend(const BackendOptions& options);
    ~UringBackend() override;

    bool submit(Attempt& attempt) override;
    Attempt* reap(std::chrono::nanoseconds timeout) override;

    void wake() noexcept override { wake_.signal(); }

    Attempt* abandon() noexcept override;
    std::string register_memory(std::span<const std::span<std::byte>> ranges) override;
    std::string register_files(std::span<const RegisteredFile> files) override;
    std::chrono::steady_clock::time_point now() const noexcept override { return std::chrono::steady_clock::now(); }

    int ready_fd() override { return ring_.ring.ring_fd; }
    std::optional<std::uint64_t> sectors_written(std::uint64_t device) const noexcept override {
        return aio::sectors_written(device);
    }
    std::size_t depth() const noexcept override { return depth_; }
    const char* name() const noexcept override { return word_of(BackendKind::io_uring); }

   private:
    io_uring_sqe& next_entry();
    void arm_wake();
    void enter(std::chrono::nanoseconds timeout);
    void take_back(std::int32_t result, AttemptList& ended) noexcept;
    void wait_for_ring(std::chrono::nanoseconds timeout) noexcept;
    void take_wake();
    bool quiesce();
    std::string refusal_of_enter() const { return fmt::format("io_uring_enter: {}", errno_text(refused_)); }

    std::size_t depth_;
    std::size_t in_flight_ = 0;
    bool abandoned_ = false;
    // Why the kernel refuses io_uring_enter; 0: it does not. A filter of system calls that came after the first read
    // would refuse each further one, too: what is submitted from then on ends at once.
    int refused_ = 0;
    AttemptList never_taken_;  // ended so, for the next reap()
    HeldBack held_;
    bool writes_held_ = false;  // by the ring, for the next call
    WakeEvent wake_;            // outlives the ring, which polls it
    Ring ring_;
    bool enter_takes_timeout_;  // since Linux 5.11

    RegisteredRanges ranges_;
    RegisteredFiles files_;
};

UringBackend::UringBackend(const BackendOptions& options)
    : depth_(checked_depth(options.depth)),
      ring_(static_cast<unsigned>(options.depth) + extra_entries),
      enter_takes_timeout_(options.uring_wait == UringWait::probed &&
                           (ring_.ring.features & IORING_FEAT_EXT_ARG) != 0) {
    require_operations(ring_.ring);
    arm_wake();
    // The set-up may be allowed where every call is refused.
    if (const int result = io_uring_submit(&ring_.ring); !passing(result) || result == -ENOMEM)
        refuse_uring("io_uring_enter", -result);
}

// The kernel takes a closed ring apart later, on a thread of its own. What is registered is given back now: the next
// ring finds the limit on locked memory free, and a file that was closed is.
UringBackend::~UringBackend() {
    PENSTOCK_CHECK(in_flight_ == 0, "io_uring is closed with {} attempts in flight", in_flight_);
    if (!ranges_.empty()) register_memory({});
    if (!files_.empty()) register_files({});
}

bool UringBackend::submit(Attempt& attempt) {
    PENSTOCK_CHECK(!abandoned_, "an attempt for io_uring after it was abandoned");
    if (in_flight_ == depth_) return false;
    if (refused_ != 0) {
        ++in_flight_;
        never_taken_.push(attempt, -refused_);
        return true;
    }
    io_uring_sqe& entry = next_entry();
    prepare(entry, attempt, ranges_.place_of(attempt.data, attempt.bytes));
    if (const int place = files_.place_of(attempt.file_id); place != RegisteredFiles::none) {
        entry.fd = place;
        entry.flags |= IOSQE_FIXED_FILE;
    }
    io_uring_sqe_set_data(&entry, &attempt);
    writes_held_ = writes_held_ || attempt.kind == IoKind::write;
    ++in_flight_;
    // What the kernel does not take now stays in the ring for the next call.
    if (held_.add(attempt)) enter(std::chrono::nanoseconds(0));
    return true;
}

Attempt* UringBackend::reap(std::chrono::nanoseconds timeout) {
    enter(timeout);
    AttemptList finished;
    while (!never_taken_.empty()) {
        finished.push(never_taken_.pop());
        --in_flight_;
    }
    std::array<io_uring_cqe*, batch> completions;
    while (const unsigned count = io_uring_peek_batch_cqe(&ring_.ring, completions.data(), batch)) {
        bool woken = false;
        for (unsigned i = 0; i < count; ++i) {
            const std::uint64_t data = completions[i]->user_data;
            woken = woken || data == wake_data;
            if (data == wake_data || data == ignored_data) continue;
            finished.push(*reinterpret_cast<Attempt*>(data), completions[i]->res);
            --in_flight_;
        }
        io_uring_cq_advance(&ring_.ring, count);
        if (woken) take_wake();
    }
    return finished.take_all();
}

Attempt* UringBackend::abandon() noexcept {
    abandoned_ = true;
    AttemptList held, never_begun;
    take_back(-ECANCELED, held);
    while (!held.empty()) {
        never_begun.push(held.pop());
        --in_flight_;
    }
    return never_begun.take_all();
}

// The kernel takes entries within io_uring_enter only (there is no SQPOLL), so all from its head on are still ours. The
// ring cannot be shortened, but what is in it can be made to mean nothing.
void UringBackend::take_back(std::int32_t result, AttemptList& ended) noexcept {
    const io_uring_sq& queue = ring_.ring.sq;
    for (unsigned at = *queue.khead; at != queue.sqe_tail; ++at) {
        io_uring_sqe& entry = queue.sqes[at & *queue.kring_mask];
        if (entry.user_data == wake_data || entry.user_data == ignored_data) continue;
        ended.push(*reinterpret_cast<Attempt*>(entry.user_data), result);
        io_uring_prep_nop(&entry);
        entry.user_data = ignored_data;
    }
}

// Hands the held-back entries to the kernel and, unless something is there already, waits: one system call for both
// where it takes the timeout along. Before 5.11 liburing would make the timeout an entry of the ring, which points into
// its caller's stack, stays behind when the kernel takes nothing just now, and fills the ring if that lasts.
void UringBackend::enter(std::chrono::nanoseconds timeout) {
    io_uring& ring = ring_.ring;
    const bool waits = timeout > std::chrono::nanoseconds(0) && io_uring_cq_ready(&ring) == 0 && never_taken_.empty();
    if (refused_ != 0) {
        if (waits) wait_for_ring(timeout);
        return;
    }
    // The kernel's own threads, to which it may give them, block all signals.
    std::optional<NoSizeSignal> quiet;
    if (writes_held_) quiet.emplace();
    int result = 0;
    if (waits && enter_takes_timeout_) {
        auto limit = bounded_timespec<__kernel_timespec>(timeout);
        io_uring_cqe* first = nullptr;
        result = io_uring_submit_and_wait_timeout(&ring, &first, 1, &limit, nullptr);
    } else {
        result = io_uring_submit(&ring);
    }
    if (!passing(result)) {
        refused_ = -result;
        take_back(result, never_taken_);
        wake();  // who sleeps on ready_fd()
        return;
    }
    held_.clear();
    writes_held_ = writes_held_ && io_uring_sq_ready(&ring) > 0;
    if (waits && !enter_takes_timeout_) wait_for_ring(timeout);
}

// The ring is readable as any descriptor is, from its first completion on. With entries that the kernel did not take
// there may be nothing to wait for. Where it takes none any more, the ring may not be polling the eventfd.
void UringBackend::wait_for_ring(std::chrono::nanoseconds timeout) noexcept {
    if (refused_ == 0 && io_uring_sq_ready(&ring_.ring) > 0) return;
    const auto limit = bounded_timespec<timespec>(timeout);
    std::array<pollfd, 2> waits = {{{.fd = ring_.ring.ring_fd, .events = POLLIN, .revents = 0},
                                    {.fd = wake_.fd(), .events = POLLIN, .revents = 0}}};
    ::ppoll(waits.data(), refused_ == 0 ? 1 : 2, &limit, nullptr);
}

io_uring_sqe& UringBackend::next_entry() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_.ring);
    PENSTOCK_CHECK(entry != nullptr, "the ring has no entry for one of its {} places", depth_);
    return *entry;
}

// A poll needs no memory of ours while it waits, so closing the ring cannot leave the kernel with a dangling pointer.
void UringBackend::arm_wake() {
    io_uring_sqe& entry = next_entry();
    io_uring_prep_poll_add(&entry, wake_.fd(), POLLIN);
    entry.user_data = wake_data;
}

void UringBackend::take_wake() {
    wake_.take();
    if (refused_ == 0) arm_wake();
}

// ---------------------------------------------------------------- registered memory and files

std::string UringBackend::register_memory(std::span<const std::span<std::byte>> ranges) {
    PENSTOCK_CHECK(in_flight_ == 0, "registering with {} attempts in flight", in_flight_);
    const bool taken = quiesce();
    io_uring& ring = ring_.ring;
    if (!ranges_.empty()) io_uring_unregister_buffers(&ring);
    ranges_.clear();
    if (ranges.empty()) return {};
    if (!taken) return refusal_of_enter();
    ranges_.set(ranges);
    std::vector<iovec> vectors;
    std::uint64_t total = 0;
    for (const std::span<std::byte> range : ranges) {
        vectors.push_back({.iov_base = range.data(), .iov_len = range.size()});
        total += range.size();
    }
    const int result = repeat_interrupted(
        [&] { return io_uring_register_buffers(&ring, vectors.data(), static_cast<unsigned>(vectors.size())); });
    if (result == 0) return {};
    ranges_.clear();
    return refusal_of_memory(-result, total);
}

std::string UringBackend::register_files(std::span<const RegisteredFile> files) {
    PENSTOCK_CHECK(in_flight_ == 0, "registering with {} attempts in flight", in_flight_);
    const bool taken = quiesce();
    io_uring& ring = ring_.ring;
    if (!files_.empty()) io_uring_unregister_files(&ring);
    files_.clear();
    if (files.empty()) return {};
    if (!taken) return refusal_of_enter();
    files_.set(files);
    std::vector<int> descriptors;
    for (const RegisteredFile& file : files) descriptors.push_back(file.fd);
    const int result = repeat_interrupted(
        [&] { return io_uring_register_files(&ring, descriptors.data(), static_cast<unsigned>(descriptors.size())); });
    if (result == 0) return {};
    files_.clear();
    return refusal_of_files(-result, files.size());
}

// Before Linux 5.13 registering memory waits until nothing of the ring is in flight, so the poll on the eventfd is made
// to complete first. The eventfd stays readable: the next reap() returns early, and no wake is lost. False where the
// kernel takes nothing any more.
bool UringBackend::quiesce() {
    wake();
    for (bool polling = true; polling;) {
        enter(longest_backend_wait);
        if (refused_ != 0) return false;
        std::array<io_uring_cqe*, batch> completions;
        const unsigned count = io_uring_peek_batch_cqe(&ring_.ring, completions.data(), batch);
        for (unsigned i = 0; i < count; ++i) polling = polling && completions[i]->user_data != wake_data;
        io_uring_cq_advance(&ring_.ring, count);
    }
    arm_wake();
    return true;
}

}  // namespace

std::unique_ptr<Backend> make_uring_backend(const BackendOptions& options) {
    return std::make_unique<UringBackend>(options);
}

}  // namespace penstock::aio
