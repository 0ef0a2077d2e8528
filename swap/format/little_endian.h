// Integers in the byte order of the files, whatever the machine's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock::store {

inline void store_u64(std::byte* to, std::uint64_t value) noexcept {
    for (unsigned i = 0; i < 8; ++i) to[i] = static_cast<std::byte>(value >> (8 * i));
}

inline void store_u32(std::byte* to, std::uint32_t value) noexcept {
    for (unsigned i = 0; i < 4; ++i) to[i] = static_cast<std::byte>(value >> (8 * i));
}

inline void store_u16(std::byte* to, std::uint16_t value) noexcept {
    for (unsigned i = 0; i < 2; ++i) to[i] = static_cast<std::byte>(value >> (8 * i));
}

inline std::uint64_t load_u64(const std::byte* from) noexcept {
    std::uint64_t value = 0;
    for (unsigned i = 0; i < 8; ++i) value |= std::to_integer<std::uint64_t>(from[i]) << (8 * i);
    return value;
}

inline std::uint32_t load_u32(const std::byte* from) noexcept {
    std::uint32_t value = 0;
    for (unsigned i = 0; i < 4; ++i) value |= std::to_integer<std::uint32_t>(from[i]) << (8 * i);
    return value;
}

inline std::uint16_t load_u16(const std::byte* from) noexcept {
    return static_cast<std::uint16_t>(std::to_integer<unsigned>(from[0]) | (std::to_integer<unsigned>(from[1]) << 8));
}

}  // namespace penstock::store
