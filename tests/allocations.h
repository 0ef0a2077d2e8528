// Counts what a program allocates: linking allocations.cpp replaces operator new of the whole program, so a test that
// counts has an executable of its own.
#pragma once

#include <cstdint>

namespace penstock::testing {

// Calls of operator new so far, in all threads.
std::uint64_t allocations() noexcept;

// From now on, and in this thread: `later` calls succeed, then `count` are refused with bad_alloc, and all further ones
// succeed again. A count of 0 refuses none.
void refuse_allocations(std::uint64_t later, std::uint64_t count) noexcept;
// Calls since then that were counted for it.
std::uint64_t allocations_since_refusal() noexcept;

}  // namespace penstock::testing
