// The hash's loop for one set of instructions. All give the same hash.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock::store {

// XXH3's 128 bits. `hash`: low and high. REQUIRES: the processor has AVX2.
void hash_by_avx2(const void* data, std::size_t bytes, std::uint64_t seed, std::uint64_t* hash) noexcept;

}  // namespace penstock::store
