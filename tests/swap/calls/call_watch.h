// Functions of the names in call_table.h, which come before the system's: they count, and one of them fails.
#pragma once

#include "tests/swap/calls/call_table.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock::testing {

enum class Recurs : std::uint8_t {
    once,
    from_then_on,  // this call and every later one of the name; an interruption (EINTR) eight times
    everywhere,    // this call, and from then on every one that may fail so: the device is gone, the table full
};

struct CallFault {
    std::size_t call = 0;       // in watched_calls
    std::uint64_t ordinal = 0;  // among the calls of that name since watch_calls()
    int error = 0;
    Recurs recurs = Recurs::once;
    bool operator==(const CallFault&) const = default;
};
std::string to_string(const CallFault& fault);  // "openat #3: EMFILE once"

struct WatchedCalls {
    std::array<std::uint64_t, call_count> counts{};
    std::uint64_t places = 0;                         // in the code that made them: different return addresses
    std::uint64_t struck = 0;                         // that failed
    std::map<std::string, std::uint64_t> bytes_read;  // by pread() and by the file's path
};

// Calls of all threads. watch_calls() begins anew; end_watch() lets all through again, and may be called twice.
void watch_calls(std::optional<CallFault> fault = std::nullopt);
void end_watch();
WatchedCalls watched();  // what came between the two

}  // namespace penstock::testing
