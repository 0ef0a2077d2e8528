// Ranks that are processes of one machine, over pairs of sockets: a process that is killed is lost at once, as over a
// network.
#pragma once

#include "zero_infinity/ranks/transport.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace penstock::testing {

// Made before the processes are, by fork().
class SocketRanks {
   public:
    explicit SocketRanks(std::uint32_t ranks);
    ~SocketRanks();
    SocketRanks(const SocketRanks&) = delete;
    SocketRanks& operator=(const SocketRanks&) = delete;

    // In the process that is to be this rank: it closes what is of the others.
    std::unique_ptr<zero::Transport> become(std::uint32_t rank);
    void close();  // in the process that is none of them

   private:
    std::vector<std::vector<int>> ends_;  // [rank][other]; -1: closed, or its own
};

}  // namespace penstock::testing
