#include "aio/backend.h"
#include "aio/check.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <new>
#include <vector>

namespace penstock {

namespace {

// Long and aligned enough for every direct file; a shorter file gives a short count, an empty one 0, and both prove the
// way.
constexpr std::size_t probe_bytes = 64 << 10;
constexpr std::array<BackendKind, 2> fastest_first = {BackendKind::io_uring, BackendKind::threads};

const char* name_of(BackendKind kind) {
    return kind == BackendKind::io_uring ? "io_uring" : "threads";
}

std::unique_ptr<Backend> make_backend(BackendKind kind, const BackendOptions& options) {
    return kind == BackendKind::io_uring ? make_uring_backend(options) : make_thread_backend(options);
}

struct ProbeMemory {
    ProbeMemory() : data(static_cast<std::byte*>(std::aligned_alloc(probe_bytes, probe_bytes))) {
        if (data == nullptr) throw std::bad_alloc();
    }
    ~ProbeMemory() { std::free(data); }
    ProbeMemory(const ProbeMemory&) = delete;
    ProbeMemory& operator=(const ProbeMemory&) = delete;
    std::byte* data;
};

// Set-up can succeed where every read then fails (FACTS: IOPOLL on virtio), so only a read counts.
void require_read(Backend& backend, int probe_fd) {
    const ProbeMemory memory;
    Attempt attempt;
    attempt.kind = IoKind::read;
    attempt.fd = probe_fd;
    attempt.data = memory.data;
    attempt.bytes = probe_bytes;
    PENSTOCK_CHECK(backend.submit(attempt), "a new backend is full");
    while (backend.reap(std::chrono::seconds(1)) == nullptr) {
    }
    if (attempt.result < 0) {
        throw Error(ExitCode::storage, fmt::format("a read was tried and failed: {}", errno_text(-attempt.result)));
    }
}

}  // namespace

ChosenBackend open_backend(int probe_fd, const BackendOptions& options, std::optional<BackendKind> wanted) {
    std::string refusals;
    for (const BackendKind kind : fastest_first) {
        if (wanted && *wanted != kind) continue;
        try {
            ChosenBackend chosen{.backend = make_backend(kind, options), .note = {}};
            require_read(*chosen.backend, probe_fd);
            if (!refusals.empty()) chosen.note = fmt::format("I/O goes through {}: {}", name_of(kind), refusals);
            return chosen;
        } catch (const Error& error) {
            refusals +=
                fmt::format("{}{} cannot be used ({})", refusals.empty() ? "" : ", ", name_of(kind), error.what());
        }
    }
    throw Error(ExitCode::storage, fmt::format("no I/O backend works here: {}.", refusals));
}

}  // namespace penstock
