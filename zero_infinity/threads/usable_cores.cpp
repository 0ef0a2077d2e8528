#include "zero_infinity/threads/usable_cores.h"

#include "pinned_pool/cgroups.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <vector>

namespace penstock::zero {
namespace {

// Masks are longer than cpu_set_t on machines with more than 1024 processors.
unsigned in_affinity_mask() {
    for (std::size_t processors = 1024; processors <= 1U << 20; processors *= 2) {
        std::vector<cpu_set_t> mask(processors / 8 / sizeof(cpu_set_t));
        const std::size_t bytes = mask.size() * sizeof(cpu_set_t);
        if (::sched_getaffinity(0, bytes, mask.data()) == 0)
            return static_cast<unsigned>(std::max(1, CPU_COUNT_S(bytes, mask.data())));
    }
    return 1;
}

// Processors' worth of time; nothing without a limit.
std::optional<double> quota_of(double quota_us, double period_us) {
    if (!(quota_us > 0) || !(period_us > 0)) return std::nullopt;
    return quota_us / period_us;
}

// "150000 100000", or "max 100000"
std::optional<double> quota_v2(const std::string& path) {
    std::ifstream file(path);
    double quota = 0;
    double period = 0;
    if (!(file >> quota >> period)) return std::nullopt;
    return quota_of(quota, period);
}

// -1 is no limit.
std::optional<double> quota_v1(const std::string& quota_path, const std::string& period_path) {
    double quota = 0;
    double period = 0;
    if (!(std::ifstream(quota_path) >> quota) || !(std::ifstream(period_path) >> period)) return std::nullopt;
    return quota_of(quota, period);
}

}  // namespace

UsableCores UsableCores::read(const std::string& root) {
    UsableCores least{in_affinity_mask(), "the affinity mask"};
    if (static_cast<long>(least.count) >= ::sysconf(_SC_NPROCESSORS_ONLN))
        least.limited_by = "the machine's processors";
    for (const pool::CgroupFolder& folder : pool::cgroup_folders("cpu", root)) {
        const std::string file = folder.path + (folder.version == 2 ? "/cpu.max" : "/cpu.cfs_quota_us");
        const auto quota = folder.version == 2 ? quota_v2(root + file)
                                               : quota_v1(root + file, root + folder.path + "/cpu.cfs_period_us");
        if (!quota || std::ceil(*quota) >= least.count) continue;
        least = {static_cast<unsigned>(std::ceil(*quota)), "cgroup limit " + file};
    }
    return least;
}

}  // namespace penstock::zero
