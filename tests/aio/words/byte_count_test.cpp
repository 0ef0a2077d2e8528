#include "aio/words/byte_count.h"

#include <gtest/gtest.h>

namespace penstock::aio {
namespace {

TEST(ByteCount, ReadsWholeBytesWithAndWithoutAUnit) {
    EXPECT_EQ(parse_bytes("300MiB"), 300U << 20);
    EXPECT_EQ(parse_bytes("300 MiB"), 300U << 20);
    EXPECT_EQ(parse_bytes("0.5KiB"), 512U);
    EXPECT_EQ(parse_bytes("1.5GiB"), 3ULL << 29);
    EXPECT_EQ(parse_bytes("0"), 0U);
    EXPECT_EQ(parse_bytes("17"), 17U);
    EXPECT_EQ(parse_bytes("17B"), 17U);
    EXPECT_EQ(parse_bytes("1e9"), 1'000'000'000U);
    EXPECT_EQ(parse_bytes("2TiB"), 2ULL << 40);
    EXPECT_EQ(parse_bytes("1048576TiB"), 1ULL << 60);
}

TEST(ByteCount, RefusesWhatIsNoNumberOfBytes) {
    for (const char* wrong : {"", "MiB", "3MB", "3 G", "-1MiB", "1.5", "nanMiB", "infGiB", "1e40", "0x10", "3MiB ",
                              " 3MiB", "two", "-1", "2 GiB x", "1e30TiB", "1048577TiB", "1KiBKiB"}) {
        EXPECT_EQ(parse_bytes(wrong), std::nullopt) << wrong;
    }
}

}  // namespace
}  // namespace penstock::aio
