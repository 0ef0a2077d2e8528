// Structures of penstock.h that may grow: a caller's may end before the library's, or behind it.
#pragma once

#include <cstddef>

namespace penstock::store {

inline constexpr std::size_t most_struct_bytes = 4096;  // far above any: a size that was never set

// What the caller says of it: its first member. Throws Refusal (usage) when it is NULL, shorter than `least_bytes`, or
// longer than any can be, as where struct_bytes was never set.
std::size_t checked_struct(const void* given, std::size_t least_bytes, const char* name);

// Into `own`, which is zero: what the caller's has not, stays so. Throws Refusal (usage) when the caller's goes on with
// something that is not zero: a wish that this library does not know.
void take_struct(const void* given, std::size_t given_bytes, void* own, std::size_t own_bytes, const char* name);

// Of what begins with struct_bytes.
template <typename Struct>
Struct taken(const Struct* given, std::size_t least_bytes, const char* name) {
    Struct own{};
    take_struct(given, checked_struct(given, least_bytes, name), &own, sizeof own, name);
    return own;
}

// As much of `own` as there is room for; struct_bytes, and what the library's has not, stay as the caller set them.
void put_struct(const void* own, std::size_t own_bytes, void* place) noexcept;

template <typename Struct>
void put(const Struct& own, Struct& place) noexcept {
    put_struct(&own, sizeof own, &place);
}

}  // namespace penstock::store
