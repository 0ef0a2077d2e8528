#include "zero_infinity/plan/placement.h"

#include "aio/words/check.h"
#include "pinned_pool/pinned_pool.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace penstock::zero {
namespace {

using Order = std::vector<std::uint32_t>;

// A set-up of at most a tenth of a second: 2^26 pairs of stays looked at, about 1 ns each. The 200 fetches of a model
// of 100 units get all the tries, 8,000 fetches one.
std::size_t try_count(std::size_t stay_count) {
    constexpr std::size_t most_tries = 128;  // 512 would improve one window of a hundred
    constexpr std::size_t most_pairs = std::size_t{1} << 26;
    return std::min(most_tries, most_pairs / std::max<std::size_t>(1, stay_count * stay_count));
}

Placement first_fit(std::span<const Stay> stays, const Order& order) {
    Placement result{std::vector<std::uint64_t>(stays.size(), 0), 0};
    auto& offsets = result.offsets_bytes;
    Order placed;  // by offset
    placed.reserve(stays.size());
    for (const std::uint32_t index : order) {
        const Stay& stay = stays[index];
        const std::uint64_t bytes = pool::whole_granules(stay.bytes);
        std::uint64_t offset = 0;
        for (const std::uint32_t other : placed) {
            if (stays[other].last < stay.first || stay.last < stays[other].first) continue;
            if (offset + bytes <= offsets[other]) break;
            offset = std::max(offset, offsets[other] + pool::whole_granules(stays[other].bytes));
        }
        offsets[index] = offset;
        result.window_bytes = std::max(result.window_bytes, offset + bytes);
        const auto before = [&](std::uint32_t a, std::uint32_t b) { return offsets[a] < offsets[b]; };
        placed.insert(std::upper_bound(placed.begin(), placed.end(), index, before), index);
    }
    return result;
}

// The one that sets the window's top goes first in the next try. False when it already was.
bool promote_topmost(std::span<const Stay> stays, const Placement& placement, Order& order) {
    const auto topmost = std::find_if(order.begin(), order.end(), [&](std::uint32_t index) {
        return placement.offsets_bytes[index] + pool::whole_granules(stays[index].bytes) == placement.window_bytes;
    });
    if (topmost == order.begin()) return false;
    std::rotate(order.begin(), topmost, topmost + 1);
    return true;
}

}  // namespace

Placement place(std::span<const Stay> stays) {
    for (const Stay& stay : stays) PENSTOCK_CHECK(stay.first <= stay.last, "from {} to {}", stay.first, stay.last);
    const std::uint64_t floor = floor_bytes(stays);
    Order order(stays.size());
    std::iota(order.begin(), order.end(), 0U);
    Placement best = first_fit(stays, order);
    Placement latest = best;
    for (std::size_t tries = try_count(stays.size()); tries > 0 && best.window_bytes > floor; --tries) {
        if (!promote_topmost(stays, latest, order)) break;
        latest = first_fit(stays, order);
        if (latest.window_bytes < best.window_bytes) best = latest;
    }
    return best;
}

std::uint64_t floor_bytes(std::span<const Stay> stays) {
    struct Change {
        std::uint32_t at;
        bool ends;
        std::uint64_t bytes;
    };
    std::vector<Change> changes;
    changes.reserve(2 * stays.size());
    for (const Stay& stay : stays) {
        changes.push_back({stay.first, false, pool::whole_granules(stay.bytes)});
        changes.push_back({stay.last, true, pool::whole_granules(stay.bytes)});
    }
    // At one moment what begins comes first: a stay that ends then still needs its bytes.
    std::sort(changes.begin(), changes.end(),
              [](const Change& a, const Change& b) { return a.at != b.at ? a.at < b.at : a.ends < b.ends; });
    std::uint64_t live = 0;
    std::uint64_t most = 0;
    for (const Change& change : changes) {
        live = change.ends ? live - change.bytes : live + change.bytes;
        most = std::max(most, live);
    }
    return most;
}

}  // namespace penstock::zero
