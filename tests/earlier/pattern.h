// What c_store.c writes and earlier_library_test.cpp expects: small when packed, and other bytes in each block of 4096,
// so that none can stand for another. For C99 and C++.
#pragma once

#include <stddef.h>

// `bytes` of an object from `offset_bytes` on, as `seed` has them.
static inline void fill_pattern(unsigned char* memory, size_t bytes, size_t offset_bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; ++i) {
        const size_t at = offset_bytes + i;
        memory[i] = (unsigned char)(37 * seed + 5 * at + 11 * (at >> 12));
    }
}
