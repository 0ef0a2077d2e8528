#include "aio/chunk.h"
#include "aio/words/check.h"
#include "aio/words/io_error.h"

#include <cerrno>

namespace penstock::aio {

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
    if (kept > 0 && !rules.file_ends) {
        advance(chunk, kept);
        chunk.tries = 0;
        return {.verdict = Verdict::resume, .moved_bytes = kept};
    }
    if (count > 0 && !rules.file_ends && chunk.tries < rules.tries) return {.verdict = Verdict::retry};
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

}  // namespace penstock::aio
