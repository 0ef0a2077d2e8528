// Both calls of a transport with seeded blocks, apart and side by side.
#pragma once

#include "zero_infinity/ranks/transport.h"

#include <cstddef>
#include <cstdint>

namespace penstock::testing {

// One rank's part of an exchange and a gather; all ranks make it with the same seed and bytes. Throws where another
// byte came than was given, or one between blocks has changed.
void move_blocks(zero::Transport& transport, std::uint64_t seed, std::size_t bytes);

}  // namespace penstock::testing
