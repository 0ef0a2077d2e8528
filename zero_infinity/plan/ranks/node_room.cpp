#include "zero_infinity/plan/ranks/node_room.h"

#include "aio/words/host_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <tuple>
#include <vector>

namespace penstock::zero {
namespace {

template <std::size_t size>
void set(std::array<char, size>& to, std::string_view text) {
    std::copy_n(text.begin(), std::min(text.size(), size - 1), to.begin());
}

using Node = std::vector<std::uint32_t>;  // its ranks

// In the order of their first ranks. Ranks that do not know their boot are each by themselves.
std::vector<Node> nodes_of(std::span<const RankRoom> of_ranks) {
    std::vector<Node> nodes;
    std::map<std::tuple<std::string_view, std::string_view>, std::size_t> known;
    for (std::uint32_t rank = 0; rank < of_ranks.size(); ++rank) {
        const std::string_view boot(of_ranks[rank].boot.data());
        const auto [place, is_new] =
            known.try_emplace({boot, std::string_view(of_ranks[rank].limit.data())}, nodes.size());
        if (is_new || boot.empty()) {
            place->second = nodes.size();
            nodes.emplace_back();
        }
        nodes[place->second].push_back(rank);
    }
    return nodes;
}

}  // namespace

RankRoom RankRoom::read(std::uint64_t pool_bytes, const pool::MachineMemory& memory, const std::string& root) {
    RankRoom room{.pool_bytes = pool_bytes, .available_bytes = memory.available_bytes};
    set(room.host, aio::host_name());
    std::string boot;
    std::getline(std::ifstream(root + "/proc/sys/kernel/random/boot_id"), boot);
    set(room.boot, boot);
    set(room.limit, memory.limited_by);
    return room;
}

SharedNode node_of(std::span<const RankRoom> of_ranks, std::uint32_t rank) {
    for (const Node& node : nodes_of(of_ranks)) {
        if (std::find(node.begin(), node.end(), rank) == node.end()) continue;
        SharedNode shared{static_cast<std::uint32_t>(node.size()), of_ranks[rank].available_bytes};
        for (const std::uint32_t other : node)
            shared.available_bytes = std::min(shared.available_bytes, of_ranks[other].available_bytes);
        return shared;
    }
    return {1, of_ranks[rank].available_bytes};
}

std::string lacking_room(std::span<const RankRoom> of_ranks, std::string_view budget) {
    for (const Node& node : nodes_of(of_ranks)) {
        std::uint64_t wanted = 0, available = of_ranks[node.front()].available_bytes;
        for (const std::uint32_t rank : node) {
            wanted += of_ranks[rank].pool_bytes;
            available = std::min(available, of_ranks[rank].available_bytes);
        }
        if (node.size() == 1 || wanted <= available) continue;
        const RankRoom& first = of_ranks[node.front()];
        std::string table = fmt::format("the {} ranks on {} do not fit together:", node.size(), first.host.data());
        for (const std::uint32_t rank : node)
            table += fmt::format("\n  rank {:<4} {:>12}", rank, memory_text(of_ranks[rank].pool_bytes));
        table += fmt::format("\n  all       {:>12}\n  there are {:>12} ({})", memory_text(wanted),
                             memory_text(available), first.limit.data());
        return table + fmt::format("\nStart fewer ranks there, or give all of them less by {}.", budget);
    }
    return {};
}

std::string memory_text(std::uint64_t bytes) {
    constexpr double kib = 1U << 10, mib = 1U << 20, gib = 1U << 30;
    const auto count = static_cast<double>(bytes);
    if (count >= gib) return fmt::format("{:.2f} GiB", count / gib);
    return count >= mib ? fmt::format("{:.1f} MiB", count / mib) : fmt::format("{:.1f} KiB", count / kib);
}

}  // namespace penstock::zero
