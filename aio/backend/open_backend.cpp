#include "aio/backend.h"
#include "aio/words/check.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <string>

namespace penstock::aio {

namespace {

// Long and aligned enough for every direct file; a shorter file gives a short count, an empty one 0, and both prove the
// way.
constexpr std::size_t probe_bytes = 64 << 10;
constexpr std::array fastest_first = {BackendKind::io_uring, BackendKind::libaio, BackendKind::threads};

std::unique_ptr<Backend> make_backend(BackendKind kind, const BackendOptions& options) {
    switch (kind) {
        case BackendKind::io_uring:
            return make_uring_backend(options);
        case BackendKind::libaio:
            return make_libaio_backend(options);
        case BackendKind::threads:
            break;
    }
    return make_thread_backend(options);
}

struct Probe {
    Probe() : data(static_cast<std::byte*>(std::aligned_alloc(probe_bytes, probe_bytes))) {
        if (data == nullptr) throw std::bad_alloc();
    }
    ~Probe() { std::free(data); }
    Probe(const Probe&) = delete;
    Probe& operator=(const Probe&) = delete;
    Attempt attempt;
    std::byte* data;
};

// Whether the attempt came back in time.
bool comes_back(Backend& backend, std::chrono::nanoseconds deadline) {
    const auto end = backend.now() + deadline;
    for (;;) {
        const auto left = end - backend.now();
        if (backend.reap(std::max(std::chrono::nanoseconds(0), left)) != nullptr) return true;
        if (left <= std::chrono::nanoseconds(0)) return false;
    }
}

// Set-up can succeed where every read then fails (IOPOLL on virtio does), so only a read counts.
void require_read(std::unique_ptr<Backend>& backend, int probe_fd, std::chrono::nanoseconds deadline) {
    auto probe = std::make_unique<Probe>();
    Attempt& attempt = probe->attempt;
    attempt.kind = IoKind::read;
    attempt.fd = probe_fd;
    attempt.data = probe->data;
    attempt.bytes = probe_bytes;
    PENSTOCK_CHECK(backend->submit(attempt), "a new backend is full");
    if (!comes_back(*backend, deadline)) {
        // The kernel may still write into the probe, and nothing can call that back: both are its for ever.
        if (backend->abandon() == nullptr) {
            [[maybe_unused]] Backend* const kept_backend = backend.release();
            [[maybe_unused]] Probe* const kept_probe = probe.release();
        }
        const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(deadline).count();
        throw Error(ExitCode::storage, fmt::format("a read was tried and has not come back for {} ms", waited));
    }
    if (attempt.result < 0) {
        throw Error(ExitCode::storage, fmt::format("a read was tried and failed: {}; check the device (dmesg)",
                                                   errno_text(-attempt.result)));
    }
}

bool is_direct(int fd) {
    const int flags = ::fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_DIRECT) != 0;
}

}  // namespace

ChosenBackend open_backend(int probe_fd, const BackendOptions& options, std::optional<BackendKind> wanted) {
    std::string refusals;
    for (const BackendKind kind : fastest_first) {
        if (wanted && *wanted != kind) continue;
        try {
            if (kind == BackendKind::libaio && !is_direct(probe_fd)) {
                if (!wanted) continue;  // nothing faster was passed over: it would do such a file's I/O one by one
                throw Error(ExitCode::storage, "the file goes through the page cache, where libaio waits for each I/O");
            }
            ChosenBackend chosen{.backend = make_backend(kind, options), .note = {}};
            require_read(chosen.backend, probe_fd, options.probe_deadline);
            if (!refusals.empty()) chosen.note = fmt::format("I/O goes through {}: {}", word_of(kind), refusals);
            return chosen;
        } catch (const Error& error) {
            refusals +=
                fmt::format("{}{} cannot be used ({})", refusals.empty() ? "" : ", ", word_of(kind), error.what());
        }
    }
    throw Error(ExitCode::storage, fmt::format("no I/O backend works here: {}.", refusals));
}

}  // namespace penstock::aio
