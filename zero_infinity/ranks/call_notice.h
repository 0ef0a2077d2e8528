// What a rank says of a call before it is made, so that ranks that are about to call different things end with words
// and not with each other's bytes. Internal to the ranks.
#pragma once

#include "zero_infinity/ranks/transport.h"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace penstock::zero {

enum class CallKind : std::uint32_t { gather, reduce, small };

// What of a call must be the same on all ranks. Sent as it lies in memory: ranks have one byte order.
struct CallNotice {
    std::uint64_t number = 0;  // counts from 1
    std::uint64_t bytes = 0;   // of one rank's part
    CallKind kind = CallKind::gather;
    std::uint32_t unit = 0;          // of gather and reduce
    std::uint64_t form = 0;          // of a reduce: types, and where the sum begins
    std::array<char, 32> what = {};  // of a small one, as much as has room
    bool operator==(const CallNotice&) const = default;
};
static_assert(sizeof(CallNotice) == 64);

void set_what(CallNotice& notice, std::string_view what) noexcept;
// The ranks' notices of one call, in their order: empty where all are the same, else who is about to do what. `units`
// are the names of this rank's.
std::string difference(std::span<const CallNotice> of_ranks, std::span<const std::string> units);
// The same of what all ranks say at this call of a transport's, which is of one size whatever they are about to call.
std::string difference_at(Transport& transport, const CallNotice& own, std::span<const std::string> units);

}  // namespace penstock::zero
