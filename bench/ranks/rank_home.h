// Where the ranks of a measurement run.
#pragma once

#include "pinned_pool/budget.h"
#include "zero_infinity/ranks/transport.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace penstock::bench {

// Sent as it lies in memory. Two ranks with one `boot` are on one machine.
struct RankHome {
    std::array<char, 64> host{};
    std::array<char, 64> boot{};
    std::array<char, 64> processors{};  // that it may run on: "0-3,8"
    std::uint32_t process = 0;
    std::uint32_t cores = 0;         // of them, as far as its cgroup lets it
    std::uint64_t memory_bytes = 0;  // free for it and those beside it
};

// This process's. `root` stands before /proc and /sys: a test shows another machine.
RankHome read_rank_home(const std::string& root = "");

// Of all ranks, in their order.
std::vector<RankHome> rank_homes(zero::Transport& control);

// A line for each machine, then one for each of its ranks.
struct HomeLine {
    std::string name;  // "machine vm", "rank 0"
    std::string text;
};
std::vector<HomeLine> home_lines(const std::vector<RankHome>& homes);

// Throws Error (does_not_fit) for the first machine that has not as much for each of its ranks.
void check_homes(const std::vector<RankHome>& homes, const pool::Use& of_each);

}  // namespace penstock::bench
