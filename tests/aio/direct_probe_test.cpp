#include "aio/direct_probe.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <map>

namespace penstock::aio {
namespace {

struct FakeCalls final : DirectCalls {
    int set_error = 0;
    DirectAnswer answer;
    std::map<std::size_t, std::int64_t> reads;  // by length
    bool direct = false;
    int reads_tried = 0;

    int set_direct(int /*fd*/, bool on) override {
        if (on && set_error != 0) return set_error;
        direct = on;
        return 0;
    }
    DirectAnswer ask(int /*fd*/) override { return answer; }
    std::int64_t try_read(int /*fd*/, std::size_t bytes) override {
        ++reads_tried;
        return reads.at(bytes);
    }
};

TEST(DirectProbe, TakesWhatTheKernelTellsWithoutReading) {
    FakeCalls calls;
    calls.answer = {DirectAnswer::Kind::given, {4, 512}};
    const DirectSupport support = enable_direct(3, calls);
    EXPECT_TRUE(support.direct);
    EXPECT_TRUE(calls.direct);
    EXPECT_EQ(support.alignment.memory_bytes, 4U);
    EXPECT_EQ(support.alignment.offset_bytes, 512U);
    EXPECT_EQ(calls.reads_tried, 0);
}

TEST(DirectProbe, FallsBackWhenTheFileSystemRefusesTheFlag) {
    FakeCalls calls;
    calls.set_error = EINVAL;
    const DirectSupport support = enable_direct(3, calls);
    EXPECT_FALSE(support.direct);
    EXPECT_FALSE(calls.direct);
    EXPECT_EQ(support.alignment.offset_bytes, 1U);
    EXPECT_EQ(support.reason, "the file system refuses O_DIRECT: Invalid argument (EINVAL)");
}

TEST(DirectProbe, FallsBackWhenTheKernelReportsNoDirectIo) {
    FakeCalls calls;
    calls.answer.kind = DirectAnswer::Kind::refused;
    EXPECT_FALSE(enable_direct(3, calls).direct);
    EXPECT_FALSE(calls.direct);
}

TEST(DirectProbe, FindsSmallBlocksByAFullRead) {
    FakeCalls calls;
    calls.reads = {{512, 512}};
    const DirectSupport support = enable_direct(3, calls);
    EXPECT_TRUE(support.direct);
    EXPECT_EQ(support.alignment.offset_bytes, 512U);
}

TEST(DirectProbe, TakesLargeBlocksWhenSmallOnesAreRefused) {
    FakeCalls calls;
    calls.reads = {{512, -EINVAL}, {4096, 4096}};
    const DirectSupport support = enable_direct(3, calls);
    EXPECT_TRUE(support.direct);
    EXPECT_EQ(support.alignment.memory_bytes, 4096U);
    EXPECT_EQ(support.alignment.offset_bytes, 4096U);
}

TEST(DirectProbe, TakesLargeBlocksWhenTheFileIsTooShortToTell) {
    for (const std::int64_t count : {0, 100}) {
        FakeCalls calls;
        calls.reads = {{512, count}, {4096, count}};
        const DirectSupport support = enable_direct(3, calls);
        EXPECT_TRUE(support.direct);
        EXPECT_EQ(support.alignment.offset_bytes, 4096U);
    }
}

TEST(DirectProbe, FallsBackWhenEveryDirectReadIsRefused) {
    for (const int error : {EINVAL, EOPNOTSUPP}) {
        FakeCalls calls;
        calls.reads = {{512, -error}, {4096, -error}};
        const DirectSupport support = enable_direct(3, calls);
        EXPECT_FALSE(support.direct);
        EXPECT_FALSE(calls.direct);
    }
}

TEST(DirectProbe, LeavesADamagedFirstBlockToWhoeverReadsIt) {
    FakeCalls calls;
    calls.reads = {{512, -EIO}, {4096, -EIO}};
    EXPECT_TRUE(enable_direct(3, calls).direct);
}

TEST(DirectProbe, DoesNotTrustAnAlignmentThatIsNoPowerOfTwo) {
    FakeCalls calls;
    calls.answer = {DirectAnswer::Kind::given, {512, 1536}};
    calls.reads = {{512, -EINVAL}, {4096, 4096}};
    EXPECT_EQ(enable_direct(3, calls).alignment.offset_bytes, 4096U);
}

}  // namespace
}  // namespace penstock::aio
