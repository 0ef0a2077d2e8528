#include "swap/format/hash.h"

#include "swap/format/hash_loop.h"
#include "swap/format/little_endian.h"

#include <xxhash.h>

#include <array>
#include <new>

namespace penstock::store {
namespace {

// A hash of the identity's bytes in a fixed order, so that no two identities share a seed by arithmetic.
XXH64_hash_t seed_of(const TileIdentity& identity) noexcept {
    std::array<std::byte, 24> packed;
    store_u64(packed.data(), identity.store);
    store_u32(packed.data() + 8, identity.object);
    store_u32(packed.data() + 12, identity.tile);
    store_u64(packed.data() + 16, identity.generation);
    return XXH3_64bits(packed.data(), packed.size());
}

TileHash tile_hash(const XXH128_hash_t& hash) noexcept {
    return {.low = hash.low64, .high = hash.high64};
}

}  // namespace

TileHash hash_tile(std::span<const std::byte> bytes, const TileIdentity& identity) noexcept {
    if (const HashLoop fast = fast_hash_loop()) {
        std::array<std::uint64_t, 2> hash;
        fast(bytes.data(), bytes.size(), seed_of(identity), hash.data());
        return {.low = hash[0], .high = hash[1]};
    }
    return tile_hash(XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed_of(identity)));
}

struct TileHasher::State {
    struct Free {
        void operator()(XXH3_state_t* state) const noexcept { XXH3_freeState(state); }
    };
    std::unique_ptr<XXH3_state_t, Free> xxh3{XXH3_createState()};
};

TileHasher::TileHasher() : state_(std::make_unique<State>()) {
    if (!state_->xxh3) throw std::bad_alloc();
    begin({});
}

TileHasher::~TileHasher() = default;

void TileHasher::begin(const TileIdentity& identity) noexcept {
    XXH3_128bits_reset_withSeed(state_->xxh3.get(), seed_of(identity));
}

void TileHasher::add(std::span<const std::byte> bytes) noexcept {
    XXH3_128bits_update(state_->xxh3.get(), bytes.data(), bytes.size());
}

TileHash TileHasher::hash() const noexcept {
    return tile_hash(XXH3_128bits_digest(state_->xxh3.get()));
}

}  // namespace penstock::store
