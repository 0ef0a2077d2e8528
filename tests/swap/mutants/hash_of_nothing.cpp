// Mutant: every tile has the same hash, so that no read is ever checked.
#define hash_tile right_hash_tile
#include "swap/format/hash.cpp"
#undef hash_tile

namespace penstock::store {

TileHash hash_tile(std::span<const std::byte> bytes, const TileIdentity& /*identity*/) noexcept {
    return right_hash_tile(bytes.first(0), {});
}

}  // namespace penstock::store
