#include "zero_infinity/plan/ranks/node_disks.h"

#include "aio/words/host_name.h"
#include "zero_infinity/plan/ranks/node_room.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <string_view>
#include <system_error>
#include <utility>

namespace penstock::zero {
namespace {

namespace fs = std::filesystem;

std::uint64_t bytes_of_files(const std::string& directory) {
    std::uint64_t bytes = 0;
    std::error_code unreadable;
    for (const fs::directory_entry& each : fs::directory_iterator(directory, unreadable)) {
        struct stat file {};
        if (::lstat(each.path().c_str(), &file) == 0 && S_ISREG(file.st_mode))
            bytes += static_cast<std::uint64_t>(file.st_blocks) * 512;
    }
    return bytes;
}

struct SharedDisk {
    std::vector<std::pair<std::uint32_t, std::uint64_t>> wanted;  // by rank
    const RankDisk* first = nullptr;
    std::uint64_t free_bytes = 0;  // the least that one of them saw
};

using Place = std::pair<std::string_view, std::uint64_t>;  // boot and device

std::map<Place, SharedDisk> shared_disks(std::span<const RankDisks> of_ranks) {
    std::map<Place, SharedDisk> disks;
    for (std::uint32_t rank = 0; rank < of_ranks.size(); ++rank)
        for (const RankDisk& own : of_ranks[rank]) {
            if (own.boot.front() == 0 || own.wanted_bytes == 0) continue;
            SharedDisk& disk = disks[{own.boot.data(), own.device}];
            disk.free_bytes = disk.first == nullptr ? own.free_bytes : std::min(disk.free_bytes, own.free_bytes);
            if (disk.first == nullptr) disk.first = &own;
            if (disk.wanted.empty() || disk.wanted.back().first != rank) disk.wanted.emplace_back(rank, 0);
            disk.wanted.back().second += own.wanted_bytes;
        }
    return disks;
}

std::string text_of(const SharedDisk& disk, std::uint64_t wanted) {
    std::string table = fmt::format("the stores of {} ranks on {} do not fit together where {} is:", disk.wanted.size(),
                                    disk.first->host.data(), disk.first->directory.data());
    for (const auto& [rank, bytes] : disk.wanted)
        table += fmt::format("\n  rank {:<4} {:>12}", rank, memory_text(bytes));
    table += fmt::format("\n  all       {:>12}\n  free are  {:>12}", memory_text(wanted), memory_text(disk.free_bytes));
    return table + "\nFree some there, name a directory of another drive, or start fewer ranks there.";
}

}  // namespace

RankDisks disks_of_new_store(std::span<const std::string> directories, std::span<const std::uint16_t> shares,
                             std::uint64_t bytes, const std::string& root) {
    RankDisks disks{};
    const RankRoom machine = RankRoom::read(0, {}, root);
    const std::uint64_t all = shares.empty() ? directories.size() : std::accumulate(shares.begin(), shares.end(), 0U);
    for (std::size_t i = 0; i < std::min(directories.size(), disks.size()); ++i) {
        std::error_code unknown;
        const fs::space_info space = fs::space(directories[i], unknown);
        struct stat place {};
        if (unknown || ::stat(directories[i].c_str(), &place) != 0) continue;
        const std::uint64_t part = bytes / all * (shares.empty() ? 1 : shares[i]);
        disks[i].host = machine.host;
        disks[i].boot = machine.boot;
        directories[i].copy(disks[i].directory.data(), disks[i].directory.size() - 1);
        disks[i].device = place.st_dev;
        disks[i].wanted_bytes = part - std::min(part, bytes_of_files(directories[i]));
        disks[i].free_bytes = space.available;
    }
    return disks;
}

std::string lacking_disk(std::span<const RankDisks> of_ranks) {
    for (const auto& [place, disk] : shared_disks(of_ranks)) {
        std::uint64_t wanted = 0;
        for (const auto& [rank, bytes] : disk.wanted) wanted += bytes;
        if (disk.wanted.size() > 1 && wanted > disk.free_bytes) return text_of(disk, wanted);
    }
    return {};
}

}  // namespace penstock::zero
