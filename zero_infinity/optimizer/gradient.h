// Arithmetic on flat gradients in host memory, with a defined order of sums.
#pragma once

#include "zero_infinity/codec/codec.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock::zero {

// A rank's flat gradient of one unit, or a tile of it: trainable shard, in the unit's element order. `type` is bf16,
// fp16 or fp32; `data` is aligned for it.
struct GradientView {
    const std::byte* data = nullptr;
    PlaneType type = PlaneType::fp32;
    std::uint64_t numel = 0;
};

// Sum of squares in double of one tile, no multiply-add fused: lane[i % 16] += double(x[i]) * double(x[i]) in the
// order of i; then for half = 8, 4, 2, 1: lane[j] += lane[j + half] for j < half; the sum is lane[0]. Tiles are added
// in tile order by the caller: so the norm is the same for any thread count, stage, tier and schedule. NaN or
// infinity in gives NaN or infinity out.
double sum_of_squares(const GradientView& tile) noexcept;

// out[i] = float(tile[i]) * scale, rounded once.
void scaled_to_fp32(const GradientView& tile, float scale, float* out) noexcept;

// to[i] = type(from[i]), and to[i] = type(float(to[i]) + float(from[i])): each rounded once, to nearest even. `to` has
// from.numel elements of `type` and does not overlap `from`.
void convert(const GradientView& from, PlaneType type, std::byte* to) noexcept;
void add_converted(const GradientView& from, PlaneType type, std::byte* to) noexcept;
inline void add(const GradientView& from, std::byte* to) noexcept {
    add_converted(from, from.type, to);
}

enum class SumStart : std::uint8_t {
    fresh,    // with nothing
    carried,  // with what the sum is already
};
enum class SumOf : std::uint8_t { total, mean };

// The sum over ranks, addends[r] being rank r's: element by element, in fp32, each operation rounded by itself,
//   acc = addends[0]          taken as it is, so that the sign of a zero stays
//   acc = acc + addends[r]    r = 1, 2, ...
//   acc = acc / ranks         mean
//   acc = sum + acc           carried
//   sum = acc                 rounded once to `type`
// So its bits depend on no library, no topology, and on no cut into pieces. A NaN stays one; which of several is not
// defined. Any thread in the default floating-point mode; allocates nothing. REQUIRES: one addend at least, each of
// `numel` elements of `wire`; all aligned for their type; none overlaps `sum`, but one may be `sum` where wire == type.
void sum_in_order(std::span<const std::byte* const> addends, PlaneType wire, SumOf of, SumStart start, PlaneType type,
                  std::byte* sum, std::uint64_t numel) noexcept;

// The factor that clips a gradient of this norm to `limit` (0: no clipping), as torch.nn.utils.clip_grad_norm_
// computes it: min(1, limit / (norm + 1e-6)), in double. An infinite norm gives 0 and NaN gives NaN: look at the norm
// before using it.
// REQUIRES: limit >= 0.
double clip_factor(double norm, double limit) noexcept;

}  // namespace penstock::zero
