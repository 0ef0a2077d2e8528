// The codec `compact` against its definition written in doubles, and against the bounds that its header states.
#include "zero_infinity/kernels/compact.h"
#include "zero_infinity/optimizer/optimizers.h"

#include "tests/zero_infinity/kernels/patterns.h"
#include "tests/zero_infinity/kernels/values.h"
#include "zero_infinity/codec/codec.h"
#include "zero_infinity/kernels/float16.h"
#include "zero_infinity/kernels/kernels.h"
#include "zero_infinity/optimizer/update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace penstock::zero {
namespace {

using test::lower_halves;
using test::rounded;
using test::same_value;
using test::seed_text;

constexpr double largest_master = 0x1.fffep127;  // of 24 bits

void for_each_twin(const std::function<void(const Kernels&)>& check) {
    for (const Kernels* const* twin = runnable_kernels(); *twin != nullptr; ++twin) {
        SCOPED_TRACE((*twin)->name);
        check(**twin);
        if (testing::Test::HasFatalFailure()) return;
    }
}

double nearest_master(double value) {
    const double nearest = rounded(value, 16, -126, 0x1p128, test::ties_even);
    return std::isinf(nearest) && std::isfinite(value) ? std::copysign(largest_master, value) : nearest;
}

TEST(Compact, MasterIsRoundedTo24BitsAndItsWeightFromThem) {
    const ErrorBound bound = compact_codec().error;
    std::vector<float> values(0x10000), decoded(0x10000);
    std::vector<std::uint16_t> weights(0x10000);
    std::vector<std::uint8_t> residuals(0x10000);
    for (const std::uint32_t low : lower_halves(48)) {
        for (std::uint32_t hi = 0; hi < 0x10000; ++hi) values[hi] = std::bit_cast<float>(hi << 16 | low);
        kernels().split_compact(values.data(), weights.data(), residuals.data(), values.size());
        kernels().join_compact(weights.data(), residuals.data(), decoded.data(), values.size());
        for (std::uint32_t hi = 0; hi < 0x10000; ++hi) {
            const double value = values[hi];
            ASSERT_TRUE(same_value(decoded[hi], nearest_master(value))) << std::hex << (hi << 16 | low);
            ASSERT_TRUE(same_value(bf16_to_fp32(weights[hi]), rounded(decoded[hi], 8, -126, 0x1p128, test::ties_away)));
            if (!std::isfinite(value)) continue;
            const double allowed = std::abs(value) < 0x1p-126 ? bound.master_tiny : bound.master * std::abs(value);
            ASSERT_LE(std::abs(decoded[hi] - value), allowed) << std::hex << (hi << 16 | low);
        }
    }
}

TEST(Compact, MasterSurvivesAnotherRoundUnchanged) {
    for (std::uint32_t master = 0; master < 0x1000000U; ++master) {
        const float value = std::bit_cast<float>(master << 8);
        if (std::isnan(value)) continue;
        ASSERT_EQ(compact_master(value), master);
        ASSERT_TRUE(test::same(compact_join(compact_weight(master), compact_residual(master)), value));
    }
}

TEST(Compact, EveryScaleIsItsValueAndBackAndTheNearest) {
    EXPECT_EQ(compact_scale(0), 0);
    EXPECT_EQ(compact_scale_value(0), 0.0F);
    EXPECT_EQ(compact_scale_value(0x400), compact_least_scale);
    EXPECT_EQ(compact_scale_value(0xffff), compact_largest_scale);
    const auto scale_of = [](float value) { return compact_scale(std::bit_cast<std::uint32_t>(value)); };
    for (std::uint32_t code = 0x400; code <= 0xffff; ++code) {
        const float value = compact_scale_value(static_cast<std::uint16_t>(code));
        ASSERT_EQ(double{value}, rounded(value, 11, -47, 0x1p17, test::ties_even));
        ASSERT_EQ(scale_of(value), code);
        for (const std::int32_t step : {-0x1001, -0x1000, -0xfff, 0xfff, 0x1000, 0x1001}) {
            const float near = std::bit_cast<float>(std::bit_cast<std::int32_t>(value) + step);
            const double expected = std::clamp(rounded(near, 11, -200, 0x1p200, test::ties_even),
                                               double{compact_least_scale}, double{compact_largest_scale});
            ASSERT_EQ(double{compact_scale_value(scale_of(near))}, expected) << near;
        }
    }
    for (const float tiny : {0x1p-149F, 0x1p-126F, 0x1p-60F, 0x1.fffp-48F}) EXPECT_EQ(scale_of(tiny), 0x400);
    for (const float huge : {65505.0F, 1e10F, std::numeric_limits<float>::infinity()})
        EXPECT_EQ(scale_of(huge), 0xffff);
}

TEST(Compact, AScaleShrinksWithTheSecondMomentOfAdam) {
    for (std::uint32_t code = 0x401; code <= 0xffff; ++code) {
        const float root = compact_scale_value(static_cast<std::uint16_t>(code));
        const float next = std::sqrt(root * root * 0.999F);
        const std::uint32_t scale = compact_scale(std::bit_cast<std::uint32_t>(next));
        ASSERT_LT(scale, code);
        ASSERT_GE(scale + 2, code);
    }
}

// All codes under scales of every exponent, on every twin: the value is the formula's, and coding it again changes
// nothing when the block's largest is there.
TEST(Compact, EveryCodeIsItsFormulaAndBack) {
    for_each_twin([](const Kernels& twin) {
        for (std::uint32_t scale = 0x400; scale <= 0xffff; scale += 37) {
            const double s = compact_scale_value(static_cast<std::uint16_t>(scale));
            for (int first = 0; first < 256; first += 31) {
                std::uint8_t codes[32], signed_codes[32], again[32];
                for (int i = 0; i < 31; ++i) codes[i] = static_cast<std::uint8_t>(std::min(first + i, 255));
                for (int i = 0; i < 31; ++i) signed_codes[i] = codes[i] == 0x80 ? 0 : codes[i];  // -128 is never made
                codes[31] = 255;
                signed_codes[31] = first % 2 == 0 ? 127 : 129;
                const auto given = static_cast<std::uint16_t>(scale);
                std::uint16_t scale_again = 0;
                float values[32];
                twin.decode_signed(signed_codes, &given, values, 32);
                for (int i = 0; i < 32; ++i) {
                    const double c = static_cast<std::int8_t>(signed_codes[i]);
                    ASSERT_NEAR(values[i], s * c / (254 - std::abs(c)), 2e-7 * std::abs(values[i])) << c;
                }
                twin.encode_signed(values, again, &scale_again, 32);
                ASSERT_TRUE(std::equal(again, again + 32, signed_codes)) << scale << ' ' << first;
                ASSERT_EQ(scale_again, given);
                twin.decode_squares(codes, &given, values, 32);
                for (int i = 0; i < 32; ++i) {
                    const double root = s * codes[i] / 255;
                    ASSERT_NEAR(values[i], root * root, 5e-7 * root * root) << int{codes[i]};
                }
                twin.encode_squares(values, again, &scale_again, 32);
                ASSERT_TRUE(std::equal(again, again + 32, codes)) << scale << ' ' << first;
                ASSERT_EQ(scale_again, given);
            }
        }
    });
}

// The code of the definition, unless the value is so near a tie that doubles and floats may differ.
void expect_code(double exact, int code, double value) {
    if (std::abs(exact - std::floor(exact) - 0.5) < 1e-3) return;
    ASSERT_EQ(code, std::nearbyint(exact)) << value;
}

// Blocks of one magnitude, of many, with ties between codes, zeros, subnormals and the largest that is held.
std::vector<float> adversarial_moments(std::uint64_t seed, std::size_t count) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> ordinary(0, 1);
    std::vector<float> values(count);
    for (std::size_t first = 0; first < count; first += compact_block) {
        const double size = std::ldexp(1.0, static_cast<int>(random() % 70) - 55);
        const std::uint64_t kind = random() % 6;
        for (std::size_t i = first; i < std::min(first + compact_block, count); ++i) {
            double value = ordinary(random) * size;
            if (kind == 1) value *= std::ldexp(1.0, -static_cast<int>(random() % 40));
            if (kind == 2) {  // a tie: x with 254 x / (1 + x) = c + 1/2
                const double c = static_cast<double>(random() % 127) + 0.5;
                value = size * c / (254 - c);
            }
            if (kind == 3) value = random() % 3 == 0 ? value : 0;
            if (kind == 4) value = std::ldexp(ordinary(random), -126 - static_cast<int>(random() % 23));
            if (kind == 5) value = 0x1p15 * ordinary(random);
            values[i] = std::clamp(static_cast<float>(value), -compact_largest_scale, compact_largest_scale);
        }
    }
    return values;
}

TEST(Compact, MomentsStayWithinTheBoundsOfTheHeader) {
    const ErrorBound bound = compact_codec().error;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        SCOPED_TRACE(seed_text(seed));
        const std::size_t count = 32 * 500 + seed % 32;
        const auto m = adversarial_moments(seed, count);
        std::vector<float> v;
        for (const float value : m) v.push_back(value * value);
        std::vector<std::uint8_t> codes(count), square_codes(count);
        std::vector<std::uint16_t> scales(count / 32 + 1), square_scales(count / 32 + 1);
        std::vector<float> m_back(count), v_back(count);
        kernels().encode_signed(m.data(), codes.data(), scales.data(), count);
        ASSERT_EQ(std::count(codes.begin(), codes.end(), 0x80), 0);
        kernels().decode_signed(codes.data(), scales.data(), m_back.data(), count);
        kernels().encode_squares(v.data(), square_codes.data(), square_scales.data(), count);
        kernels().decode_squares(square_codes.data(), square_scales.data(), v_back.data(), count);
        for (std::size_t first = 0; first < count; first += compact_block) {
            double largest_m = bound.least_largest, largest_root = bound.least_largest;
            const std::size_t end = std::min(first + compact_block, count);
            for (std::size_t i = first; i < end; ++i) {
                largest_m = std::max(largest_m, std::abs(double{m[i]}));
                largest_root = std::max(largest_root, std::sqrt(double{v[i]}));
            }
            const double scale = compact_scale_value(scales[first / compact_block]);
            const double square_scale = compact_scale_value(square_scales[first / compact_block]);
            for (std::size_t i = first; i < end; ++i) {
                const double x = scale == 0 ? 0 : std::min(std::abs(double{m[i]}) / scale, 1.0);
                expect_code(254 * x / (1 + x), std::abs(static_cast<std::int8_t>(codes[i])), m[i]);
                const double root = square_scale == 0 ? 0 : std::min(std::sqrt(double{v[i]}) / square_scale, 1.0);
                expect_code(std::max(255 * root, v[i] > 0 ? 1.0 : 0.0), square_codes[i], v[i]);
                ASSERT_LE(std::abs(double{m_back[i]} - m[i]), bound.moment * largest_m) << m[i];
                if (x < 0.004) {
                    ASSERT_LE(std::abs(double{m_back[i]} - m[i]), largest_m / 500) << m[i];
                }
                ASSERT_LE(std::abs(std::sqrt(double{v_back[i]}) - std::sqrt(double{v[i]})), bound.root * largest_root);
                if (m[i] == 0) {
                    ASSERT_EQ(std::bit_cast<std::uint32_t>(m_back[i]), 0U) << "zero stays zero";
                }
                ASSERT_EQ(v_back[i] == 0, v[i] == 0) << v[i] << " became " << v_back[i];
            }
        }
    }
}

TEST(Compact, WhatTheUpdateRefusesWouldBeClippedToTheLargest) {
    for_each_twin([](const Kernels& twin) {
        for (const float huge : {65536.0F, 1e30F, std::numeric_limits<float>::infinity()}) {
            const float values[3] = {huge, -huge, 65504.0F};
            float back[3];
            std::uint8_t codes[3];
            std::uint16_t scale = 0;
            twin.encode_signed(values, codes, &scale, 3);
            twin.decode_signed(codes, &scale, back, 3);
            EXPECT_EQ(back[0], compact_largest_scale);
            EXPECT_EQ(back[1], -compact_largest_scale);
            EXPECT_EQ(back[2], compact_largest_scale);
            const float square = std::max(huge, 1e10F);
            twin.encode_squares(&square, codes, &scale, 1);
            EXPECT_EQ(codes[0], 255);
            EXPECT_EQ(scale, 0xffff);
        }
    });
}

// What the update refuses is still coded to something, the same on every twin; nothing depends on NaN's rules.
TEST(Compact, TwinsAgreeOnArbitraryBitPatternsAndOddLengths) {
    std::mt19937_64 random(5);
    constexpr std::size_t count = 20011;
    std::vector<float> values;
    for (std::size_t i = 0; i < count; ++i) {
        const auto bits = static_cast<std::uint32_t>(random());
        values.push_back(i % 640 < 320 ? std::bit_cast<float>(bits) : std::ldexp(float(bits), -50));
    }
    values[700] = std::numeric_limits<float>::quiet_NaN();
    values[701] = -std::numeric_limits<float>::infinity();
    struct Result {
        std::vector<std::uint16_t> weights = std::vector<std::uint16_t>(count), scales[2] = {weights, weights};
        std::vector<std::uint8_t> codes[3] = {std::vector<std::uint8_t>(count), codes[0], codes[0]};
        std::vector<float> decoded[3] = {std::vector<float>(count), decoded[0], decoded[0]};
    };
    std::vector<Result> results;
    for (const std::size_t length : {count, std::size_t{0}, std::size_t{1}, std::size_t{31}, std::size_t{33}}) {
        results.clear();
        for_each_twin([&](const Kernels& twin) {
            Result result;
            twin.split_compact(values.data(), result.weights.data(), result.codes[0].data(), length);
            twin.join_compact(result.weights.data(), result.codes[0].data(), result.decoded[0].data(), length);
            twin.encode_signed(values.data(), result.codes[1].data(), result.scales[0].data(), length);
            twin.decode_signed(result.codes[1].data(), result.scales[0].data(), result.decoded[1].data(), length);
            twin.encode_squares(values.data(), result.codes[2].data(), result.scales[1].data(), length);
            twin.decode_squares(result.codes[2].data(), result.scales[1].data(), result.decoded[2].data(), length);
            if (results.empty()) results.push_back(result);
            EXPECT_EQ(result.weights, results[0].weights);
            for (int i = 0; i < 2; ++i) EXPECT_EQ(result.scales[i], results[0].scales[i]);
            for (int i = 0; i < 3; ++i) EXPECT_EQ(result.codes[i], results[0].codes[i]);
            for (int i = 0; i < 3; ++i) EXPECT_EQ(test::first_difference(result.decoded[i], results[0].decoded[i]), -1);
            for (std::size_t i = length; i < count; ++i) ASSERT_EQ(result.codes[1][i], 0) << "behind the end";
        });
    }
    for (std::size_t i = 0; i < 33; ++i) EXPECT_TRUE(std::isfinite(results[0].decoded[1][i]));
}

// Gradients that come and go, small beside large ones in the same block: no update explodes.
TEST(Compact, TheQuotientOfAnUpdateIsBounded) {
    const auto adamw = make_adamw({.weight_decay = 0});
    const StateFormat format = state_format(compact_codec(), *adamw);
    constexpr std::size_t count = 4096;
    constexpr double learning_rate = 0x1p-20;
    alignas(64) static std::byte weights[count * 2];
    alignas(64) static std::byte states[count * 4];
    Workers workers(1);
    double worst = 0;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        std::mt19937_64 random(seed);
        std::vector<float> masters(count, 0.0F), m(count), v(count), gradient(count);
        std::vector<double> size(count);
        for (double& each : size) each = std::ldexp(1.0, -static_cast<int>(random() % 14));
        const TileView tile{weights, states, count};
        encode_initial(format, masters.data(), tile);
        for (std::uint64_t step = 1; step <= 300; ++step) {
            for (std::size_t i = 0; i < count; ++i) {
                const bool on = (step / (20 + i % 50)) % 2 == seed % 2;
                gradient[i] = static_cast<float>(on ? size[i] : random() % 97 == 0 ? 30 * size[i] : 0.0);
            }
            const TileUpdate update{&format, adamw.get(), {1000 + step, learning_rate}, 1.0F};
            const GradientView view{reinterpret_cast<const std::byte*>(gradient.data()), PlaneType::fp32, count};
            ASSERT_EQ(update_tile(update, tile, view, workers), std::nullopt);
            decode_moment(format, tile, 0, m.data());
            decode_moment(format, tile, 1, v.data());
            for (std::size_t i = 0; i < count; ++i) {
                if (m[i] == 0) continue;
                ASSERT_GT(v[i], 0) << "m without v";
                worst = std::max(worst, std::abs(m[i]) / std::sqrt(double{v[i]}));
            }
        }
    }
    std::printf("largest |m| / sqrt(v) seen: %.1f\n", worst);
    EXPECT_LE(worst, 340);
}

}  // namespace
}  // namespace penstock::zero
