// Ranks of one machine: each of them may fit alone where all of them do not.
#pragma once

#include "pinned_pool/budget.h"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace penstock::zero {

// What one rank is going to take of its node's host memory, and what it finds there. A node is one kernel, and what
// limits the memory of a process on it. Of a fixed length, so that one gather brings those of all ranks.
struct RankRoom {
    std::array<char, 64> host = {};    // for messages
    std::array<char, 40> boot = {};    // the kernel's id of this boot
    std::array<char, 128> limit = {};  // MachineMemory::limited_by
    std::uint64_t pool_bytes = 0;
    std::uint64_t available_bytes = 0;

    // `root` stands before /proc: a test shows another machine.
    static RankRoom read(std::uint64_t pool_bytes, const pool::MachineMemory& memory, const std::string& root = "");
};

// By rank. So many of them are on the node of this one, and the least that one of them found there.
struct SharedNode {
    std::uint32_t ranks = 1;
    std::uint64_t available_bytes = 0;
};
SharedNode node_of(std::span<const RankRoom> of_ranks, std::uint32_t rank);

// By rank. A table of the first node whose ranks do not fit together, and what helps; empty where all do. `budget` is
// what the limit of a rank's memory is called.
std::string lacking_room(std::span<const RankRoom> of_ranks, std::string_view budget);

std::string memory_text(std::uint64_t bytes);  // "1.23 GiB", for people

}  // namespace penstock::zero
