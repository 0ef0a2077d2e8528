#include "pinned_pool/huge_pages.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/ioctl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace penstock::pool {

namespace {

// struct pm_scan_arg and struct page_region of <linux/fs.h>, which older headers do not have.
struct PageRun {
    std::uint64_t begin = 0, end = 0, categories = 0;
};
struct PageScan {
    std::uint64_t size = sizeof(PageScan), flags = 0;
    std::uint64_t begin = 0, end = 0, walked_to = 0;
    std::uint64_t runs = 0, run_count = 0, most_pages = 0;
    std::uint64_t inverted = 0, all_of = 0, any_of = 0, told = 0;
};
constexpr unsigned long scan_pages = _IOWR('f', 16, PageScan);
constexpr std::uint64_t in_huge_page = 1U << 6U;

}  // namespace

std::size_t huge_bytes_in(const std::byte* data, std::size_t bytes) {
    if (bytes < huge_page_bytes) return 0;
    const std::optional<std::size_t> scanned = scanned_huge_bytes(data, bytes);
    return scanned ? *scanned : listed_huge_bytes(data);
}

std::optional<std::size_t> scanned_huge_bytes(const std::byte* data, std::size_t bytes) {
    const int file = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (file < 0) return std::nullopt;
    std::array<PageRun, 64> runs;
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    PageScan scan{.begin = begin, .end = begin + bytes, .all_of = in_huge_page, .told = in_huge_page};
    scan.runs = reinterpret_cast<std::uintptr_t>(runs.data());
    scan.run_count = runs.size();
    std::optional<std::size_t> huge = 0;
    while (scan.begin < scan.end) {
        const int found = ::ioctl(file, scan_pages, &scan);
        if (found < 0) {
            huge = std::nullopt;
            break;
        }
        for (int run = 0; run < found; ++run) *huge += runs[run].end - runs[run].begin;
        scan.begin = scan.walked_to;
    }
    ::close(file);
    return huge;
}

// AnonHugePages of the mapping that begins at `data`; what is inaccessible on both sides keeps it from being merged.
std::size_t listed_huge_bytes(const std::byte* data) {
    std::ifstream maps("/proc/self/smaps");
    const std::string head = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(data));
    bool here = false;
    for (std::string line; std::getline(maps, line);) {
        if (line.compare(0, head.size(), head) == 0) here = true;
        if (!here || line.compare(0, 14, "AnonHugePages:") != 0) continue;
        std::istringstream words(line.substr(14));
        std::size_t kib = 0;
        words >> kib;
        return kib * 1024;
    }
    return 0;
}

}  // namespace penstock::pool
