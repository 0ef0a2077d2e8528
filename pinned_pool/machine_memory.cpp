// What /proc and /sys say about the memory that is left. Source: Documentation/admin-guide/cgroup-v1/memory.rst and
// cgroup-v2.rst of Linux, and si_mem_available() in its mm.
#include "pinned_pool/budget.h"
#include "pinned_pool/cgroups.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>

namespace penstock::pool {

namespace {

constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

// The files of one controller version, and the lines of memory.stat with what is given back on demand: page cache that
// is no shared memory, used lately or not, and slabs (of which version 1 says nothing).
struct CgroupFiles {
    const char* limit;
    const char* usage;
    const char* inactive_cache;
    const char* active_cache;
    const char* slabs;
};
constexpr CgroupFiles version_1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                                   "total_active_file", nullptr};
constexpr CgroupFiles version_2 = {"memory.max", "memory.current", "inactive_file", "active_file", "slab_reclaimable"};

// The kernel's rule for the whole machine (MemAvailable): of each kind half stays, or the low watermark if that is
// less. A group has no watermark; this is about that of a machine of 16 GiB.
constexpr std::uint64_t kept_bytes = 64ULL << 20;
std::uint64_t given_back(std::uint64_t bytes) noexcept {
    return bytes - std::min(bytes / 2, kept_bytes);
}

std::uint64_t sum(std::uint64_t one, std::uint64_t other) noexcept {
    return one + std::min(other, unlimited - one);
}

// The number that a file holds; nothing when there is no such file or no number in it ("max").
std::optional<std::uint64_t> number_in(const std::string& path) {
    std::ifstream file(path);
    std::uint64_t value = 0;
    if (file >> value) return value;
    return std::nullopt;
}

// The number after `name` in a file of lines "name value" or "name: value kB".
std::optional<std::uint64_t> number_after(const std::string& path, const std::string& name) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string word;
        std::uint64_t value = 0;
        if (words >> word >> value && (word == name || word == name + ":")) return value;
    }
    return std::nullopt;
}

std::uint64_t free_ram(const std::string& root) {
    if (const auto kib = number_after(root + "/proc/meminfo", "MemAvailable")) return *kib * 1024;
    const long pages = ::sysconf(_SC_AVPHYS_PAGES);  // without /proc: less than the truth, never more
    return pages > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))
                     : unlimited;
}

void consider_group(const std::string& root, const std::string& folder, const CgroupFiles& files,
                    MachineMemory& least) {
    const auto limit = number_in(root + folder + "/" + files.limit);
    const auto usage = number_in(root + folder + "/" + files.usage);
    if (!limit || !usage) return;
    const auto stated = [&](const char* line) {
        return line == nullptr ? 0 : number_after(root + folder + "/memory.stat", line).value_or(0);
    };
    const std::uint64_t cache = given_back(sum(stated(files.inactive_cache), stated(files.active_cache)));
    const std::uint64_t held = *usage - std::min(*usage, sum(cache, given_back(stated(files.slabs))));
    const std::uint64_t room = *limit - std::min(*limit, held);
    if (room >= least.available_bytes) return;
    least.available_bytes = room;
    least.limited_by = "cgroup limit " + folder + "/" + files.limit;
}

// CAP_IPC_LOCK counts in the first user namespace only: the kernel asks capable(), which root in a container of its own
// user namespace does not pass. The first one's number is fixed (PROC_USER_INIT_INO in include/linux/proc_ns.h).
bool may_lock_all(const std::string& root) {
    constexpr int cap_ipc_lock = 14;
    std::error_code none;
    if (std::filesystem::read_symlink(root + "/proc/self/ns/user", none) != "user:[4026531837]") return false;
    std::ifstream status(root + "/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        std::istringstream words(line);
        std::string name;
        std::uint64_t capabilities = 0;
        if (words >> name >> std::hex >> capabilities && name == "CapEff:")
            return (capabilities >> cap_ipc_lock & 1) != 0;
    }
    return false;
}

// The soft limit of "Max locked memory  8388608  8388608  bytes"; unlimited when it says so or nothing is said.
std::uint64_t lock_limit(const std::string& root) {
    constexpr std::string_view name = "Max locked memory";
    std::ifstream limits(root + "/proc/self/limits");
    for (std::string line; std::getline(limits, line);) {
        if (line.compare(0, name.size(), name) != 0) continue;
        std::istringstream words(line.substr(name.size()));
        std::uint64_t bytes = 0;
        return words >> bytes ? bytes : unlimited;
    }
    return unlimited;
}

std::uint64_t lockable(const std::string& root) {
    const std::uint64_t limit = lock_limit(root);
    if (limit == unlimited || may_lock_all(root)) return unlimited;
    const std::string status = root + "/proc/self/status";
    const std::uint64_t locked =
        (number_after(status, "VmLck").value_or(0) + number_after(status, "VmPin").value_or(0)) * 1024;
    return limit - std::min(limit, locked);
}

}  // namespace

MachineMemory MachineMemory::read(const std::string& root) {
    MachineMemory least = {free_ram(root), "free RAM", lockable(root)};
    for (const CgroupFolder& folder : cgroup_folders("memory", root))
        consider_group(root, folder.path, folder.version == 2 ? version_2 : version_1, least);
    return least;
}

}  // namespace penstock::pool
