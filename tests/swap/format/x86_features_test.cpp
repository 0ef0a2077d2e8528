#include "swap/format/x86_features.h"

#include <gtest/gtest.h>

namespace penstock::store {
namespace {

TEST(X86Features, AreThoseThatTheCompilerSees) {
    const X86Features features = x86_features();
    EXPECT_EQ(features.avx2, __builtin_cpu_supports("avx2") != 0);
    EXPECT_EQ(features.avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
}

}  // namespace
}  // namespace penstock::store
