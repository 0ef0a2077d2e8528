// The hash that every tile is checked against on read: xxh3-128 over its bytes, seeded by its identity, so that a right
// tile in a wrong place or of an older generation is as wrong as a damaged one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock {

struct TileHash {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    bool operator==(const TileHash&) const = default;
};

struct TileIdentity {
    std::uint64_t store = 0;  // first 8 bytes of the store's uuid
    std::uint32_t object = 0;
    std::uint32_t tile = 0;
    std::uint64_t generation = 0;
};

TileHash hash_tile(std::span<const std::byte> bytes, const TileIdentity& identity) noexcept;

}  // namespace penstock
