// Two histories of one store: a process commits a generation, the drive can no longer read its manifest, and the next
// process commits a generation of the same number. Whatever the drive reads again later, the second history counts.
// A library without GoogleTest, as kill_matrix.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::testing {

enum class DriveFault : std::uint8_t {
    heals,  // what could not be read is as it was, where nothing was written over it
    stuck,  // of what was written over it, one copy of the manifest was lost
};

// What is wrong with the store of this seed.
std::vector<std::string> run_histories(DriveFault fault, std::uint64_t seed);

}  // namespace penstock::testing
