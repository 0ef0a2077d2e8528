// Every twin of every loop against one written out here, at lengths around the vector widths and at odd addresses.
#include "zero_infinity/kernels/kernels.h"
#include "tests/zero_infinity/kernels/values.h"
#include "zero_infinity/codec/codec.h"
#include "zero_infinity/kernels/float16.h"

#include <gtest/gtest.h>

#include <limits>
#include <string_view>

namespace penstock::zero {
namespace {

using test::finite_values;
using test::first_difference;

std::vector<const Kernels*> twins() {
    std::vector<const Kernels*> all;
    for (const Kernels* const* twin = runnable_kernels(); *twin != nullptr; ++twin) all.push_back(*twin);
    return all;
}

std::vector<std::size_t> lengths() {
    std::vector<std::size_t> all;
    for (std::size_t length = 0; length <= 70; ++length) all.push_back(length);
    for (const std::size_t length : {127U, 128U, 129U, 2048U, 4099U}) all.push_back(length);
    return all;
}

// Calls check(twin, length, seed); every other length starts one element behind the vector's alignment.
template <typename Check>
void for_each_twin(Check check) {
    for (const Kernels* twin : twins()) {
        SCOPED_TRACE(twin->name);
        for (const std::size_t length : lengths()) {
            SCOPED_TRACE("length and seed " + std::to_string(length));
            check(*twin, length, length);
            if (testing::Test::HasFatalFailure()) return;
        }
    }
}

TEST(Kernels, BaselineIsAlwaysRunnableAndTheFastestComesFirst) {
    const auto all = twins();
    EXPECT_EQ(std::string_view(all.back()->name), "baseline");
    EXPECT_EQ(&kernels(), all.front());
    std::string names;
    for (const Kernels* twin : all) names += std::string(" ") + twin->name;
    RecordProperty("twins", names);
    std::printf("twins run here:%s\n", names.c_str());
}

TEST(Kernels, SplitAndJoinAreTheFunctionsOfTheHeader) {
    for_each_twin([](const Kernels& twin, std::size_t length, std::uint64_t seed) {
        const auto storage = finite_values(seed, length + 1);
        const float* values = storage.data() + seed % 2;
        std::vector<std::uint16_t> hi(length);
        std::vector<std::uint16_t> lo(length);
        std::vector<float> joined(length);
        twin.split(values, hi.data(), lo.data(), length);
        twin.join(hi.data(), lo.data(), joined.data(), length);
        for (std::size_t i = 0; i < length; ++i) {
            ASSERT_EQ(hi[i], split_master(values[i]).hi);
            ASSERT_EQ(lo[i], split_master(values[i]).lo);
        }
        ASSERT_EQ(first_difference({values, length}, joined), -1);
    });
}

TEST(Kernels, SixteenBitConversionsAreTheFunctionsOfTheHeaderForAllPatterns) {
    for (const Kernels* twin : twins()) {
        SCOPED_TRACE(twin->name);
        std::vector<std::uint16_t> bits(0x10000);
        for (std::uint32_t i = 0; i < 0x10000; ++i) bits[i] = static_cast<std::uint16_t>(i);
        std::vector<float> wide(bits.size());
        twin->widen_bf16(bits.data(), wide.data(), bits.size());
        for (std::size_t i = 0; i < bits.size(); ++i) ASSERT_TRUE(test::same(wide[i], bf16_to_fp32(bits[i]))) << i;
        twin->widen_fp16(bits.data(), wide.data(), bits.size());
        for (std::size_t i = 0; i < bits.size(); ++i) ASSERT_TRUE(test::same(wide[i], fp16_to_fp32(bits[i]))) << i;

        std::vector<std::uint16_t> narrow(bits.size());
        for (const std::uint32_t low : {0U, 1U, 0x0fffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
            for (std::uint32_t i = 0; i < 0x10000; ++i) wide[i] = std::bit_cast<float>(i << 16 | low);
            twin->narrow_bf16(wide.data(), narrow.data(), wide.size());
            for (std::size_t i = 0; i < wide.size(); ++i) ASSERT_EQ(narrow[i], fp32_to_bf16(wide[i])) << i;
            twin->narrow_fp16(wide.data(), narrow.data(), wide.size());
            for (std::size_t i = 0; i < wide.size(); ++i) {
                ASSERT_EQ(narrow[i], fp32_to_fp16(wide[i])) << i << ' ' << low;
            }
        }
    }
}

TEST(Kernels, SixteenBitConversionsTakeOddLengths) {
    for_each_twin([](const Kernels& twin, std::size_t length, std::uint64_t seed) {
        const auto values = finite_values(seed, length);
        std::vector<std::uint16_t> bf16(length + 1, 0xabcd);
        std::vector<std::uint16_t> fp16(length + 1, 0xabcd);
        twin.narrow_bf16(values.data(), bf16.data(), length);
        twin.narrow_fp16(values.data(), fp16.data(), length);
        for (std::size_t i = 0; i < length; ++i) ASSERT_EQ(bf16[i], fp32_to_bf16(values[i]));
        for (std::size_t i = 0; i < length; ++i) ASSERT_EQ(fp16[i], fp32_to_fp16(values[i]));
        ASSERT_EQ(bf16[length], 0xabcd);
        ASSERT_EQ(fp16[length], 0xabcd);
    });
}

TEST(Kernels, ScaleAndAddRoundOncePerElement) {
    for_each_twin([](const Kernels& twin, std::size_t length, std::uint64_t seed) {
        auto scaled = finite_values(seed, length);
        auto sum = finite_values(seed + 1000, length);
        auto expected_scaled = scaled;
        auto expected_sum = sum;
        for (std::size_t i = 0; i < length; ++i) expected_sum[i] = expected_sum[i] + scaled[i];
        for (float& value : expected_scaled) value = value * 0.3F;
        twin.add(scaled.data(), sum.data(), length);
        twin.scale(scaled.data(), 0.3F, length);
        ASSERT_EQ(first_difference(scaled, expected_scaled), -1);
        ASSERT_EQ(first_difference(sum, expected_sum), -1);
    });
}

TEST(Kernels, AllWithinSeesOneBadElementAnywhereAndTakesTheLimitItself) {
    const float infinity = std::numeric_limits<float>::infinity();
    const float most = std::numeric_limits<float>::max();
    const float bad[] = {infinity, -infinity, NAN, std::bit_cast<float>(0xffffffffU),
                         std::bit_cast<float>(0x7f800001U)};
    for_each_twin([&](const Kernels& twin, std::size_t length, std::uint64_t seed) {
        auto values = finite_values(seed, length);
        ASSERT_TRUE(twin.all_within(values.data(), most, length));
        for (float& value : values) value = seed % 2 == 0 ? -7.0F : most;
        const float limit = seed % 2 == 0 ? 7.0F : most;
        ASSERT_TRUE(twin.all_within(values.data(), limit, length));
        if (length > 200) return;
        for (std::size_t i = 0; i < length; ++i) {
            const float kept = values[i];
            for (const float each : {bad[i % std::size(bad)], std::nextafter(limit, infinity)}) {
                values[i] = each;
                ASSERT_FALSE(twin.all_within(values.data(), limit, length)) << i;
            }
            values[i] = kept;
        }
    });
}

TEST(Kernels, SquaresGoToTheirLanesInOrder) {
    for_each_twin([](const Kernels& twin, std::size_t length, std::uint64_t seed) {
        const auto values = finite_values(seed, length, 1e-3F);
        double lanes[square_lanes];
        double expected[square_lanes];
        for (std::size_t lane = 0; lane < square_lanes; ++lane) lanes[lane] = expected[lane] = 0.1 * double(lane);
        for (std::size_t i = 0; i < length; ++i) {
            const double wide = values[i];
            const double square = wide * wide;
            expected[i % square_lanes] = expected[i % square_lanes] + square;
        }
        twin.add_squares(values.data(), lanes, length);
        for (std::size_t lane = 0; lane < square_lanes; ++lane) ASSERT_EQ(lanes[lane], expected[lane]) << lane;
    });
}

TEST(Kernels, AdamWRoundsEachOperationByItself) {
    const AdamFactors factors{.decay = 0.9999F,
                              .m_weight = 0.1F,
                              .v_decay = 0.999F,
                              .v_weight = 0.001F,
                              .v_correction = 0.0316F,
                              .epsilon = 1e-8F,
                              .step = -0.003F};
    for_each_twin([&](const Kernels& twin, std::size_t length, std::uint64_t seed) {
        auto p = finite_values(seed, length);
        auto m = finite_values(seed + 1, length, 1e-2F);
        auto v = finite_values(seed + 2, length, 1e-4F);
        for (float& value : v) value = std::abs(value);
        const auto g = finite_values(seed + 3, length, 1e-2F);
        auto expected_p = p;
        auto expected_m = m;
        auto expected_v = v;
        for (std::size_t i = 0; i < length; ++i) {
            const float difference = g[i] - m[i];
            const float pull = factors.m_weight * difference;
            expected_m[i] = m[i] + pull;
            const float old_v = v[i] * factors.v_decay;
            const float weighted = factors.v_weight * g[i];
            const float square = weighted * g[i];
            expected_v[i] = old_v + square;
            const float root = std::sqrt(expected_v[i]);
            const float corrected = root / factors.v_correction;
            const float denominator = corrected + factors.epsilon;
            const float decayed = p[i] * factors.decay;
            const float numerator = factors.step * expected_m[i];
            const float quotient = numerator / denominator;
            expected_p[i] = decayed + quotient;
        }
        twin.adamw.decoded(factors, {p.data(), {m.data(), v.data()}, g.data(), length});
        ASSERT_EQ(first_difference(m, expected_m), -1);
        ASSERT_EQ(first_difference(v, expected_v), -1);
        ASSERT_EQ(first_difference(p, expected_p), -1);
    });
}

// Arbitrary bit patterns, NaN and infinity included: the twins need agree with each other only.
TEST(Kernels, TwinsAgreeOnArbitraryBitPatterns) {
    const std::uint64_t seed = 77;
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random(seed);
    constexpr std::size_t count = 100003;
    std::vector<float> start[4];
    for (auto& array : start)
        for (std::size_t i = 0; i < count; ++i)
            array.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    const AdamFactors factors{0.99F, 0.1F, 0.999F, 0.001F, 0.5F, 1e-8F, -0.001F};
    std::vector<float> first[3];
    for (const Kernels* twin : twins()) {
        SCOPED_TRACE(twin->name);
        std::vector<float> state[3] = {start[0], start[1], start[2]};
        twin->adamw.decoded(factors, {state[0].data(), {state[1].data(), state[2].data()}, start[3].data(), count});
        for (int array = 0; array < 3; ++array) {
            if (first[array].empty()) first[array] = state[array];
            EXPECT_EQ(first_difference(state[array], first[array]), -1) << "array " << array;
        }
    }
}

}  // namespace
}  // namespace penstock::zero
