#include "bench/ranks/rank_home.h"

#include "aio/words/host_name.h"
#include "zero_infinity/ranks/collectives.h"
#include "zero_infinity/threads/usable_cores.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string_view>

namespace penstock::bench {
namespace {

void set(std::array<char, 64>& to, std::string_view text) {
    std::copy_n(text.begin(), std::min(text.size(), to.size() - 1), to.begin());
}

// The rest of the line that begins so; of a file that is not there, nothing.
std::string behind(const std::string& path, std::string_view beginning) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(beginning)) return line.substr(beginning.size());
    return {};
}

std::string memory_text(std::uint64_t bytes) {
    return fmt::format("{:.1f} GiB of memory free", static_cast<double>(bytes) / (1U << 30));
}

// The ranks of each machine, in the order of their first.
std::vector<std::vector<std::uint32_t>> by_machine(const std::vector<RankHome>& homes) {
    std::vector<std::vector<std::uint32_t>> machines;
    std::map<std::string_view, std::size_t> known;
    for (std::uint32_t rank = 0; rank < homes.size(); ++rank) {
        const auto [place, is_new] = known.emplace(homes[rank].boot.data(), machines.size());
        if (is_new) machines.emplace_back();
        machines[place->second].push_back(rank);
    }
    return machines;
}

std::uint64_t free_bytes(const std::vector<RankHome>& homes, const std::vector<std::uint32_t>& ranks) {
    std::uint64_t least = homes[ranks.front()].memory_bytes;
    for (const std::uint32_t rank : ranks) least = std::min(least, homes[rank].memory_bytes);
    return least;
}

}  // namespace

RankHome read_rank_home(const std::string& root) {
    RankHome home;
    set(home.host, aio::host_name());
    set(home.boot, behind(root + "/proc/sys/kernel/random/boot_id", ""));
    set(home.processors, behind(root + "/proc/self/status", "Cpus_allowed_list:\t"));
    home.process = static_cast<std::uint32_t>(::getpid());
    home.cores = zero::UsableCores::read(root).count;
    home.memory_bytes = pool::MachineMemory::read(root).available_bytes;
    return home;
}

std::vector<RankHome> rank_homes(zero::Transport& control) {
    zero::Collectives collectives(control);
    return zero::gathered(collectives, "who is where", read_rank_home());
}

std::vector<HomeLine> home_lines(const std::vector<RankHome>& homes) {
    std::vector<HomeLine> lines;
    for (const std::vector<std::uint32_t>& ranks : by_machine(homes)) {
        lines.push_back({fmt::format("machine {}", homes[ranks.front()].host.data()),
                         fmt::format("{}, {} rank{}", memory_text(free_bytes(homes, ranks)), ranks.size(),
                                     ranks.size() > 1 ? "s" : "")});
        for (const std::uint32_t rank : ranks) {
            const RankHome& home = homes[rank];
            lines.push_back({fmt::format("rank {}", rank),
                             fmt::format("{}, process {}, processors {}, {} core{}", home.host.data(), home.process,
                                         home.processors.data(), home.cores, home.cores > 1 ? "s" : "")});
        }
    }
    return lines;
}

void check_homes(const std::vector<RankHome>& homes, const pool::Use& of_each) {
    for (const std::vector<std::uint32_t>& ranks : by_machine(homes)) {
        pool::Use all = of_each;
        all.bytes *= ranks.size();
        pool::Budget budget(pool::whole_granules(all.bytes), of_each.setting);
        budget.add(all);
        budget.check({.available_bytes = free_bytes(homes, ranks),
                      .limited_by = fmt::format("machine {}", homes[ranks.front()].host.data())});
    }
}

}  // namespace penstock::bench
