// The one-pass loops of every twin against the loops one after the other.
#include "tests/zero_infinity/kernels/kernel_cases.h"
#include "tests/zero_infinity/kernels/values.h"
#include "zero_infinity/kernels/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace penstock::zero {
namespace {

using test::finite_values;
using test::first_difference;
using test::kernel_cases;
using test::KernelCase;

// The planes of one tile in a form of the master, and the loops one after the other on them.
struct EncodedTile {
    EncodedForm form;
    std::vector<std::uint16_t> halves;  // weights of 16 bits
    std::vector<std::uint16_t> lower;   // split's own plane
    std::vector<float> master;          // the weights of fp32
    std::vector<float> m, v;

    EncodedSpan span(const std::byte* gradient, PlaneType type, float scale) {
        const auto bytes = [](auto& plane) { return reinterpret_cast<std::byte*>(plane.data()); };
        return {.form = form,
                .weights = form == EncodedForm::fp32 ? bytes(master) : bytes(halves),
                .master = form == EncodedForm::split ? bytes(lower) : nullptr,
                .moments = {m.data(), v.data()},
                .gradient = gradient,
                .gradient_type = type,
                .gradient_scale = scale,
                .count = m.size()};
    }
    void encode(const Kernels& twin, const std::vector<float>& p) {
        halves.assign(p.size(), 0);
        lower.assign(p.size(), 0);
        master = p;
        if (form == EncodedForm::split) {
            twin.split(p.data(), halves.data(), lower.data(), p.size());
            master.assign(p.size(), 0);
        }
    }
};

void check_encoded(const Kernels& twin, const KernelCase& each, EncodedForm form, PlaneType type, std::vector<float> p,
                   std::uint64_t seed, bool spoil) {
    const std::size_t length = p.size();
    EncodedTile tile{.form = form, .m = finite_values(seed + 1, length, 1e-3F), .v = finite_values(seed + 2, length)};
    for (float& value : tile.v) value = std::min(std::abs(value), 1e15F);
    if (each.name == "adagrad")  // its one moment is a sum of squares
        for (float& value : tile.m) value = std::min(std::abs(value), 1e15F);
    auto g = finite_values(seed + 3, length, 1e-2F);
    for (float& value : g) value = std::clamp(value, -6e4F, 6e4F);
    if (spoil && length > 0) {
        const std::size_t at = seed % length;
        if (seed % 3 == 0) g[at] = NAN;
        if (seed % 3 == 1) (each.moments == 2 ? tile.v : p)[at] = std::numeric_limits<float>::infinity();
        if (seed % 3 == 2) p[at] = -std::numeric_limits<float>::infinity();
    }
    tile.encode(twin, p);
    std::vector<std::uint16_t> narrow(length);
    if (type == PlaneType::bf16) twin.narrow_bf16(g.data(), narrow.data(), length);
    const auto* gradient = type == PlaneType::fp32 ? reinterpret_cast<const std::byte*>(g.data())
                                                   : reinterpret_cast<const std::byte*>(narrow.data());
    EncodedTile expected = tile;
    const auto result = each.encoded(twin, tile.span(gradient, type, 0.3F));
    if (type == PlaneType::bf16) twin.widen_bf16(narrow.data(), g.data(), length);
    twin.scale(g.data(), 0.3F, length);
    each.decoded(twin, {p.data(), {expected.m.data(), expected.v.data()}, g.data(), length});
    expected.encode(twin, p);
    ASSERT_EQ(first_difference(tile.m, expected.m), -1);
    ASSERT_EQ(first_difference(tile.v, expected.v), -1);
    ASSERT_EQ(first_difference(tile.master, expected.master), -1);
    if (!spoil) {
        ASSERT_EQ(tile.halves, expected.halves);
        ASSERT_EQ(tile.lower, expected.lower);
    }
    ASSERT_EQ(result, spoil && length > 0 ? EncodedUpdate::non_finite : EncodedUpdate::finite);
}

TEST(Kernels, AnUpdateOfEncodedElementsIsTheLoopsOneAfterTheOther) {
    using Pair = std::pair<EncodedForm, PlaneType>;
    const std::vector<Pair> compiled = {{EncodedForm::split, PlaneType::fp32},
                                        {EncodedForm::split, PlaneType::bf16},
                                        {EncodedForm::fp32, PlaneType::fp32}};
    const std::vector<KernelCase> cases = kernel_cases();
    const auto check = [&compiled](const Kernels& twin, const KernelCase& each, std::size_t length) {
        for (const auto& [form, type] : compiled) {
            SCOPED_TRACE("form " + std::to_string(int(form)) + ", gradients of " + word_of(type));
            const std::uint64_t seed = length;
            auto p = finite_values(seed, length);
            for (float& value : p) value = std::clamp(value, -1e10F, 1e10F);
            check_encoded(twin, each, form, type, p, seed, false);
            check_encoded(twin, each, form, type, p, seed, true);
            if (testing::Test::HasFatalFailure()) return;
        }
    };
    // Around the vectors, and around the strips of kernels_update.h.
    for (const Kernels* const* twin = runnable_kernels(); *twin != nullptr; ++twin)
        for (const std::size_t length :
             {0U, 1U, 2U, 7U, 15U, 16U, 17U, 31U, 33U, 63U, 64U, 65U, 127U, 128U, 129U, 255U, 640U, 769U, 4099U}) {
            SCOPED_TRACE(std::string((*twin)->name) + ", length " + std::to_string(length));
            for (const KernelCase& each : cases) {
                SCOPED_TRACE(each.name);
                check(**twin, each, length);
                if (HasFatalFailure()) return;
            }
        }
    const std::vector<Pair> others = {{EncodedForm::none, PlaneType::fp32},
                                      {EncodedForm::split, PlaneType::fp16},
                                      {EncodedForm::fp32, PlaneType::bf16},
                                      {EncodedForm::fp32, PlaneType::fp16}};
    for (const KernelCase& each : cases)
        for (const auto& [form, type] : others)
            EXPECT_EQ(each.encoded(kernels(), {.form = form, .gradient_type = type}), EncodedUpdate::unsupported);
}

}  // namespace
}  // namespace penstock::zero
