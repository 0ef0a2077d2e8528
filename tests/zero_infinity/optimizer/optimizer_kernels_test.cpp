// The optimizers' loops: every twin gives the bits of the baseline's, whose bits optimizers_test.cpp knows by formula
// on the processor's fastest twin.
#include "tests/zero_infinity/kernels/kernel_cases.h"
#include "tests/zero_infinity/kernels/values.h"
#include "zero_infinity/kernels/kernels.h"

#include <gtest/gtest.h>

namespace penstock::zero {
namespace {

using test::finite_values;
using test::first_difference;
using test::kernel_cases;
using test::KernelCase;

struct Arrays {
    std::vector<float> p, a, b, g;
    UpdateSpan span(std::size_t count) { return {p.data(), {a.data(), b.data()}, g.data(), count}; }
};

const Kernels& baseline() {
    const Kernels* const* twin = runnable_kernels();
    while (twin[1] != nullptr) ++twin;
    return **twin;
}

void expect_same_as_baseline(const Arrays& start, std::size_t count) {
    for (const KernelCase& each : kernel_cases()) {
        Arrays expected = start;
        each.decoded(baseline(), expected.span(count));
        for (const Kernels* const* twin = runnable_kernels(); *twin != nullptr; ++twin) {
            Arrays actual = start;
            each.decoded(**twin, actual.span(count));
            ASSERT_EQ(first_difference(actual.p, expected.p), -1) << each.name << ' ' << (*twin)->name;
            ASSERT_EQ(first_difference(actual.a, expected.a), -1) << each.name << ' ' << (*twin)->name;
            ASSERT_EQ(first_difference(actual.b, expected.b), -1) << each.name << ' ' << (*twin)->name;
        }
        // What lies behind `count` is not touched.
        for (std::size_t i = count; i < start.p.size(); ++i)
            ASSERT_TRUE(test::same(expected.p[i], start.p[i]) && test::same(expected.a[i], start.a[i])) << each.name;
    }
}

TEST(OptimizerKernels, TwinsAgreeAtEveryLengthAroundTheVectorWidths) {
    std::vector<std::size_t> lengths{127, 128, 129, 2048, 4099};
    for (std::size_t length = 0; length <= 70; ++length) lengths.push_back(length);
    for (const std::size_t length : lengths) {
        SCOPED_TRACE("length and seed " + std::to_string(length));
        Arrays start{finite_values(length, length + 3), finite_values(length + 1, length + 3, 1e-2F),
                     finite_values(length + 2, length + 3, 1e-4F), finite_values(length + 3, length + 3, 1e-2F)};
        for (float& value : start.b) value = std::abs(value);
        expect_same_as_baseline(start, length);
        if (HasFatalFailure()) return;
    }
}

// NaN and infinity included: the twins need agree with each other only.
TEST(OptimizerKernels, TwinsAgreeOnArbitraryBitPatterns) {
    const std::uint64_t seed = 78;
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random(seed);
    constexpr std::size_t count = 20011;
    Arrays start;
    for (auto* array : {&start.p, &start.a, &start.b, &start.g})
        for (std::size_t i = 0; i < count; ++i)
            array->push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    expect_same_as_baseline(start, count);
}

}  // namespace
}  // namespace penstock::zero
