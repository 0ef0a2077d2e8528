#include "bench/harness/huge_pages.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

namespace penstock::bench {
namespace {

constexpr const char* setting = "/proc/sys/vm/nr_hugepages";

std::uint64_t meminfo(const std::string& name) {
    std::ifstream file("/proc/meminfo");
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string key;
        std::uint64_t value = 0;
        if (words >> key >> value && key == name + ":") return value;
    }
    return 0;
}

bool set_pages(std::uint64_t pages) {
    std::ofstream file(setting);
    file << pages << std::flush;
    return static_cast<bool>(file);
}

}  // namespace

HugePages2MiB::HugePages2MiB(std::uint64_t needed, HugePageReserve reserve) {
    before_ = meminfo("HugePages_Total");
    if (meminfo("Hugepagesize") != 2048) {
        note_ = "fio mmaphuge is left out: this machine's huge pages are not of 2 MiB";
        return;
    }
    const std::uint64_t free = meminfo("HugePages_Free") - meminfo("HugePages_Rsvd");
    if (free >= needed) return;
    const std::uint64_t wanted = before_ + needed - free;
    if (reserve == HugePageReserve::raise) {
        raised_ = set_pages(wanted);
        if (raised_ && meminfo("HugePages_Free") - meminfo("HugePages_Rsvd") >= needed) return;
        note_ = fmt::format("fio mmaphuge is left out: vm.nr_hugepages could not be raised to {} ({})", wanted,
                            raised_ ? "no such memory in one piece" : "only root may");
        return;
    }
    note_ = fmt::format(
        "fio mmaphuge is left out: it needs {} reserved huge pages and {} are free; --reserve-huge-pages reserves them "
        "for the run, or as root: sysctl vm.nr_hugepages={}",
        needed, free, wanted);
}

HugePages2MiB::~HugePages2MiB() {
    if (raised_) set_pages(before_);
}

}  // namespace penstock::bench
