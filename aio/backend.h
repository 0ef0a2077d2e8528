// The seam to the operating system: one attempt to move bytes, and how it ended. Backends know neither urgency nor
// retries nor chunks (aio/io.h) and are replaced in tests by one that injects faults.
#pragma once

#include "aio/error.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace penstock {

// One system-level attempt. Owned by the Io that submits it; a backend holds a pointer from submit() until it has
// handed the attempt back from reap(). `bytes` is at most max_attempt_bytes.
struct Attempt {
    IoKind kind = IoKind::read;
    int fd = -1;
    std::byte* data = nullptr;  // aligned as the file asks; unused by flush
    std::uint64_t offset_bytes = 0;
    std::uint32_t bytes = 0;
    std::int32_t result = 0;  // set by the backend: bytes moved, or -errno
    Attempt* next = nullptr;  // links the list that reap() returns
};

inline constexpr std::uint32_t max_attempt_bytes = 1U << 30;  // Linux cuts at 0x7ffff000

// One thread (the owner) calls everything but wake(). Nothing throws after construction. Destroyed only when nothing is
// in flight (checked).
class Backend {
   public:
    virtual ~Backend() = default;

    // Takes the attempt, or returns false when `depth()` attempts are in flight. Does not block. A backend may hold
    // attempts back until the next reap(), so that many go to the kernel in one call.
    virtual bool submit(Attempt& attempt) = 0;

    // Returns the finished attempts as a list (null when none). Blocks until there is one, wake() is called or
    // `timeout` has passed; a zero timeout polls. May return null early, so callers loop.
    virtual Attempt* reap(std::chrono::nanoseconds timeout) = 0;

    // Makes the current or the next reap() return. Any thread; async-signal-safe.
    virtual void wake() noexcept = 0;

    virtual std::size_t depth() const noexcept = 0;
    virtual const char* name() const noexcept = 0;
};

enum class BackendKind : std::uint8_t { io_uring, threads };

struct BackendOptions {
    std::size_t depth = 64;        // attempts in flight at most
    std::size_t thread_count = 4;  // of the threads backend
};

// Throws Error (storage) when the kernel refuses; the message names the call and the likely cause (seccomp, sysctl,
// memlock).
std::unique_ptr<Backend> make_uring_backend(const BackendOptions& options);
std::unique_ptr<Backend> make_thread_backend(const BackendOptions& options);

struct ChosenBackend {
    std::unique_ptr<Backend> backend;
    std::string note;  // empty, or one line: why a faster backend was passed over
};

// Tries a real read of `probe_fd` (a readable file of any length) with each backend, fastest first, and takes the first
// that works. `wanted` names the only one to try. Throws Error (storage) when none works.
ChosenBackend open_backend(int probe_fd, const BackendOptions& options,
                           std::optional<BackendKind> wanted = std::nullopt);

}  // namespace penstock
