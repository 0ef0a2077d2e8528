// What an element of a plane is, and how a master weight is taken apart into two halves: what kernels and codecs share.
#pragma once

#include "aio/words/enum_words.h"

#include <array>
#include <bit>
#include <cstdint>

namespace penstock::zero {

enum class PlaneType : std::uint8_t { u8, u16, bf16, fp16, fp32 };
constexpr std::uint64_t bytes_of(PlaneType type) noexcept {
    return type == PlaneType::u8 ? 1 : type == PlaneType::fp32 ? 4 : 2;
}
constexpr auto words_of(PlaneType) noexcept {
    return std::array{Word{PlaneType::u8, "u8"}, Word{PlaneType::u16, "u16"}, Word{PlaneType::bf16, "bf16"},
                      Word{PlaneType::fp16, "fp16"}, Word{PlaneType::fp32, "fp32"}};
}

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

// The loops that take an element's planes apart without a pass of their own know these forms of the master.
enum class EncodedForm : std::uint8_t { none, split, fp32, compact };

}  // namespace penstock::zero
