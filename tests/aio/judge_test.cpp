#include "aio/chunk.h"
#include "aio/words/io_error.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>

namespace penstock::aio {
namespace {

using Verdict = Judgement::Verdict;

std::array<std::byte, 16384> memory;

Chunk chunk_of(IoKind kind, std::uint32_t bytes, std::int32_t result) {
    Chunk chunk;
    chunk.kind = kind;
    chunk.data = memory.data();
    chunk.offset_bytes = 40960;
    chunk.bytes = bytes;
    chunk.result = result;
    return chunk;
}

void expect_at(const Chunk& chunk, std::uint32_t moved, std::uint32_t left) {
    EXPECT_EQ(chunk.data, memory.data() + moved);
    EXPECT_EQ(chunk.offset_bytes, 40960U + moved);
    EXPECT_EQ(chunk.bytes, left);
}

TEST(Judge, FinishesAFullTransfer) {
    Chunk chunk = chunk_of(IoKind::read, 8192, 8192);
    const Judgement judgement = judge(chunk, {.alignment_bytes = 4096, .tries = 3});
    EXPECT_EQ(judgement.verdict, Verdict::finished);
    EXPECT_EQ(judgement.moved_bytes, 8192U);
}

TEST(Judge, ResumesAShortTransferWithOffsetAndBufferAdvanced) {
    for (const IoKind kind : {IoKind::read, IoKind::write}) {
        Chunk chunk = chunk_of(kind, 8192, 100);
        const Judgement judgement = judge(chunk, {.alignment_bytes = 1, .tries = 3});
        EXPECT_EQ(judgement.verdict, Verdict::resume);
        EXPECT_EQ(judgement.moved_bytes, 100U);
        expect_at(chunk, 100, 8092);
        EXPECT_EQ(chunk.tries, 0);
    }
}

TEST(Judge, ResumesADirectTransferFromTheLastAlignedByte) {
    Chunk chunk = chunk_of(IoKind::write, 16384, 4096 + 1000);
    const Judgement judgement = judge(chunk, {.alignment_bytes = 4096, .tries = 3});
    EXPECT_EQ(judgement.verdict, Verdict::resume);
    EXPECT_EQ(judgement.moved_bytes, 4096U);
    expect_at(chunk, 4096, 12288);
}

TEST(Judge, GivesUpOnLessThanOneBlockAfterTheTriesAndPointsAtTheEnd) {
    Chunk chunk = chunk_of(IoKind::read, 8192, 1000);
    const JudgeRules rules{.alignment_bytes = 4096, .tries = 2};
    EXPECT_EQ(judge(chunk, rules).verdict, Verdict::retry);
    expect_at(chunk, 0, 8192);
    const Judgement judgement = judge(chunk, rules);
    EXPECT_EQ(judgement.verdict, Verdict::failed);
    EXPECT_EQ(judgement.errno_value, 0);
    expect_at(chunk, 1000, 7192);
    EXPECT_EQ(chunk.tries, 2);
}

TEST(Judge, WhereTheFileEndsWhatIsMissingIsAnErrorAtOnce) {
    for (const std::int32_t count : {1000, 4096, 4096 + 1000}) {
        Chunk chunk = chunk_of(IoKind::read, 8192, count);
        const Judgement judgement = judge(chunk, {.alignment_bytes = 4096, .tries = 3, .file_ends = true});
        EXPECT_EQ(judgement.verdict, Verdict::failed);
        EXPECT_EQ(judgement.errno_value, 0);
        EXPECT_EQ(judgement.moved_bytes, static_cast<std::uint32_t>(count));
        expect_at(chunk, static_cast<std::uint32_t>(count), 8192 - static_cast<std::uint32_t>(count));
        EXPECT_EQ(chunk.tries, 1);
    }
}

TEST(Judge, TakesZeroBytesForAnErrorAtOnce) {
    for (const IoKind kind : {IoKind::read, IoKind::write}) {
        Chunk chunk = chunk_of(kind, 8192, 0);
        const Judgement judgement = judge(chunk, {.alignment_bytes = 1, .tries = 3});
        EXPECT_EQ(judgement.verdict, Verdict::failed);
        EXPECT_EQ(judgement.errno_value, 0);
    }
}

TEST(Judge, RetriesWhatPassesUpToTheBound) {
    for (const int error : {EAGAIN, EINTR}) {
        Chunk chunk = chunk_of(IoKind::read, 8192, -error);
        const JudgeRules rules{.alignment_bytes = 4096, .tries = 3};
        EXPECT_EQ(judge(chunk, rules).verdict, Verdict::retry);
        EXPECT_EQ(judge(chunk, rules).verdict, Verdict::retry);
        const Judgement judgement = judge(chunk, rules);
        EXPECT_EQ(judgement.verdict, Verdict::failed);
        EXPECT_EQ(judgement.errno_value, error);
        EXPECT_EQ(chunk.tries, 3);
        expect_at(chunk, 0, 8192);
    }
}

TEST(Judge, FailsAtOnceOnAnyOtherErrorAlsoOfAFlush) {
    for (const IoKind kind : {IoKind::read, IoKind::write, IoKind::flush}) {
        Chunk chunk = chunk_of(kind, kind == IoKind::flush ? 0 : 8192, -EIO);
        const Judgement judgement = judge(chunk, {.alignment_bytes = 4096, .tries = 3});
        EXPECT_EQ(judgement.verdict, Verdict::failed);
        EXPECT_EQ(judgement.errno_value, EIO);
    }
}

TEST(Judge, FinishesAFlush) {
    Chunk chunk = chunk_of(IoKind::flush, 0, 0);
    EXPECT_EQ(judge(chunk, {.alignment_bytes = 4096, .tries = 3}).verdict, Verdict::finished);
}

TEST(Judge, ChecksThatABackendDoesNotClaimMoreThanItWasAskedFor) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    Chunk chunk = chunk_of(IoKind::read, 4096, 8192);
    EXPECT_DEATH(judge(chunk, {.alignment_bytes = 4096, .tries = 3}), "claims 8192 bytes moved of 4096");
}

}  // namespace
}  // namespace penstock::aio
