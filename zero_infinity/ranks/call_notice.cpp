#include "zero_infinity/ranks/call_notice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace penstock::zero {
namespace {

std::string words_of(const CallNotice& notice, std::span<const std::string> units) {
    const std::string unit = notice.unit < units.size() ? units[notice.unit] : fmt::format("unit {}", notice.unit);
    switch (notice.kind) {
        case CallKind::gather:
            return fmt::format("the weights of {} ({} bytes a rank)", unit, notice.bytes);
        case CallKind::reduce:
            return fmt::format("the gradients of {} ({} bytes a rank)", unit, notice.bytes);
        case CallKind::small:
            break;
    }
    const auto end = std::ranges::find(notice.what, '\0');
    return fmt::format("{} ({} bytes a rank)", std::string_view(notice.what.begin(), end), notice.bytes);
}

struct Alike {
    CallNotice notice;
    std::vector<std::uint32_t> ranks;
};

std::vector<Alike> by_notice(std::span<const CallNotice> of_ranks) {
    std::vector<Alike> found;
    for (std::uint32_t rank = 0; rank < of_ranks.size(); ++rank) {
        const auto same = std::ranges::find(found, of_ranks[rank], &Alike::notice);
        if (same == found.end())
            found.push_back({of_ranks[rank], {rank}});
        else
            same->ranks.push_back(rank);
    }
    return found;
}

}  // namespace

void set_what(CallNotice& notice, std::string_view what) noexcept {
    std::copy_n(what.begin(), std::min(what.size(), notice.what.size()), notice.what.begin());
}

std::string difference(std::span<const CallNotice> of_ranks, std::span<const std::string> units) {
    const std::vector<Alike> found = by_notice(of_ranks);
    if (found.size() == 1) return {};
    std::vector<std::string> parts;
    for (const Alike& each : found)
        parts.push_back(fmt::format("rank{} {} with {}", each.ranks.size() > 1 ? "s" : "", fmt::join(each.ranks, ", "),
                                    words_of(each.notice, units)));
    return fmt::format(
        "the ranks are not at the same call (number {} of this session): {}. All ranks must make the same "
        "visits, updates and reads in the same order",
        of_ranks.front().number, fmt::join(parts, "; "));
}

std::string difference_at(Transport& transport, const CallNotice& own, std::span<const std::string> units) {
    std::vector<CallNotice> all(transport.ranks());
    transport.all_gather(std::as_bytes(std::span(&own, 1)),
                         {reinterpret_cast<std::byte*>(all.data()), sizeof own, sizeof own});
    return difference(all, units);
}

}  // namespace penstock::zero
