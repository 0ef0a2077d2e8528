// Values that floating point arithmetic trips over, from a printed seed; and what "the same bits" means.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace penstock::test {

inline std::string seed_text(std::uint64_t seed) {
    return "seed " + std::to_string(seed);
}

// Finite values: ordinary ones, and now and then zeros of both signs, subnormals, the extremes, halves of a last place.
inline std::vector<float> finite_values(std::uint64_t seed, std::size_t count, float scale = 1.0F) {
    static constexpr float edges[] = {0.0F,   -0.0F,   0x1p-149F,   -0x1p-149F, 0x1.fffffcp-127F, 0x1p-126F,
                                      1e-30F, -1e-20F, 1.0F,        -1.0F,      0x1.000002p0F,    0x1.fffffep-1F,
                                      1e10F,  -1e15F,  0x1.00ffp3F, 65504.0F,   65520.0F,         0x1.008p0F};
    std::mt19937_64 random(seed);
    std::normal_distribution<float> ordinary(0.0F, scale);
    std::vector<float> values(count);
    for (float& value : values) value = random() % 8 == 0 ? edges[random() % std::size(edges)] : ordinary(random);
    return values;
}

// Equal bits, except that any NaN equals any other: which payload survives depends on the order of an instruction's
// operands, and no result with a NaN is ever used.
inline bool same(float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

// Index of the first difference, or -1.
inline std::ptrdiff_t first_difference(std::span<const float> a, std::span<const float> b) {
    if (a.size() != b.size()) return 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        if (!same(a[i], b[i])) return static_cast<std::ptrdiff_t>(i);
    return -1;
}

}  // namespace penstock::test
