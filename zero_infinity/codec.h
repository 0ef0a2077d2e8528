// State codecs: which planes of bytes hold a master weight and the optimizer's moments. The store sees only bytes.
//
//   split       weights bf16 = upper half of the fp32 master; states m f32, v f32, lower half u16.   exact
//   plain_fp32  weights fp32 = the master;                     states m f32, v f32.                  exact
//   plain_fp16, plain_bf16  weights rounded from the master;   states m f32, v f32, master f32.      exact
//
// split: with b the bits of the fp32 master, hi = (b + 0x8000) >> 16 and lo = b & 0xffff; back:
// b = ((hi << 16) - (lo & 0x8000 ? 0x10000 : 0)) | lo. hi is the master rounded to bf16 with ties away from zero (torch
// rounds ties to even: 32,640 of 2^32 patterns differ, and ties-to-even has no 16-bit inverse). Example: b =
// 0x3f808000 → hi = 0x3f81, lo = 0x8000 → (0x3f810000 - 0x10000) | 0x8000 = 0x3f808000.
// NaNs with a small payload become infinity or zero in hi: finiteness is checked on the fp32 value before encoding.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace penstock {

enum class PlaneType : std::uint8_t { u8, u16, bf16, fp16, fp32 };
constexpr std::uint64_t bytes_of(PlaneType type) noexcept {
    return type == PlaneType::u8 ? 1 : type == PlaneType::fp32 ? 4 : 2;
}
const char* to_string(PlaneType type) noexcept;

struct SplitMaster {
    std::uint16_t hi;
    std::uint16_t lo;
};
constexpr SplitMaster split_master(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return {static_cast<std::uint16_t>((bits + 0x8000U) >> 16), static_cast<std::uint16_t>(bits & 0xffffU)};
}
constexpr float join_master(SplitMaster halves) noexcept {
    const std::uint32_t borrow = (halves.lo & 0x8000U) != 0 ? 0x10000U : 0U;
    return std::bit_cast<float>(((static_cast<std::uint32_t>(halves.hi) << 16) - borrow) | halves.lo);
}

// One codec, as data. A new one is one file that defines such a table.
// decode and encode work on `count` elements; `weights` and `master` point at the first of them in their planes.
// `master` is the codec's own plane in the states (lo, or the fp32 master), null when `has_master_plane` is false.
struct Codec {
    std::string_view name;
    PlaneType weights;           // what compute reads
    bool has_master_plane;
    PlaneType master_plane;
    PlaneType moments;
    bool exact;                  // decode(encode(x)) == x for every finite x
    bool master_needs_weights;   // the update must read the weights to rebuild the master
    void (*decode)(const std::byte* weights, const std::byte* master, float* value, std::size_t count) noexcept;
    void (*encode)(const float* value, std::byte* weights, std::byte* master, std::size_t count) noexcept;
};

const Codec& split_codec() noexcept;
const Codec& plain_fp32_codec() noexcept;
const Codec& plain_bf16_codec() noexcept;  // ties to even, as torch
const Codec& plain_fp16_codec() noexcept;
const Codec* find_codec(std::string_view name) noexcept;  // null when unknown
std::vector<std::string_view> codec_names();

// A codec together with how many moments the optimizer keeps: the layout of a states tile. Planes of one tile lie one
// after the other, widest first: moment 0, moment 1, …, master plane.
struct StateFormat {
    const Codec* codec = nullptr;
    std::uint32_t moments = 2;

    std::uint64_t weights_bytes() const noexcept;  // per element
    std::uint64_t states_bytes() const noexcept;   // per element
    std::uint64_t moment_offset_bytes(std::uint32_t moment, std::uint64_t tile_numel) const noexcept;
    std::uint64_t master_offset_bytes(std::uint64_t tile_numel) const noexcept;
};

}  // namespace penstock
