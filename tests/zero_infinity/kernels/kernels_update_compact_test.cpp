// The one-pass update of `compact` of every twin against the loops one after the other.
#include "tests/zero_infinity/kernels/kernel_cases.h"
#include "tests/zero_infinity/kernels/values.h"
#include "zero_infinity/kernels/compact.h"
#include "zero_infinity/kernels/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace penstock::zero {
namespace {

using test::finite_values;
using test::first_difference;
using test::kernel_cases;
using test::KernelCase;

struct CompactTile {
    std::vector<std::uint16_t> weights;
    std::vector<std::uint8_t> residuals;
    std::vector<std::uint8_t> codes[2];
    std::vector<std::uint16_t> scales[2];

    std::size_t numel() const { return weights.size(); }
    EncodedSpan span(const std::byte* gradient, PlaneType type, float scale, std::size_t& bad) {
        return {.form = EncodedForm::compact,
                .weights = reinterpret_cast<std::byte*>(weights.data()),
                .master = reinterpret_cast<std::byte*>(residuals.data()),
                .coded = {{codes[0].data(), scales[0].data()}, {codes[1].data(), scales[1].data()}},
                .gradient = gradient,
                .gradient_type = type,
                .gradient_scale = scale,
                .count = numel(),
                .first_bad = &bad};
    }
    friend bool operator==(const CompactTile&, const CompactTile&) = default;
};

// Any codes under scales of every size, and now and then a block of zeros: what an update leaves, and what it never
// does.
CompactTile make_tile(const std::vector<float>& masters, std::uint64_t seed) {
    const std::size_t length = masters.size();
    std::mt19937_64 random(seed);
    CompactTile tile{std::vector<std::uint16_t>(length), std::vector<std::uint8_t>(length), {}, {}};
    kernels().split_compact(masters.data(), tile.weights.data(), tile.residuals.data(), length);
    for (std::size_t moment : {0U, 1U}) {
        for (std::size_t i = 0; i < length; i += compact_block)
            tile.scales[moment].push_back(random() % 4 == 0 ? 0U : static_cast<std::uint16_t>(random() % 0xf000U));
        for (std::size_t i = 0; i < length; ++i)
            tile.codes[moment].push_back(random() % 4 == 0 ? 0U : static_cast<std::uint8_t>(random()));
    }
    return tile;
}

std::size_t first_refused(const Kernels& twin, const UpdateSpan& span, int moments) {
    for (std::size_t i = 0; i < span.count; ++i) {
        const bool within = twin.all_within(span.master + i, std::numeric_limits<float>::max(), 1) &&
                            (moments < 1 || twin.all_within(span.moments[0] + i, 65504.0F, 1)) &&
                            (moments < 2 || twin.all_within(span.moments[1] + i, 65504.0F * 65504.0F, 1));
        if (!within) return i;
    }
    return span.count;
}

// Returns the first element that is refused, or the count.
std::size_t update_by_loops(const Kernels& twin, const KernelCase& each, CompactTile& tile, std::vector<float> g) {
    const std::size_t length = tile.numel();
    std::vector<float> p(length), m(length), v(length);
    twin.join_compact(tile.weights.data(), tile.residuals.data(), p.data(), length);
    twin.decode_signed(tile.codes[0].data(), tile.scales[0].data(), m.data(), length);
    twin.decode_squares(tile.codes[1].data(), tile.scales[1].data(), v.data(), length);
    const UpdateSpan span{p.data(), {m.data(), v.data()}, g.data(), length};
    each.decoded(twin, span);
    const std::size_t refused = first_refused(twin, span, each.moments);
    twin.split_compact(p.data(), tile.weights.data(), tile.residuals.data(), length);
    if (each.moments > 0) twin.encode_signed(m.data(), tile.codes[0].data(), tile.scales[0].data(), length);
    if (each.moments > 1) twin.encode_squares(v.data(), tile.codes[1].data(), tile.scales[1].data(), length);
    return refused;
}

// Updates a copy in both ways. Returns the first element that is refused, or the count.
std::size_t check_update(const Kernels& twin, const KernelCase& each, CompactTile tile, PlaneType type,
                         std::vector<float> g) {
    constexpr float scale = 0.3F;
    const std::size_t length = tile.numel();
    std::vector<std::uint16_t> narrow(length);
    if (type == PlaneType::bf16) {
        twin.narrow_bf16(g.data(), narrow.data(), length);
        twin.widen_bf16(narrow.data(), g.data(), length);
    }
    const auto* gradient = type == PlaneType::fp32 ? reinterpret_cast<const std::byte*>(g.data())
                                                   : reinterpret_cast<const std::byte*>(narrow.data());
    CompactTile expected = tile;
    std::size_t refused = length;
    const EncodedUpdate result = each.encoded(twin, tile.span(gradient, type, scale, refused));
    twin.scale(g.data(), scale, length);
    const std::size_t expected_refused = update_by_loops(twin, each, expected, g);
    EXPECT_EQ(tile, expected);
    EXPECT_EQ(result, expected_refused == length ? EncodedUpdate::finite : EncodedUpdate::non_finite);
    EXPECT_EQ(refused, expected_refused);
    return expected_refused;
}

std::vector<KernelCase> coded_cases() {
    std::vector<KernelCase> all = kernel_cases();
    std::erase_if(all, [](const KernelCase& each) { return each.name == "adagrad"; });
    return all;
}

template <typename Check>
void for_each_update(const Check& check) {
    for (const Kernels* const* twin = runnable_kernels(); *twin != nullptr; ++twin)
        for (const KernelCase& each : coded_cases())
            for (const PlaneType type : {PlaneType::bf16, PlaneType::fp32}) {
                SCOPED_TRACE(std::string((*twin)->name) + ", " + each.name + ", gradients of " + word_of(type));
                check(**twin, each, type);
                if (testing::Test::HasFailure()) return;
            }
}

std::vector<float> ordinary(std::uint64_t seed, std::size_t length, float scale) {
    std::vector<float> values = finite_values(seed, length, scale);
    for (float& value : values) value = std::clamp(value, -100.0F, 100.0F);
    return values;
}

TEST(KernelsUpdateCompact, AnUpdateInOnePassIsTheLoopsOneAfterTheOther) {
    std::vector<std::size_t> lengths{511, 512, 513, 543, 544, 1023, 1024, 1025, 1600, 4099};
    for (std::size_t length = 0; length <= 200; ++length) lengths.push_back(length);
    for_each_update([&lengths](const Kernels& twin, const KernelCase& each, PlaneType type) {
        for (const std::size_t length : lengths) {
            SCOPED_TRACE(length);
            const auto tile = make_tile(ordinary(length, length, 1.0F), length);
            ASSERT_EQ(check_update(twin, each, tile, type, ordinary(length + 1, length, 1e-2F)), length);
            if (testing::Test::HasFailure()) return;
        }
    });
}

TEST(KernelsUpdateCompact, BlocksOfZerosStayZeros) {
    for_each_update([](const Kernels& twin, const KernelCase& each, PlaneType type) {
        CompactTile tile = make_tile(std::vector<float>(640, 0.0F), 1);
        for (auto* codes : {&tile.codes[0], &tile.codes[1]}) std::fill(codes->begin(), codes->end(), 0);
        std::vector<float> g(640, 0.0F);
        check_update(twin, each, tile, type, g);
        g[100] = 1e-3F;  // its block alone gets scales
        check_update(twin, each, tile, type, g);
    });
}

// The codec's limits and what lies on both sides of them, in whole strips, in shorter ones and in what is left.
TEST(KernelsUpdateCompact, RefusesWhatTheLoopsRefuse) {
    constexpr std::size_t length = 512 + 96 + 5;
    constexpr float infinity = std::numeric_limits<float>::infinity();
    std::size_t refusals = 0;
    for_each_update([&refusals](const Kernels& twin, const KernelCase& each, PlaneType type) {
        for (const std::size_t at : {0U, 77U, 511U, 512U, 600U, 612U}) {
            for (const float value : {infinity, -infinity, 0x1.fffep127F, 0x1.fffcp127F, 0x1.fep127F}) {
                SCOPED_TRACE(std::to_string(at) + ", master " + std::to_string(value));
                std::vector<float> masters = ordinary(2, length, 1.0F);
                masters[at] = masters[length - 1] = value;
                const auto tile = make_tile(masters, at);
                refusals += check_update(twin, each, tile, type, std::vector<float>(length, 1e-3F)) != length;
            }
            for (const float value : {infinity, -1e30F, 1e12F, 2.2e6F, 2.1e6F, -2.2e5F, 2.1e5F, -65500.0F}) {
                SCOPED_TRACE(std::to_string(at) + ", gradient " + std::to_string(value));
                std::vector<float> g = ordinary(3, length, 1e-2F);
                g[at] = g[length - 1] = value;
                const auto tile = make_tile(ordinary(4, length, 1.0F), at);
                refusals += check_update(twin, each, tile, type, g) != length;
            }
        }
    });
    EXPECT_GT(refusals, 0U);
}

// With a decay of zero the new square is the gradient's, and with a whole weight the new mean is the gradient.
TEST(KernelsUpdateCompact, MomentsMayReachTheLimitAndNoMore) {
    constexpr float largest = compact_largest_scale;
    const float above = std::nextafter(largest, 1e6F);
    const AdamFactors squares{1.0F, 0.1F, 0.0F, 1.0F, 1.0F, 1e-8F, -1e-3F};
    const LionFactors means{1.0F, 0.9F, 0.1F, 0.0F, 1.0F, -1e-3F};
    for (const Kernels* const* twin = runnable_kernels(); *twin != nullptr; ++twin)
        for (const float gradient : {largest, -largest, above, -above}) {
            SCOPED_TRACE(std::string((*twin)->name) + ", gradient " + std::to_string(gradient));
            std::vector<float> g(512, 1.0F);
            g[40] = gradient;
            const auto expected = std::abs(gradient) > largest ? EncodedUpdate::non_finite : EncodedUpdate::finite;
            CompactTile tile = make_tile(ordinary(5, 512, 1.0F), 5);
            std::size_t bad = 0;
            const EncodedSpan span =
                tile.span(reinterpret_cast<const std::byte*>(g.data()), PlaneType::fp32, 1.0F, bad);
            EXPECT_EQ((*twin)->adamw.encoded(squares, span), expected);
            EXPECT_EQ((*twin)->lion.encoded(means, span), expected);
            EXPECT_EQ(bad, expected == EncodedUpdate::finite ? 0U : 40U);
        }
}

TEST(KernelsUpdateCompact, IsNotForSumsThatGrow) {
    for (const KernelCase& each : kernel_cases()) {
        const EncodedUpdate fp16 =
            each.encoded(kernels(), {.form = EncodedForm::compact, .gradient_type = PlaneType::fp16});
        EXPECT_EQ(fp16, EncodedUpdate::unsupported);
        if (each.name != "adagrad") continue;
        EXPECT_EQ(each.encoded(kernels(), {.form = EncodedForm::compact}), EncodedUpdate::unsupported);
    }
}

}  // namespace
}  // namespace penstock::zero
