#include "zero_infinity/codec/codec.h"
#include "tests/zero_infinity/kernels/patterns.h"
#include "tests/zero_infinity/kernels/values.h"
#include "zero_infinity/kernels/float16.h"

#include <gtest/gtest.h>

#include <utility>

namespace penstock::zero {
namespace {

using test::finite_values;
using test::seed_text;

using test::lower_halves;
using test::rounded;
using test::same_value;
using test::ties_away;
using test::ties_even;

// Encodes and decodes all patterns with one lower half in one call of the codec.
struct Patterns {
    std::vector<float> values = std::vector<float>(0x10000);
    std::vector<float> decoded = std::vector<float>(0x10000);
    std::vector<std::uint16_t> weights = std::vector<std::uint16_t>(0x10000);
    std::vector<std::uint32_t> master = std::vector<std::uint32_t>(0x10000);  // 2 or 4 bytes each are used

    void run(const Codec& codec, std::uint32_t low) {
        for (std::uint32_t hi = 0; hi < 0x10000; ++hi) values[hi] = std::bit_cast<float>(hi << 16 | low);
        auto* weight_bytes = reinterpret_cast<std::byte*>(weights.data());
        auto* master_bytes = reinterpret_cast<std::byte*>(master.data());
        codec.encode_master(values.data(), weight_bytes, master_bytes, values.size());
        codec.decode_master(codec.master_needs_weights ? weight_bytes : nullptr, master_bytes, decoded.data(),
                            values.size());
    }
};

TEST(Codec, SplitExampleOfTheHeaderHolds) {
    static_assert(split_master(std::bit_cast<float>(0x3f808000U)).hi == 0x3f81);
    static_assert(split_master(std::bit_cast<float>(0x3f808000U)).lo == 0x8000);
    static_assert(std::bit_cast<std::uint32_t>(join_master({0x3f81, 0x8000})) == 0x3f808000U);
}

TEST(Codec, SplitRoundTripsEveryTieExponentSignAndNaNBitForBit) {
    Patterns patterns;
    for (const std::uint32_t low : lower_halves(256)) {
        patterns.run(split_codec(), low);
        for (std::uint32_t hi = 0; hi < 0x10000; ++hi) {
            const std::uint32_t bits = hi << 16 | low;
            ASSERT_EQ(std::bit_cast<std::uint32_t>(patterns.decoded[hi]), bits);
            ASSERT_EQ(std::bit_cast<std::uint32_t>(join_master(split_master(std::bit_cast<float>(bits)))), bits);
            ASSERT_EQ(split_master(std::bit_cast<float>(bits)).hi, patterns.weights[hi]) << std::hex << bits;
        }
    }
}

TEST(Codec, SplitWeightIsTheMasterRoundedToNearestWithTiesAwayFromZero) {
    Patterns patterns;
    for (const std::uint32_t low : lower_halves(48)) {
        patterns.run(split_codec(), low);
        for (std::uint32_t hi = 0; hi < 0x10000; ++hi) {
            const double value = patterns.values[hi];
            if (std::isnan(value)) continue;
            ASSERT_TRUE(same_value(bf16_to_fp32(patterns.weights[hi]), rounded(value, 8, -126, 0x1p128, ties_away)))
                << std::hex << (hi << 16 | low);
        }
    }
}

TEST(Codec, SplitDiffersFromTiesToEvenInExactly32640Patterns) {
    Patterns patterns;
    std::size_t different = 0;
    for (const std::uint32_t low : lower_halves(32)) {
        patterns.run(split_codec(), low);
        for (std::uint32_t hi = 0; hi < 0x10000; ++hi) {
            const float value = patterns.values[hi];
            if (!std::isnan(value) && patterns.weights[hi] != fp32_to_bf16(value)) ++different;
        }
    }
    EXPECT_EQ(different, 32640U);  // all of them have the lower half 0x8000, which is among those tried
}

TEST(Codec, PlainBf16WeightIsRoundedToNearestEvenAndMasterIsKept) {
    Patterns patterns;
    for (const std::uint32_t low : lower_halves(48)) {
        patterns.run(plain_bf16_codec(), low);
        for (std::uint32_t hi = 0; hi < 0x10000; ++hi) {
            ASSERT_EQ(patterns.master[hi], hi << 16 | low);
            ASSERT_EQ(std::bit_cast<std::uint32_t>(patterns.decoded[hi]), hi << 16 | low);
            const double value = patterns.values[hi];
            if (std::isnan(value)) {
                ASSERT_EQ(patterns.weights[hi], 0x7fc0) << "as c10::BFloat16";
            } else {
                ASSERT_TRUE(same_value(bf16_to_fp32(patterns.weights[hi]), rounded(value, 8, -126, 0x1p128, ties_even)))
                    << std::hex << (hi << 16 | low);
            }
        }
    }
}

TEST(Codec, PlainFp16WeightIsRoundedToNearestEvenAndMasterIsKept) {
    Patterns patterns;
    for (const std::uint32_t low : lower_halves(48)) {
        patterns.run(plain_fp16_codec(), low);
        for (std::uint32_t hi = 0; hi < 0x10000; ++hi) {
            ASSERT_EQ(patterns.master[hi], hi << 16 | low);
            ASSERT_EQ(std::bit_cast<std::uint32_t>(patterns.decoded[hi]), hi << 16 | low);
            const double value = patterns.values[hi];
            if (std::isnan(value)) {
                ASSERT_EQ(patterns.weights[hi], (hi & 0x8000) | 0x7e00) << "as c10::Half";
            } else {
                ASSERT_TRUE(same_value(fp16_to_fp32(patterns.weights[hi]), rounded(value, 11, -14, 0x1p16, ties_even)))
                    << std::hex << (hi << 16 | low);
            }
        }
    }
}

TEST(Codec, EveryFp16BitPatternWidensToItsValueAndBack) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        const int exponent = (half >> 10) & 31;
        const int mantissa = half & 1023;
        double value = exponent == 31  ? (mantissa == 0 ? INFINITY : NAN)
                       : exponent == 0 ? std::ldexp(mantissa, -24)
                                       : std::ldexp(1024 + mantissa, exponent - 25);
        if (half & 0x8000) value = -value;
        ASSERT_TRUE(same_value(fp16_to_fp32(half), value)) << std::hex << bits;
        if (!std::isnan(value)) {
            ASSERT_EQ(fp32_to_fp16(fp16_to_fp32(half)), half);
        }
    }
}

TEST(Codec, EveryBf16BitPatternWidensToTheUpperHalf) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const auto brief = static_cast<std::uint16_t>(bits);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(bf16_to_fp32(brief)), bits << 16);
        if (!std::isnan(bf16_to_fp32(brief))) {
            ASSERT_EQ(fp32_to_bf16(bf16_to_fp32(brief)), brief);
        }
    }
}

TEST(Codec, EachCodecDecodesWhatItEncodedAtOddLengthsAndLeavesTheRestAlone) {
    const std::uint64_t seed = 11;
    SCOPED_TRACE(seed_text(seed));
    for (const std::string_view name : codec_names()) {
        const Codec& codec = *find_codec(name);
        if (!codec.exact) continue;
        for (const std::size_t count : {0U, 1U, 7U, 31U, 65U, 1000U}) {
            const std::vector<float> values = finite_values(seed + count, count);
            std::vector<float> decoded(count + 1, 42.0F);
            std::vector<std::uint32_t> weights(count + 1, 0xdeadbeef);
            std::vector<std::uint32_t> master(count + 1, 0xdeadbeef);
            auto* weight_bytes = reinterpret_cast<std::byte*>(weights.data());
            auto* master_bytes =
                codec.plane(PlaneOf::master) != nullptr ? reinterpret_cast<std::byte*>(master.data()) : nullptr;
            codec.encode_master(values.data(), weight_bytes, master_bytes, count);
            codec.decode_master(codec.master_needs_weights ? weight_bytes : nullptr, master_bytes, decoded.data(),
                                count);
            decoded.resize(count);
            EXPECT_EQ(test::first_difference(values, decoded), -1) << name << ", " << count;
            EXPECT_EQ(weight_bytes[count * bytes_of(codec.weights)],
                      count * bytes_of(codec.weights) % 4 == 2 ? std::byte{0xad} : std::byte{0xef})
                << name;
            EXPECT_EQ(weights[count], 0xdeadbeef) << name;
            EXPECT_EQ(master[count], 0xdeadbeef) << name;
        }
    }
}

TEST(Codec, IsFoundByItsNameAndByNoOther) {
    EXPECT_EQ(codec_names(),
              (std::vector<std::string_view>{"split", "plain_fp32", "plain_bf16", "plain_fp16", "compact"}));
    for (const std::string_view name : codec_names()) EXPECT_EQ(find_codec(name)->name, name);
    EXPECT_EQ(find_codec("splits"), nullptr);
    EXPECT_EQ(find_codec(""), nullptr);
}

// A store of an earlier version is read back: the same planes at the same bytes.
TEST(StateFormat, PlanesLieWhereStoresHaveThem) {
    const StateFormat split{&split_codec(), 2};
    EXPECT_EQ(split.weights_bytes(), 2U);
    EXPECT_EQ(split.states_bytes(4096), 40960U);
    EXPECT_EQ(split.moment_offset_bytes(0, 1000), 0U);
    EXPECT_EQ(split.moment_offset_bytes(1, 1000), 4000U);
    EXPECT_EQ(split.master_offset_bytes(1000), 8000U);
    const StateFormat one{&split_codec(), 1};
    EXPECT_EQ(one.states_bytes(4096), 6U * 4096);
    EXPECT_EQ(one.master_offset_bytes(1000), 4000U);
    const StateFormat none{&split_codec(), 0};
    EXPECT_EQ(none.states_bytes(4096), 2U * 4096);
    EXPECT_EQ(none.master_offset_bytes(1000), 0U);
    const StateFormat fp32{&plain_fp32_codec(), 1};
    EXPECT_EQ(fp32.weights_bytes(), 4U);
    EXPECT_EQ(fp32.states_bytes(64), 256U);
    EXPECT_EQ((StateFormat{&plain_fp32_codec(), 0}.states_bytes(4096)), 0U);
    for (const Codec* codec : {&plain_fp16_codec(), &plain_bf16_codec()}) {
        const StateFormat format{codec, 2};
        EXPECT_EQ(format.weights_bytes(), 2U);
        EXPECT_EQ(format.states_bytes(64), 768U);
        EXPECT_EQ(format.moment_offset_bytes(1, 64), 256U);
        EXPECT_EQ(format.master_offset_bytes(64), 512U);
    }
}

TEST(StateFormat, CompactIsCodesThenScales) {
    const Codec& codec = compact_codec();
    const StateFormat format{&codec, 2};
    EXPECT_EQ(format.weights_bytes(), 2U);
    EXPECT_EQ(format.moment_offset_bytes(0, 64), 0U);
    EXPECT_EQ(format.moment_offset_bytes(1, 64), 64U);
    EXPECT_EQ(format.master_offset_bytes(64), 128U);
    EXPECT_EQ(format.offset_bytes(*codec.scales(PlaneOf::moment0), 64), 192U);
    EXPECT_EQ(format.offset_bytes(*codec.scales(PlaneOf::moment1), 64), 196U);
    EXPECT_EQ(format.states_bytes(64), 200U);
    // An odd count, of tests only: scales stay aligned, and the block that is not whole has one.
    EXPECT_EQ(format.offset_bytes(*codec.scales(PlaneOf::moment0), 33), 100U);
    EXPECT_EQ(format.states_bytes(33), 108U);
    const StateFormat one{&codec, 1};
    EXPECT_EQ(one.master_offset_bytes(64), 64U);
    EXPECT_EQ(one.offset_bytes(*codec.scales(PlaneOf::moment0), 64), 128U);
    EXPECT_EQ(one.states_bytes(64), 132U);
}

TEST(StateFormat, BytesPerElementAreExact) {
    const auto bytes = [](const Codec& codec, std::uint32_t moments) {
        const Ratio ratio = StateFormat{&codec, moments}.states_bytes();
        return std::pair(ratio.numerator, ratio.denominator);
    };
    using Pair = std::pair<std::uint64_t, std::uint64_t>;
    EXPECT_EQ(bytes(split_codec(), 2), (Pair{10, 1}));
    EXPECT_EQ(bytes(plain_fp32_codec(), 2), (Pair{8, 1}));
    EXPECT_EQ(bytes(plain_fp32_codec(), 0), (Pair{0, 1}));
    EXPECT_EQ(bytes(plain_bf16_codec(), 2), (Pair{12, 1}));
    EXPECT_EQ(bytes(compact_codec(), 2), (Pair{25, 8}));
    EXPECT_EQ(bytes(compact_codec(), 1), (Pair{33, 16}));
    for (const std::string_view name : codec_names()) {
        const StateFormat format{find_codec(name), 2};
        for (const std::uint64_t numel : {64U, 4096U, 1U << 20})
            EXPECT_EQ(format.states_bytes(numel) * format.states_bytes().denominator,
                      numel * format.states_bytes().numerator);
    }
}

TEST(StateFormat, AsksForNoPlaneThatIsNotThere) {
    EXPECT_DEATH(StateFormat({&plain_fp32_codec(), 2}).master_offset_bytes(64), "keeps no master");
    EXPECT_DEATH(StateFormat({&split_codec(), 2}).moment_offset_bytes(2, 64), "moment 2 of 2");
    const StatePlane& moment1 = *compact_codec().plane(PlaneOf::moment1);
    EXPECT_DEATH(StateFormat({&compact_codec(), 1}).offset_bytes(moment1, 64), "no such plane");
}

TEST(PlaneType, HasANameAndAWidth) {
    EXPECT_STREQ(word_of(PlaneType::bf16), "bf16");
    EXPECT_STREQ(word_of(PlaneType::u8), "u8");
    EXPECT_EQ(bytes_of(PlaneType::u8), 1U);
    EXPECT_EQ(bytes_of(PlaneType::u16), 2U);
    EXPECT_EQ(bytes_of(PlaneType::fp16), 2U);
    EXPECT_EQ(bytes_of(PlaneType::fp32), 4U);
}

}  // namespace
}  // namespace penstock::zero
