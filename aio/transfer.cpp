#include "aio/transfer.h"

#include "aio/chunk.h"
#include "aio/file.h"
#include "aio/words/check.h"
#include "aio/words/io_error.h"

namespace penstock::aio {

bool has_urgency(IoKind kind, Urgency urgency) noexcept {
    if (kind == IoKind::flush) return false;
    return urgency != (kind == IoKind::read ? Urgency::write_back : Urgency::prefetch);
}

void check_request(const TransferRequest& request) {
    PENSTOCK_CHECK(request.file != nullptr && request.file->fd() >= 0, "the request names no open file");
    const std::string& path = request.file->path();
    if (request.kind == IoKind::flush) {
        PENSTOCK_CHECK(request.data == nullptr && request.bytes == 0, "{}: a flush has no range", path);
        PENSTOCK_CHECK(!request.urgency, "{}: a flush has no urgency", path);
        return;
    }
    PENSTOCK_CHECK(!request.urgency || has_urgency(request.kind, *request.urgency), "{}: a {} has no class {}", path,
                   to_string(request.kind), static_cast<int>(*request.urgency));
    PENSTOCK_CHECK(request.data != nullptr && request.bytes > 0, "{}: {} of an empty range", path,
                   to_string(request.kind));
    const Alignment alignment = request.file->alignment();
    PENSTOCK_CHECK(reinterpret_cast<std::uintptr_t>(request.data) % alignment.memory_bytes == 0,
                   "{}: memory {} is not aligned to {} bytes", path, fmt::ptr(request.data), alignment.memory_bytes);
    PENSTOCK_CHECK(request.offset_bytes % alignment.offset_bytes == 0 && request.bytes % alignment.offset_bytes == 0,
                   "{}: offset {} and length {} are not multiples of {} bytes", path, request.offset_bytes,
                   request.bytes, alignment.offset_bytes);
}

Transfer::~Transfer() {
    PENSTOCK_CHECK(idle() || orphaned(), "a {} of {} bytes at offset {} is destroyed before it is done",
                   to_string(request_.kind), request_.bytes, request_.offset_bytes);
}

void Transfer::fail(int errno_value) noexcept {
    error_ = IoError{.kind = request_.kind,
                     .path = request_.file == nullptr ? SharedText() : request_.file->shared_path(),  // posted
                     .offset_bytes = request_.offset_bytes,
                     .bytes = request_.bytes,
                     .errno_value = errno_value,
                     .tries = 0};
}

void Transfer::transition(State to) noexcept {
    const bool allowed =
        (state_ == State::idle && to == State::queued) || (state_ == State::queued && to == State::active) ||
        (state_ == State::active && to == State::drained) || (state_ == State::drained && to == State::idle) ||
        (state_ == State::queued && to == State::drained) ||  // cancelled before it began, at the end of the Io
        (state_ == State::idle && to == State::drained) ||    // posted
        (state_ == State::idle && to == State::lent) || (state_ == State::lent && to == State::drained) ||
        (state_ == State::active && to == State::orphaned);
    PENSTOCK_CHECK(allowed, "transfer state {} cannot become {}", static_cast<int>(state_), static_cast<int>(to));
    state_ = to;
}

}  // namespace penstock::aio
