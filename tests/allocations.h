// Counts what a program allocates: linking allocations.cpp replaces operator new of the whole program, so a test that
// counts has an executable of its own.
#pragma once

#include <cstdint>

namespace penstock::testing {

// Calls of operator new so far, in all threads.
std::uint64_t allocations() noexcept;

}  // namespace penstock::testing
