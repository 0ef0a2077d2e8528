#include "zero_infinity/order/shelf_order.h"

#include "aio/words/check.h"

#include <algorithm>
#include <utility>

namespace penstock::zero {

bool ShelfOrder::lay(std::uint64_t turn, std::uint64_t bytes) {
    PENSTOCK_CHECK(!has(turn), "two things are laid aside for turn {}", turn);
    const std::uint64_t longest = std::max(longest_, bytes);
    keep_room(2 * longest);
    if (!find_room(turn, bytes, std::nullopt)) return false;
    longest_ = longest;
    spare_.put(inside_, turn) = {.bytes = bytes};
    staying_ += bytes;
    return true;
}

bool ShelfOrder::take(std::uint64_t turn) {
    PENSTOCK_CHECK(has(turn), "nothing is laid aside for turn {}", turn);
    if (const auto away = away_.find(turn); away != away_.end()) {
        if (!find_room(turn, away->second.bytes, turn)) return false;
        fetch(away);
    }
    Entry& entry = *inside_.find(turn);
    entry.second.taken = true;
    fetch_ahead(turn);
    if (entry.second.stay == Item::Stay::coming) arrive(entry);
    return true;
}

void ShelfOrder::put_back(std::uint64_t turn) {
    inside_.at(turn).taken = false;
}

void ShelfOrder::drop(std::uint64_t turn) {
    PENSTOCK_CHECK(has(turn), "nothing is laid aside for turn {}", turn);
    if (const auto inside = inside_.find(turn); inside != inside_.end()) free_memory(*inside);
    auto node = inside_.extract(turn);
    spare_.keep(node ? std::move(node) : away_.extract(turn));
}

// Also in the middle of a transfer.
void ShelfOrder::free_memory(Entry& entry) {
    auto& [turn, item] = entry;
    if (item.stay == Item::Stay::leaving) return end_leaving(entry);
    if (item.stay == Item::Stay::coming) arrive(entry);
    staying_ -= item.bytes;
    hands_.give_room(turn);
}

bool ShelfOrder::has(std::uint64_t turn) const {
    return inside_.contains(turn) || away_.contains(turn);
}

void ShelfOrder::clear() {
    while (!inside_.empty()) drop(inside_.begin()->first);
    while (!away_.empty()) drop(away_.begin()->first);
}

// What is taken last makes room first. What is taken before `after` keeps its own, unless nothing else is there to
// give.
bool ShelfOrder::find_room(std::uint64_t turn, std::uint64_t bytes, std::optional<std::uint64_t> after) {
    while (!hands_.find_room(turn, bytes))
        if (!make_room(after) && !(after && make_room(std::nullopt))) return false;
    return true;
}

// False: nothing that may go is in memory.
bool ShelfOrder::make_room(std::optional<std::uint64_t> after) {
    for (auto next = inside_.rbegin(); next != inside_.rend() && (!after || next->first > *after); ++next) {
        Item& item = next->second;
        if (item.taken) continue;
        if (item.stay == Item::Stay::coming) arrive(*next);
        if (item.stay == Item::Stay::there) send_out(*next);
        end_leaving(*next);
        return true;
    }
    return false;
}

// What came from NVMe, and was not changed, is there still.
void ShelfOrder::send_out(Entry& entry) {
    auto& [turn, item] = entry;
    if (!item.stored) hands_.send(turn);
    staying_ -= item.bytes;
    item.stay = Item::Stay::leaving;
}

void ShelfOrder::end_leaving(Entry& entry) {
    auto& [turn, item] = entry;
    if (!item.stored) hands_.wait(turn);
    item.stored = true;
    hands_.give_room(turn);
    away_.insert(inside_.extract(turn));
}

void ShelfOrder::arrive(Entry& entry) {
    hands_.wait(entry.first);
    entry.second.stay = Item::Stay::there;
}

// With room for two more, nothing has to be waited for.
void ShelfOrder::keep_room(std::uint64_t bytes) {
    for (auto next = inside_.rbegin(); next != inside_.rend() && staying_ + bytes > most_; ++next)
        if (next->second.stay == Item::Stay::there && !next->second.taken) send_out(*next);
}

void ShelfOrder::fetch(Items::iterator away) {
    hands_.fetch(away->first);
    staying_ += away->second.bytes;
    away->second.stay = Item::Stay::coming;
    inside_.insert(away_.extract(away));
}

// What is taken after `turn`, as far as there is room without that of what is taken before it.
void ShelfOrder::fetch_ahead(std::uint64_t turn) {
    for (auto next = away_.upper_bound(turn); next != away_.end();) {
        bool room = hands_.find_room(next->first, next->second.bytes);
        while (!room && make_room(next->first)) room = hands_.find_room(next->first, next->second.bytes);
        if (!room) return;
        fetch(next++);
    }
}

}  // namespace penstock::zero
