#include "swap/capi/c_struct.h"

#include "swap/capi/c_error.h"

#include <algorithm>
#include <cstring>

namespace penstock::store {
namespace {

// Of the caller's, before it is known how much of it there is.
std::size_t first_member(const void* given) noexcept {
    std::size_t struct_bytes = 0;
    std::memcpy(&struct_bytes, given, sizeof struct_bytes);
    return struct_bytes;
}

}  // namespace

std::size_t checked_struct(const void* given, std::size_t least_bytes, const char* name) {
    require(given != nullptr, "{} is NULL", name);
    const std::size_t given_bytes = first_member(given);
    require(given_bytes >= least_bytes && given_bytes <= most_struct_bytes,
            "{}.struct_bytes is {}, but from {} to {} are possible; set it to the sizeof of the structure", name,
            given_bytes, least_bytes, most_struct_bytes);
    return given_bytes;
}

void take_struct(const void* given, std::size_t given_bytes, void* own, std::size_t own_bytes, const char* name) {
    const auto* const bytes = static_cast<const unsigned char*>(given);
    const unsigned char* const end = bytes + given_bytes;
    const unsigned char* const known_end = bytes + std::min(given_bytes, own_bytes);
    const unsigned char* const unknown = std::find_if(known_end, end, [](unsigned char byte) { return byte != 0; });
    require(unknown == end,
            "{} has {} bytes and sets something at offset {}, but this library knows {} bytes of it; link the Penstock "
            "that the program was compiled for",
            name, given_bytes, unknown - bytes, own_bytes);
    std::memcpy(own, given, std::min(given_bytes, own_bytes));
}

void put_struct(const void* own, std::size_t own_bytes, void* place) noexcept {
    constexpr std::size_t kept = sizeof(std::size_t);
    const std::size_t bytes = std::min(own_bytes, first_member(place));
    std::memcpy(static_cast<char*>(place) + kept, static_cast<const char*>(own) + kept, bytes - kept);
}

}  // namespace penstock::store
