#include "zero_infinity/optimizer/gradient.h"

#include "aio/words/check.h"
#include "zero_infinity/kernels/kernels.h"

#include <algorithm>

namespace penstock::zero {
namespace {

constexpr std::uint64_t block_numel = 2048;  // of fp32 scratch on the stack; a multiple of square_lanes
static_assert(block_numel % square_lanes == 0, "so that every block begins at lane 0");

void widen(PlaneType type, const std::byte* from, float* to, std::size_t count) noexcept {
    switch (type) {
        case PlaneType::fp32:
            std::copy_n(reinterpret_cast<const float*>(from), count, to);
            return;
        case PlaneType::bf16:
            kernels().widen_bf16(reinterpret_cast<const std::uint16_t*>(from), to, count);
            return;
        case PlaneType::fp16:
            kernels().widen_fp16(reinterpret_cast<const std::uint16_t*>(from), to, count);
            return;
        case PlaneType::u8:
        case PlaneType::u16:
            break;
    }
    PENSTOCK_CHECK(false, "gradients of type {}", word_of(type));
}

void narrow(PlaneType type, const float* from, std::byte* to, std::size_t count) noexcept {
    switch (type) {
        case PlaneType::fp32:
            std::copy_n(from, count, reinterpret_cast<float*>(to));
            return;
        case PlaneType::bf16:
            kernels().narrow_bf16(from, reinterpret_cast<std::uint16_t*>(to), count);
            return;
        case PlaneType::fp16:
            kernels().narrow_fp16(from, reinterpret_cast<std::uint16_t*>(to), count);
            return;
        case PlaneType::u8:
        case PlaneType::u16:
            break;
    }
    PENSTOCK_CHECK(false, "gradients of type {}", word_of(type));
}

}  // namespace

double sum_of_squares(const GradientView& tile) noexcept {
    double lanes[square_lanes] = {};
    float block[block_numel];
    for (std::uint64_t first = 0; first < tile.numel; first += block_numel) {
        const std::uint64_t count = std::min(block_numel, tile.numel - first);
        widen(tile.type, tile.data + first * bytes_of(tile.type), block, count);
        kernels().add_squares(block, lanes, count);
    }
    for (std::size_t half = square_lanes / 2; half > 0; half /= 2)
        for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    return lanes[0];
}

void scaled_to_fp32(const GradientView& tile, float scale, float* out) noexcept {
    widen(tile.type, tile.data, out, tile.numel);
    kernels().scale(out, scale, tile.numel);
}

void convert(const GradientView& from, PlaneType type, std::byte* to) noexcept {
    float block[block_numel];
    for (std::uint64_t first = 0; first < from.numel; first += block_numel) {
        const std::uint64_t count = std::min(block_numel, from.numel - first);
        widen(from.type, from.data + first * bytes_of(from.type), block, count);
        narrow(type, block, to + first * bytes_of(type), count);
    }
}

void add_converted(const GradientView& from, PlaneType type, std::byte* to) noexcept {
    float addend[block_numel];
    float sum[block_numel];
    for (std::uint64_t first = 0; first < from.numel; first += block_numel) {
        const std::uint64_t count = std::min(block_numel, from.numel - first);
        std::byte* place = to + first * bytes_of(type);
        widen(from.type, from.data + first * bytes_of(from.type), addend, count);
        widen(type, place, sum, count);
        kernels().add(addend, sum, count);
        narrow(type, sum, place, count);
    }
}

void sum_in_order(std::span<const std::byte* const> addends, PlaneType wire, SumOf of, SumStart start, PlaneType type,
                  std::byte* sum, std::uint64_t numel) noexcept {
    PENSTOCK_CHECK(!addends.empty(), "a sum over no ranks");
    float acc[block_numel];
    float addend[block_numel];
    const auto ranks = static_cast<float>(addends.size());
    for (std::uint64_t first = 0; first < numel; first += block_numel) {
        const std::uint64_t count = std::min(block_numel, numel - first);
        std::byte* place = sum + first * bytes_of(type);
        widen(wire, addends[0] + first * bytes_of(wire), acc, count);
        for (const std::byte* each : addends.subspan(1)) {
            widen(wire, each + first * bytes_of(wire), addend, count);
            kernels().add(addend, acc, count);
        }
        if (of == SumOf::mean)
            for (std::uint64_t i = 0; i < count; ++i) acc[i] /= ranks;
        if (start == SumStart::carried) {
            widen(type, place, addend, count);
            kernels().add(addend, acc, count);
        }
        narrow(type, acc, place, count);
    }
}

double clip_factor(double norm, double limit) noexcept {
    PENSTOCK_CHECK(limit >= 0, "gradient clip limit {}", limit);
    if (limit == 0) return 1;
    const double factor = limit / (norm + 1e-6);
    return factor > 1 ? 1 : factor;  // a NaN norm gives NaN
}

}  // namespace penstock::zero
