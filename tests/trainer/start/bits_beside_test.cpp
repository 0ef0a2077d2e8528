#include "trainer/start/bits_beside.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace penstock::trainer {
namespace {

TEST(BitsBeside, SayTheProcessorTheLibrariesAndEachVariableSetOrNot) {
    ::unsetenv("MKL_CBWR");
    const store::ClientState without = bits_beside(zero::DeviceKind::cpu);
    EXPECT_EQ(without.at("bits.MKL_CBWR"), "not set");
    for (const char* key : {"bits.processor", "bits.torch", "bits.torch_instructions"}) EXPECT_NE(without.at(key), "");
    EXPECT_EQ(bits_beside(zero::DeviceKind::emulated), without);
    ::setenv("MKL_CBWR", "AVX2", 1);
    store::ClientState with = bits_beside(zero::DeviceKind::cpu);
    ::unsetenv("MKL_CBWR");
    EXPECT_EQ(with.at("bits.MKL_CBWR"), "AVX2");
    EXPECT_EQ(bits_beside(zero::DeviceKind::cuda).at("bits.device"), "cuda");
}

TEST(BitsBeside, EachThatChangedIsALineWithBothValues) {
    const store::ClientState stored{
        {"bits.processor", "A"}, {"bits.mkl", "1"}, {"bits.older", "x"}, {"config.run.threads", "1"}};
    const store::ClientState now{{"bits.processor", "B"}, {"bits.mkl", "1"}, {"bits.newer", "y"}};
    const std::vector<std::string> lines = changed_bits(stored, now);
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_TRUE(lines[0].starts_with("processor was \"A\" and is \"B\": ")) << lines[0];
    EXPECT_TRUE(changed_bits({}, now).empty()) << "an older program recorded nothing";
}

TEST(BitsBeside, WhatAnybodyWroteIsShownInOneLine) {
    const std::vector<std::string> lines =
        changed_bits({{"bits.mkl", "a\n\x1b[31m" + std::string(1000, 'x')}}, {{"bits.mkl", "1"}});
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_LT(lines[0].size(), 500U);
    EXPECT_EQ(lines[0].find_first_of("\n\x1b"), std::string::npos);
}

}  // namespace
}  // namespace penstock::trainer
