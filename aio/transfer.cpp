#include "aio/transfer.h"

#include "aio/check.h"
#include "aio/chunk.h"
#include "aio/file.h"

#include <cerrno>

namespace penstock {

namespace {

using Verdict = Judgement::Verdict;

void advance(Chunk& chunk, std::uint32_t bytes) noexcept {
    chunk.data += bytes;
    chunk.offset_bytes += bytes;
    chunk.bytes -= bytes;
}

Judgement judge_error(const Chunk& chunk, int errno_value, const JudgeRules& rules) noexcept {
    const bool passing = errno_value == EAGAIN || errno_value == EINTR;
    if (passing && chunk.tries < rules.tries) return {.verdict = Verdict::retry};
    return {.verdict = Verdict::failed, .errno_value = errno_value};
}

// A count that is no multiple of the alignment (the end of a file, a signal) is resumed from the last aligned byte: the
// bytes after it are moved twice, because direct I/O from the odd place would be EINVAL.
Judgement judge_short(Chunk& chunk, std::uint32_t count, const JudgeRules& rules) noexcept {
    const std::uint32_t kept = count - count % rules.alignment_bytes;
    if (kept > 0) {
        advance(chunk, kept);
        chunk.tries = 0;
        return {.verdict = Verdict::resume, .moved_bytes = kept};
    }
    if (count > 0 && chunk.tries < rules.tries) return {.verdict = Verdict::retry};
    advance(chunk, count);
    return {.verdict = Verdict::failed, .moved_bytes = count};
}

}  // namespace

Judgement judge(Chunk& chunk, const JudgeRules& rules) noexcept {
    ++chunk.tries;
    if (chunk.result < 0) return judge_error(chunk, -chunk.result, rules);
    if (chunk.kind == IoKind::flush) return {.verdict = Verdict::finished};
    const auto count = static_cast<std::uint32_t>(chunk.result);
    PENSTOCK_CHECK(count <= chunk.bytes, "the backend claims {} bytes moved of {}", count, chunk.bytes);
    if (count < chunk.bytes) return judge_short(chunk, count, rules);
    advance(chunk, count);
    return {.verdict = Verdict::finished, .moved_bytes = count};
}

void check_request(const TransferRequest& request, std::uint32_t chunk_bytes) {
    PENSTOCK_CHECK(request.file != nullptr && request.file->fd() >= 0, "the request names no open file");
    const std::string& path = request.file->path();
    if (request.kind == IoKind::flush) {
        PENSTOCK_CHECK(request.data == nullptr && request.bytes == 0, "{}: a flush has no range", path);
        return;
    }
    PENSTOCK_CHECK(request.data != nullptr && request.bytes > 0, "{}: {} of an empty range", path,
                   to_string(request.kind));
    const Alignment alignment = request.file->alignment();
    PENSTOCK_CHECK(reinterpret_cast<std::uintptr_t>(request.data) % alignment.memory_bytes == 0,
                   "{}: memory {} is not aligned to {} bytes", path, fmt::ptr(request.data), alignment.memory_bytes);
    PENSTOCK_CHECK(request.offset_bytes % alignment.offset_bytes == 0 && request.bytes % alignment.offset_bytes == 0,
                   "{}: offset {} and length {} are not multiples of {} bytes", path, request.offset_bytes,
                   request.bytes, alignment.offset_bytes);
    PENSTOCK_CHECK(alignment.offset_bytes <= chunk_bytes, "{}: chunks of {} bytes are shorter than the alignment {}",
                   path, chunk_bytes, alignment.offset_bytes);
}

Transfer::~Transfer() {
    PENSTOCK_CHECK(idle(), "a {} of {} bytes at offset {} is destroyed before it is done", to_string(request_.kind),
                   request_.bytes, request_.offset_bytes);
}

void Transfer::transition(State to) noexcept {
    const bool allowed =
        (state_ == State::idle && to == State::queued) || (state_ == State::queued && to == State::active) ||
        (state_ == State::active && to == State::drained) || (state_ == State::drained && to == State::idle) ||
        (state_ == State::queued && to == State::idle);  // cancelled before it began
    PENSTOCK_CHECK(allowed, "transfer state {} cannot become {}", static_cast<int>(state_), static_cast<int>(to));
    state_ = to;
}

}  // namespace penstock
