// The hash that every tile is checked against on read: xxh3-128 over its bytes, seeded by its identity, so that a right
// tile in a wrong place or of an older generation is as wrong as a damaged one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace penstock::store {

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

// From here on (some 15 us) a hash takes longer than handing over to the devices what they can do meanwhile.
inline constexpr std::size_t long_hash_bytes = 256 << 10;

TileHash hash_tile(std::span<const std::byte> bytes, const TileIdentity& identity) noexcept;

// The same of bytes that come one part after the other. Allocates in the constructor only.
class TileHasher {
   public:
    TileHasher();
    ~TileHasher();
    void begin(const TileIdentity& identity) noexcept;
    void add(std::span<const std::byte> bytes) noexcept;
    TileHash hash() const noexcept;  // of what was added since begin()

   private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace penstock::store
