// What this machine can still give to compute, outside of the pool and beside what it has.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

namespace penstock::engine {

using LookForRoom = std::function<std::uint64_t(std::uint64_t reserve_bytes)>;  // EngineOptions::room

// Of host memory: the least of MemAvailable and the room under each cgroup's limit (pool::MachineMemory); where that is
// less than the reserve, free pages of the heap are given back first (malloc_trim); less a margin for how the heap
// grows. Of a GPU: what is free there, and what torch's allocator holds unused. A session has taken what it needs when
// it is open.
LookForRoom machine_room(const c10::Device& device);

// One reading of what `look` says counts for as many calls as it has room for, if each took the whole reserve, and for
// fifty times as long as the reading took: it costs a fiftieth of the time at most, but where room is short.
class LastingRoom {
   public:
    explicit LastingRoom(LookForRoom look) : look_(std::move(look)) {}
    std::uint64_t operator()(std::uint64_t reserve_bytes);

   private:
    using Clock = std::chrono::steady_clock;

    LookForRoom look_;
    std::uint64_t left_ = 0;
    Clock::time_point good_until_;
};

}  // namespace penstock::engine
