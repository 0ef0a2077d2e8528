// State codecs: which planes of bytes hold a master weight and the optimizer's moments. The store sees only bytes.
//
//   split       weights bf16 = upper half of the fp32 master; states m f32, v f32, lower half u16.   exact, 12 bytes
//   plain_fp32  weights fp32 = the master;                     states m f32, v f32.                  exact, 12
//   plain_fp16, plain_bf16  weights rounded from the master;   states m f32, v f32, master f32.      exact, 14
//   compact     weights bf16; states m u8, v u8, residual u8, and u16 scales per 32 m and per 32 v.  lossy, 5.125
//               see compact.h for its definition, its papers and its error
//
// split: with b the bits of the fp32 master, hi = (b + 0x8000) >> 16 and lo = b & 0xffff; back:
// b = ((hi << 16) - (lo & 0x8000 ? 0x10000 : 0)) | lo. hi is the master rounded to bf16 with ties away from zero (torch
// rounds ties to even: 32,640 of 2^32 patterns differ, and ties-to-even has no 16-bit inverse). Example: b =
// 0x3f808000 → hi = 0x3f81, lo = 0x8000 → (0x3f810000 - 0x10000) | 0x8000 = 0x3f808000.
// In hi, NaNs of a small payload become infinity, those of the largest a zero: finiteness is checked on the fp32 value
// before encoding. A finite master may still round to an infinite weight, in a weight of bf16 from 0x7f7f8000
// (3.396e38) on, of fp16 from 65520 on; the forward pass then says so.
#pragma once

#include "zero_infinity/kernels/plane.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace penstock::zero {

// What a plane of the states belongs to. Each of them has one plane of values at most and one of scales at most.
enum class PlaneOf : std::uint8_t { master, moment0, moment1 };
constexpr PlaneOf plane_of_moment(std::uint32_t moment) noexcept {
    return moment == 0 ? PlaneOf::moment0 : PlaneOf::moment1;
}

// One plane of a states tile: an array with one value of `type` for every `elements` elements of the tile.
struct StatePlane {
    PlaneOf of;
    PlaneType type;
    std::uint32_t elements = 1;  // 1: values; more: scales that so many neighbours share
};

// What the optimizer promises about a moment, so that a lossy codec can spend its bits well.
enum class MomentKind : std::uint8_t {
    any_sign,     // compared with others by its value (a mean of gradients)
    square,       // never negative, used by its square root (a mean of squares)
    growing_sum,  // never forgets (Adagrad's): under a lossy codec small additions are lost and it stops growing
};

// How far decode(encode(x)) is from x; zeros and no limit for an exact codec. `block` is the elements of one scale.
struct ErrorBound {
    double master = 0;         // × |x|, for normal x
    double master_tiny = 0;    // absolute, for the others
    double moment = 0;         // any_sign: × the largest |m| of the block
    double root = 0;           // square: of sqrt(v), × the largest sqrt(v) of the block
    double least_largest = 0;  // a block's largest is counted as this when it is smaller but not zero
    float moment_limit = std::numeric_limits<float>::max();  // of |m| and of sqrt(v): the update refuses larger ones
};

// One codec, as data. A new one is one file that defines such a table, its declaration below, and its name in the lists
// of codec.cpp and CMakeLists.txt; loops of its own for each instruction set go to kernels.h.
// The functions work on `count` elements and are called from several threads at once on different elements; pointers
// are to the first element in its plane, and where the codec has no such plane they are null.
struct Codec {
    std::string_view name;
    PlaneType weights;                   // what compute reads
    std::span<const StatePlane> states;  // in the order of a tile: widest first, so that every plane is aligned
    bool exact;                          // decode(encode(x)) == x for every finite x
    bool master_needs_weights;           // the update must read the weights to rebuild the master
    EncodedForm form = EncodedForm::none;
    ErrorBound error = {};

    void (*decode_master)(const std::byte* weights, const std::byte* own, float* value, std::size_t count) noexcept;
    void (*encode_master)(const float* value, std::byte* weights, std::byte* own, std::size_t count) noexcept;
    // Null: moments are planes of fp32 and are updated in place. Otherwise the first element is where a scale begins,
    // and zero bytes are moments of zero.
    void (*decode_moment)(MomentKind kind, const std::byte* values, const std::byte* scales, float* moment,
                          std::size_t count) noexcept = nullptr;
    void (*encode_moment)(MomentKind kind, const float* moment, std::byte* values, std::byte* scales,
                          std::size_t count) noexcept = nullptr;

    const StatePlane* plane(PlaneOf of) const noexcept;   // of values; null when there is none
    const StatePlane* scales(PlaneOf of) const noexcept;  // null when there are none
};

const Codec& split_codec() noexcept;
const Codec& plain_fp32_codec() noexcept;
const Codec& plain_bf16_codec() noexcept;  // ties to even, as torch
const Codec& plain_fp16_codec() noexcept;
const Codec& compact_codec() noexcept;
const Codec* find_codec(std::string_view name) noexcept;  // null when unknown
std::vector<std::string_view> codec_names();

struct Ratio {
    std::uint64_t numerator = 0;
    std::uint64_t denominator = 1;
    constexpr double value() const noexcept {
        return static_cast<double>(numerator) / static_cast<double>(denominator);
    }
};

// A codec together with the moments that the optimizer keeps: the layout of a states tile. The codec's planes lie one
// after the other without gaps (but for the alignment of their type, which tiles of a multiple of 64 elements never
// need); those of moments that are not kept are left out.
struct StateFormat {
    const Codec* codec = nullptr;
    std::uint32_t moments = 2;
    std::array<MomentKind, 2> kinds = {MomentKind::any_sign, MomentKind::square};  // Adam's

    std::uint64_t weights_bytes() const noexcept;                         // per element
    Ratio states_bytes() const noexcept;                                  // per element, exact
    std::uint64_t states_bytes(std::uint64_t tile_numel) const noexcept;  // of a tile
    bool keeps(const StatePlane& plane) const noexcept;
    // Where a plane begins in a tile. REQUIRES: the plane is one of the codec's and kept.
    std::uint64_t offset_bytes(const StatePlane& plane, std::uint64_t tile_numel) const noexcept;
    std::uint64_t moment_offset_bytes(std::uint32_t moment, std::uint64_t tile_numel) const noexcept;
    std::uint64_t master_offset_bytes(std::uint64_t tile_numel) const noexcept;
};

}  // namespace penstock::zero
