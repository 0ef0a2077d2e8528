// How much of a mapping the kernel really gave as huge pages; source: Documentation/admin-guide/mm/pagemap.rst.
#pragma once

#include <cstddef>
#include <optional>

namespace penstock::pool {

inline constexpr std::size_t huge_page_bytes = 2U << 20;

// Bytes in huge pages of the mapping of `bytes` at `data`, which has inaccessible memory on both sides. 0 also where
// the kernel does not say it. Callable from any thread.
std::size_t huge_bytes_in(const std::byte* data, std::size_t bytes);

// The two ways to know. Asking for these pages alone takes a kernel of 6.7; nothing where it cannot.
std::optional<std::size_t> scanned_huge_bytes(const std::byte* data, std::size_t bytes);
// /proc/self/smaps tells of all memory of the process, and takes as long as there is of it: seconds in a large one.
std::size_t listed_huge_bytes(const std::byte* data);

}  // namespace penstock::pool
