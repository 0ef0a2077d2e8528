// The hash's loop for one set of instructions. All give the same hash.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock::store {

// XXH3's 128 bits. `hash`: low and high.
using HashLoop = void (*)(const void* data, std::size_t bytes, std::uint64_t seed, std::uint64_t* hash) noexcept;

// What this processor has that is faster than the library's, or null. Chosen at link time, by the processor that is
// built for: hash_loop_x86.cpp or hash_loop_other.cpp.
HashLoop fast_hash_loop() noexcept;

// A HashLoop. REQUIRES: the processor has AVX2.
void hash_by_avx2(const void* data, std::size_t bytes, std::uint64_t seed, std::uint64_t* hash) noexcept;

}  // namespace penstock::store
