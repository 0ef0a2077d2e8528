// What this machine can still give to compute, outside of the pool and beside what it has.
#pragma once

#include "zero_infinity/engine/session_options.h"

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <utility>

namespace penstock::engine {

// Of host memory: the least of MemAvailable and the room under each cgroup's limit (pool::MachineMemory); where that is
// less than the reserve, free pages of the heap are given back first (malloc_trim); less a margin for how the heap
// grows. Of a GPU: what is free there, and what torch's allocator holds unused. A session has taken what it needs when
// it is open.
Room machine_room(const c10::Device& device);

// One reading of what `look` says counts for as many calls as it has room for, if each took the whole reserve, and for
// fifty times as long as the reading took: it costs a fiftieth of the time at most, but where room is short.
class LastingRoom {
   public:
    explicit LastingRoom(Room look) : look_(std::move(look)) {}
    std::uint64_t operator()(std::uint64_t reserve_bytes);

   private:
    using Clock = std::chrono::steady_clock;

    Room look_;
    std::uint64_t left_ = 0;
    Clock::time_point good_until_;
};

}  // namespace penstock::engine
