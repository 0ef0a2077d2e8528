#include "zero_infinity/optimizer/gradient.h"
#include "tests/zero_infinity/kernels/values.h"
#include "zero_infinity/kernels/float16.h"

#include <gtest/gtest.h>

#include <limits>

namespace penstock::zero {
namespace {

using test::finite_values;

constexpr PlaneType types[] = {PlaneType::fp32, PlaneType::bf16, PlaneType::fp16};

// A flat gradient of one type, and the fp32 value of each of its elements.
struct Flat {
    PlaneType type;
    std::vector<float> wide;
    std::vector<std::uint16_t> narrow;

    Flat(PlaneType of, const std::vector<float>& values) : type(of), wide(values) {
        if (type == PlaneType::fp32) return;
        for (float& value : wide) {
            narrow.push_back(type == PlaneType::bf16 ? fp32_to_bf16(value) : fp32_to_fp16(value));
            value = type == PlaneType::bf16 ? bf16_to_fp32(narrow.back()) : fp16_to_fp32(narrow.back());
        }
    }
    std::byte* data() {
        return type == PlaneType::fp32 ? reinterpret_cast<std::byte*>(wide.data())
                                       : reinterpret_cast<std::byte*>(narrow.data());
    }
    GradientView view() { return {data(), type, wide.size()}; }
};

// The header's definition, written out.
double naive_sum_of_squares(const std::vector<float>& x) {
    double lane[16] = {};
    for (std::size_t i = 0; i < x.size(); ++i) lane[i % 16] += double(x[i]) * double(x[i]);
    for (int half : {8, 4, 2, 1})
        for (int j = 0; j < half; ++j) lane[j] += lane[j + half];
    return lane[0];
}

TEST(Gradient, SumOfSquaresIsTheTreeOfTheHeader) {
    for (const PlaneType type : types) {
        for (const std::size_t count : {0U, 1U, 15U, 16U, 17U, 100U, 2047U, 2048U, 2049U, 10007U}) {
            Flat flat(type, finite_values(count + 1, count, 1e-3F));
            EXPECT_EQ(sum_of_squares(flat.view()), naive_sum_of_squares(flat.wide)) << word_of(type) << ' ' << count;
        }
    }
}

// Some other order must give other bits on this data, or the test above could not tell orders apart.
TEST(Gradient, SumOfSquaresOfTheTestDataDependsOnTheOrder) {
    const std::vector<float> x = finite_values(10008, 10007, 1e-3F);
    double in_line = 0;
    for (const float value : x) in_line += double(value) * double(value);
    EXPECT_NE(in_line, naive_sum_of_squares(x));
}

TEST(Gradient, SumOfSquaresNeitherOverflowsNorLosesSmallValuesWhereFp32Would) {
    Flat large(PlaneType::fp32, std::vector<float>(64, 1e30F));
    EXPECT_NEAR(sum_of_squares(large.view()) / 64e60, 1.0, 1e-6);
    Flat small(PlaneType::fp32, std::vector<float>(64, 1e-30F));
    EXPECT_NEAR(sum_of_squares(small.view()) / 64e-60, 1.0, 1e-6);
}

TEST(Gradient, SumOfSquaresPassesInfinityAndNaNOn) {
    for (const PlaneType type : types) {
        for (const std::size_t position : {0U, 16U, 2047U, 2048U, 2999U}) {
            auto values = finite_values(3, 3000, 1e-3F);
            for (float& value : values) value = std::min(std::max(value, -100.0F), 100.0F);
            values[position] = -std::numeric_limits<float>::infinity();
            EXPECT_TRUE(std::isinf(sum_of_squares(Flat(type, values).view()))) << word_of(type) << ' ' << position;
            values[position] = std::numeric_limits<float>::quiet_NaN();
            EXPECT_TRUE(std::isnan(sum_of_squares(Flat(type, values).view()))) << word_of(type) << ' ' << position;
        }
    }
}

TEST(Gradient, ScaledToFp32WidensThenMultipliesOnce) {
    for (const PlaneType type : types) {
        for (const float scale : {1.0F, 1.0F / 3.0F, 0x1p-16F}) {
            Flat flat(type, finite_values(9, 5001));
            std::vector<float> out(flat.wide.size());
            scaled_to_fp32(flat.view(), scale, out.data());
            for (std::size_t i = 0; i < out.size(); ++i)
                ASSERT_TRUE(test::same(out[i], flat.wide[i] * scale)) << word_of(type) << ' ' << i;
        }
    }
}

TEST(Gradient, AddIsFp32AdditionRoundedToTheType) {
    for (const PlaneType type : types) {
        Flat from(type, finite_values(20, 5001));
        Flat to(type, finite_values(21, 5001));
        const Flat before = to;
        add(from.view(), to.data());
        for (std::size_t i = 0; i < from.wide.size(); ++i) {
            const float sum = before.wide[i] + from.wide[i];
            if (type == PlaneType::fp32) {
                ASSERT_TRUE(test::same(to.wide[i], sum)) << i;
            } else {
                ASSERT_EQ(to.narrow[i], type == PlaneType::bf16 ? fp32_to_bf16(sum) : fp32_to_fp16(sum)) << i;
            }
        }
    }
}

TEST(Gradient, RefusesATypeThatIsNoGradient) {
    const std::byte data[16] = {};
    EXPECT_DEATH(sum_of_squares({data, PlaneType::u8, 16}), "gradients of type u8");
}

TEST(Gradient, ClipFactorIsTorchs) {
    EXPECT_EQ(clip_factor(2.0, 1.0), 1.0 / (2.0 + 1e-6));
    EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
    EXPECT_EQ(clip_factor(1.0, 1.0), 1.0 / (1.0 + 1e-6));  // torch clips a little just below the limit
    EXPECT_EQ(clip_factor(0.0, 1.0), 1.0);
    EXPECT_EQ(clip_factor(1e9, 0.0), 1.0);  // no clipping
    EXPECT_EQ(clip_factor(std::numeric_limits<double>::infinity(), 1.0), 0.0);
    EXPECT_TRUE(std::isnan(clip_factor(std::nan(""), 1.0)));
    EXPECT_DEATH(clip_factor(1.0, -1.0), "clip limit");
}

}  // namespace
}  // namespace penstock::zero
