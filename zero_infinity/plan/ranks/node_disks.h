// File systems of one machine: each rank's store may fit alone where those of all ranks do not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace penstock::zero {

// What one rank's new store is going to take of a directory's file system, and what is free there. Of a fixed length,
// so that one gather brings those of all ranks.
struct RankDisk {
    std::array<char, 64> host = {};        // for messages
    std::array<char, 40> boot = {};        // the kernel's id of this boot; empty: no such directory
    std::array<char, 160> directory = {};  // for messages
    std::uint64_t device = 0;
    std::uint64_t wanted_bytes = 0;
    std::uint64_t free_bytes = 0;
};
inline constexpr std::size_t most_rank_disks = 16;  // further ones are looked at by none
using RankDisks = std::array<RankDisk, most_rank_disks>;

// Of a store of `bytes` in these directories, which are there. What lies in them already, of a store whose making was
// cut off, is taken for its part. `shares`: of each directory; none: alike. `root` stands before /proc: a test shows
// another machine.
RankDisks disks_of_new_store(std::span<const std::string> directories, std::span<const std::uint16_t> shares,
                             std::uint64_t bytes, const std::string& root = "");

// By rank. A table of the first file system where the stores of several ranks have no room together, and what helps;
// empty where all have. A rank that has none alone is its store's affair.
std::string lacking_disk(std::span<const RankDisks> of_ranks);

}  // namespace penstock::zero
