#include "swap/hash.h"

#include "swap/little_endian.h"

#include <xxhash.h>

#include <array>

namespace penstock {

TileHash hash_tile(std::span<const std::byte> bytes, const TileIdentity& identity) noexcept {
    // The seed is a hash of the identity's bytes in a fixed order, so that no two identities share one by arithmetic.
    std::array<std::byte, 24> packed;
    store_u64(packed.data(), identity.store);
    store_u32(packed.data() + 8, identity.object);
    store_u32(packed.data() + 12, identity.tile);
    store_u64(packed.data() + 16, identity.generation);
    const XXH64_hash_t seed = XXH3_64bits(packed.data(), packed.size());
    const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
    return {.low = hash.low64, .high = hash.high64};
}

}  // namespace penstock
