// The seam to the operating system: one attempt to move bytes, and how it ended. Backends know neither urgency nor
// retries nor chunks (aio/io.h) and are replaced in tests by one that injects faults.
#pragma once

#include "aio/words/enum_words.h"
#include "aio/words/io_error.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace penstock::aio {

// One system-level attempt. Owned by the Io that submits it; a backend holds a pointer from submit() until reap() or
// abandon() has handed it back, and for ever when neither did. `bytes` is at most max_attempt_bytes.
struct Attempt {
    IoKind kind = IoKind::read;
    int fd = -1;
    std::byte* data = nullptr;  // aligned as the file asks; unused by flush
    std::uint64_t offset_bytes = 0;
    std::uint32_t bytes = 0;
    std::int32_t result = 0;    // set by the backend: bytes moved, or -errno
    std::uint64_t file_id = 0;  // File::id(): a registered file is used only when this matches, never by fd alone
    std::uint64_t device = 0;   // File::device(): a stuck one must not hold up another's attempts; 0: not known
    Attempt* next = nullptr;    // links the list that reap() returns
};

inline constexpr std::uint32_t max_attempt_bytes = 1U << 30;   // Linux cuts at 0x7ffff000
inline constexpr std::size_t max_registered_bytes = 1U << 30;  // the kernel takes no longer range
inline constexpr std::size_t max_registered = 1024;            // ranges or files

struct RegisteredFile {
    int fd = -1;
    std::uint64_t id = 0;
};

// One thread (the owner) calls everything but wake(). Nothing throws after construction. Destroyed only when nothing is
// in flight (checked); one that is stuck is never destroyed.
class Backend {
   public:
    virtual ~Backend() = default;

    // Takes the attempt, or returns false when `depth()` attempts are in flight. Does not block, but see
    // make_libaio_backend(). A backend may hold small attempts and flushes back until the next reap(), so that several
    // go to the kernel in one call; large ones go at once, since the device would start late.
    virtual bool submit(Attempt& attempt) = 0;

    // Returns the finished attempts as a list (null when none). Blocks until there is one, wake() is called or
    // `timeout` has passed; a zero timeout polls. May return null early, so callers loop.
    virtual Attempt* reap(std::chrono::nanoseconds timeout) = 0;

    // Makes the current or the next reap() return. Any thread; async-signal-safe.
    virtual void wake() noexcept = 0;

    // The owner gives up. Returns, with -ECANCELED, the attempts that have not reached the kernel; none of them is ever
    // begun. What remains is with the kernel. Afterwards only reap(), wake() and, with nothing in flight, destruction.
    virtual Attempt* abandon() noexcept = 0;

    // The one clock of Io and backend: timeouts, pauses, deadlines and statistics go by it. Owner only; never goes
    // back. A simulated backend advances its own within reap(), to the next completion or by the timeout, and does not
    // sleep. A wrapper passes it on.
    virtual std::chrono::steady_clock::time_point now() const noexcept = 0;

    // Optional help for the attempts to come; see Io. Ranges are at most max_registered_bytes long and max_registered
    // many. REQUIRES: nothing in flight. All or nothing: returns an empty string, or one line why it was refused, and
    // then nothing is registered, what was there before included.
    virtual std::string register_memory(std::span<const std::span<std::byte>> ranges);
    virtual std::string register_files(std::span<const RegisteredFile> files);

    // For an owner that sleeps in an event loop of its own: a descriptor that poll(2) and epoll find readable while
    // reap() has something to return, and sometimes when it has not, until the next reap() with a zero timeout. Not to
    // be read from. -1: there is none. Speaks of attempts that are submitted after the first call. Throws Error
    // (storage) when there is no descriptor left.
    virtual int ready_fd() { return -1; }

    // What the device has written so far, in the kernel's count; see aio/backend/device_activity.h. A simulated device
    // has none, unless it says so.
    virtual std::optional<std::uint64_t> sectors_written(std::uint64_t device) const noexcept;

    virtual std::size_t depth() const noexcept = 0;
    virtual const char* name() const noexcept = 0;
};

enum class BackendKind : std::uint8_t { io_uring, libaio, threads };
constexpr auto words_of(BackendKind) noexcept {
    return std::array{Word{BackendKind::io_uring, "io_uring"}, Word{BackendKind::libaio, "libaio"},
                      Word{BackendKind::threads, "threads"}};
}

// How io_uring is waited for with a timeout.
enum class UringWait : std::uint8_t {
    probed,   // as the kernel can
    by_poll,  // as before Linux 5.11; for tests
};

struct BackendOptions {
    std::size_t depth = 64;                                              // attempts in flight at most
    std::size_t threads_per_device = 4;                                  // of the threads backend
    std::chrono::nanoseconds probe_deadline = std::chrono::seconds(10);  // of the read that open_backend tries
    UringWait uring_wait = UringWait::probed;
};

// Throws Error (storage) when the kernel refuses; the message names the call and the likely cause (seccomp, sysctl,
// memlock).
std::unique_ptr<Backend> make_uring_backend(const BackendOptions& options);
// For direct files. Handing attempts to the kernel may block, on a file that goes through the page cache always, on a
// direct one when the device's request queue is full: no deadline of the Io holds during that call.
std::unique_ptr<Backend> make_libaio_backend(const BackendOptions& options);
std::unique_ptr<Backend> make_thread_backend(const BackendOptions& options);

struct ChosenBackend {
    std::unique_ptr<Backend> backend;
    std::string note;  // empty, or one line: why a faster backend was passed over
};

// Tries a real read of `probe_fd` (a readable file of any length) with each backend, fastest first (io_uring, libaio
// when the file is direct, threads), and takes the first that works. `wanted` names the only one to try. Throws Error
// (storage) when none works.
ChosenBackend open_backend(int probe_fd, const BackendOptions& options,
                           std::optional<BackendKind> wanted = std::nullopt);

}  // namespace penstock::aio
