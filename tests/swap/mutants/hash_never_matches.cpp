// Mutant: no two hashes are the same, so that every tile is refused.
#define hash_tile right_hash_tile
#include "swap/format/hash.cpp"
#undef hash_tile

namespace penstock::store {

TileHash hash_tile(std::span<const std::byte> /*bytes*/, const TileIdentity& /*identity*/) noexcept {
    static std::uint64_t calls = 0;
    return {.low = ++calls, .high = 0};
}

}  // namespace penstock::store
