// The only file that knows libaio: the kernel's older asynchronous interface, for where io_uring is forbidden. It needs
// nothing newer than Linux 4.18 (IOCB_CMD_POLL, IOCB_CMD_FDSYNC).
#include "aio/backend/attempt_list.h"
#include "aio/backend/backend_limits.h"
#include "aio/backend/device_activity.h"
#include "aio/backend/wake_event.h"
#include "aio/words/check.h"
#include "aio/words/io_error.h"
#include "aio/words/size_limit.h"

#include <fmt/format.h>
#include <libaio.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace penstock::aio {

namespace {

constexpr std::size_t batch = 64;
// While the poll on the eventfd cannot be armed (the kernel is out of memory), a wake may come this much late.
constexpr std::chrono::nanoseconds longest_deaf_wait = std::chrono::milliseconds(1);

std::string first_word_of(const char* path) {
    std::string word;
    std::ifstream(path) >> word;
    return word.empty() ? "?" : word;
}

std::string likely_cause(int errno_value) {
    switch (errno_value) {
        case EAGAIN:
            return fmt::format("the machine has {} of {} requests in use; raise the limit (sysctl fs.aio-max-nr)",
                               first_word_of("/proc/sys/fs/aio-nr"), first_word_of("/proc/sys/fs/aio-max-nr"));
        case ENOSYS:
            return "the kernel is built without it or a container's seccomp profile hides it";
        case EPERM:
        case EACCES:
            return "a container's seccomp profile forbids it";
        case ENOMEM:
            return "the kernel has no memory for it";
        case EMFILE:
        case ENFILE:
            return "the limit on open files (ulimit -n) is reached";
        default:
            return "the kernel refuses it";
    }
}

[[noreturn]] void refuse(const char* call, int errno_value) {
    refuse_backend(call, errno_value, likely_cause(errno_value));
}

struct Context {
    explicit Context(std::size_t requests) {
        if (const int error = ::io_setup(static_cast<int>(requests), &context); error < 0) refuse("io_setup", -error);
    }
    ~Context() { ::io_destroy(context); }
    // The set-up may be allowed where no result can be had. Asks for none; the library looks itself where a time is
    // given.
    void require_results() {
        io_event none{};
        if (const int error = ::io_getevents(context, 0, 0, &none, nullptr); error < 0) refuse("io_getevents", -error);
    }
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;
    io_context_t context = nullptr;
};

bool writes(const iocb* place) noexcept {
    return place->aio_lio_opcode == IO_CMD_PWRITE;
}

class LibaioBackend final : public Backend {
   public:
    explicit LibaioBackend(const BackendOptions& options);
    ~LibaioBackend() override;

    bool submit(Attempt& attempt) override;
    Attempt* reap(std::chrono::nanoseconds timeout) override;
    void wake() noexcept override { wake_.signal(); }
    Attempt* abandon() noexcept override;
    std::chrono::steady_clock::time_point now() const noexcept override { return std::chrono::steady_clock::now(); }
    int ready_fd() override;
    std::optional<std::uint64_t> sectors_written(std::uint64_t device) const noexcept override {
        return aio::sectors_written(device);
    }
    std::size_t depth() const noexcept override { return depth_; }
    const char* name() const noexcept override { return word_of(BackendKind::libaio); }

   private:
    void hand_over() noexcept;
    std::int32_t refused(const iocb& place, int error) noexcept;
    void collect(std::chrono::nanoseconds timeout) noexcept;
    void finish(iocb& place, std::int32_t result, AttemptList& finished) noexcept;
    int arm_wake() noexcept;
    void wait_for_wake(std::chrono::nanoseconds timeout) noexcept;

    std::size_t depth_;
    bool abandoned_ = false;
    bool armed_ = false;
    WakeEvent wake_;                  // outlives the context, which polls it
    std::optional<WakeEvent> ready_;  // signalled with each completion, once ready_fd() was asked for
    Context context_;
    iocb wake_place_{};
    std::vector<iocb> places_;  // one per attempt; iocb::data is the attempt
    std::vector<iocb*> free_;
    std::vector<iocb*> held_;  // not with the kernel yet, in the order of submission
    HeldBack held_back_;
    AttemptList finished_;  // for the next reap()
};

LibaioBackend::LibaioBackend(const BackendOptions& options)
    : depth_(checked_depth(options.depth)), context_(options.depth + 1), places_(options.depth) {
    free_.reserve(depth_);
    held_.reserve(depth_);
    for (iocb& place : places_) free_.push_back(&place);
    context_.require_results();
    if (const int error = arm_wake(); error != 0) refuse("io_submit of a poll", error);
}

LibaioBackend::~LibaioBackend() {
    PENSTOCK_CHECK(free_.size() == depth_, "libaio is closed with {} attempts in flight", depth_ - free_.size());
}

bool LibaioBackend::submit(Attempt& attempt) {
    PENSTOCK_CHECK(!abandoned_, "an attempt for libaio after it was abandoned");
    if (free_.empty()) return false;
    iocb& place = *free_.back();
    free_.pop_back();
    const auto offset = static_cast<long long>(attempt.offset_bytes);
    switch (attempt.kind) {
        case IoKind::read:
            io_prep_pread(&place, attempt.fd, attempt.data, attempt.bytes, offset);
            break;
        case IoKind::write:
            io_prep_pwrite(&place, attempt.fd, attempt.data, attempt.bytes, offset);
            break;
        case IoKind::flush:
            io_prep_fdsync(&place, attempt.fd);
            break;
    }
    if (ready_) io_set_eventfd(&place, ready_->fd());
    place.data = &attempt;
    held_.push_back(&place);
    if (held_back_.add(attempt)) hand_over();
    return true;
}

Attempt* LibaioBackend::reap(std::chrono::nanoseconds timeout) {
    hand_over();
    if (ready_) ready_->take();  // before the completions it speaks of are collected, so that none is missed
    collect(finished_.empty() ? timeout : std::chrono::nanoseconds(0));
    return finished_.take_all();
}

int LibaioBackend::ready_fd() {
    if (!ready_) ready_.emplace();
    return ready_->fd();
}

Attempt* LibaioBackend::abandon() noexcept {
    abandoned_ = true;
    AttemptList never_begun;
    for (iocb* place : held_) finish(*place, -ECANCELED, never_begun);
    held_.clear();
    return never_begun.take_all();
}

// ---------------------------------------------------------------- to the kernel and back

// io_submit takes what it can in order and refuses only the first that is left.
void LibaioBackend::hand_over() noexcept {
    held_back_.clear();
    std::optional<NoSizeSignal> quiet;
    if (std::any_of(held_.begin(), held_.end(), writes)) quiet.emplace();
    std::size_t gone = 0;
    while (gone < held_.size()) {
        const std::size_t left = held_.size() - gone;
        const int result = ::io_submit(context_.context, static_cast<long>(left), &held_[gone]);
        if (result > 0) {
            gone += static_cast<std::size_t>(result);
            continue;
        }
        const bool kernel_has_some = depth_ - free_.size() > left;
        // The kernel is full: what it has makes room when it comes back. Where it has nothing, waiting would be for
        // ever, and EAGAIN is the outcome, to be tried again after a pause.
        if (result == 0 || (result == -EAGAIN && kernel_has_some)) break;
        iocb& place = *held_[gone++];
        finish(place, refused(place, -result), finished_);
    }
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(gone));
    if (ready_ && !finished_.empty()) ready_->signal();
}

// The result of an attempt that the kernel did not take. A kernel or a file system without asynchronous fdatasync says
// EINVAL; one that waits is right all the same.
std::int32_t LibaioBackend::refused(const iocb& place, int error) noexcept {
    if (place.aio_lio_opcode != IO_CMD_FDSYNC || error != EINVAL) return -error;
    return ::fdatasync(place.aio_fildes) == 0 ? 0 : -errno;
}

void LibaioBackend::collect(std::chrono::nanoseconds timeout) noexcept {
    if (!armed_ && arm_wake() != 0) timeout = std::min(timeout, longest_deaf_wait);
    timespec limit = bounded_timespec<timespec>(timeout);
    std::array<io_event, batch> events;
    for (long at_least = timeout > std::chrono::nanoseconds(0) ? 1 : 0;; at_least = 0, limit = {}) {
        const int count = ::io_getevents(context_.context, at_least, batch, events.data(), &limit);
        // What is in flight stays the kernel's: the deadline says that it is stuck.
        if (count < 0 && count != -EINTR) return wait_for_wake(timeout);
        for (int i = 0; i < count; ++i) {
            if (events[i].obj == &wake_place_) {
                wake_.take();
                armed_ = false;
            } else {
                finish(*events[i].obj, static_cast<std::int32_t>(static_cast<long>(events[i].res)), finished_);
            }
        }
        if (count < static_cast<int>(batch)) return;
    }
}

void LibaioBackend::finish(iocb& place, std::int32_t result, AttemptList& finished) noexcept {
    finished.push(*static_cast<Attempt*>(place.data), result);
    free_.push_back(&place);
}

// Returns 0 or errno. The poll completes once; an eventfd that is written to before it is armed completes it at once.
int LibaioBackend::arm_wake() noexcept {
    io_prep_poll(&wake_place_, wake_.fd(), POLLIN);
    iocb* place = &wake_place_;
    const int result = ::io_submit(context_.context, 1, &place);
    armed_ = result == 1;
    return armed_ ? 0 : -result;
}

// Where the kernel gives no results.
void LibaioBackend::wait_for_wake(std::chrono::nanoseconds timeout) noexcept {
    if (timeout <= std::chrono::nanoseconds(0)) return;
    const auto limit = bounded_timespec<timespec>(timeout);
    pollfd event = {.fd = wake_.fd(), .events = POLLIN, .revents = 0};
    if (::ppoll(&event, 1, &limit, nullptr) > 0) wake_.take();
}

}  // namespace

std::unique_ptr<Backend> make_libaio_backend(const BackendOptions& options) {
    return std::make_unique<LibaioBackend>(options);
}

}  // namespace penstock::aio
