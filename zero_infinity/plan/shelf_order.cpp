#include "zero_infinity/plan/shelf_order.h"

#include "aio/words/check.h"

#include <algorithm>

namespace penstock::zero {

bool ShelfOrder::lay(std::uint64_t turn, std::uint64_t bytes) {
    PENSTOCK_CHECK(!has(turn), "two things are laid aside for turn {}", turn);
    const std::uint64_t longest = std::max(longest_, bytes);
    keep_room(2 * longest);
    if (!find_room(turn, bytes, std::nullopt)) return false;
    longest_ = longest;
    items_[turn] = {.state = Item::State::there, .bytes = bytes};
    staying_ += bytes;
    return true;
}

bool ShelfOrder::take(std::uint64_t turn) {
    PENSTOCK_CHECK(has(turn), "nothing is laid aside for turn {}", turn);
    Entry& entry = *items_.find(turn);
    Item& item = entry.second;
    if (item.state == Item::State::away) {
        if (!find_room(turn, item.bytes, turn)) return false;
        fetch(entry);
    }
    item.taken = true;
    fetch_ahead(turn);
    if (item.state == Item::State::coming) arrive(entry);
    return true;
}

void ShelfOrder::put_back(std::uint64_t turn) {
    items_.at(turn).taken = false;
}

void ShelfOrder::drop(std::uint64_t turn) {
    PENSTOCK_CHECK(has(turn), "nothing is laid aside for turn {}", turn);
    Entry& entry = *items_.find(turn);
    Item& item = entry.second;
    if (item.state == Item::State::leaving) end_leaving(entry);
    if (item.state == Item::State::coming) arrive(entry);
    if (item.state == Item::State::there) {
        staying_ -= item.bytes;
        hands_.give_room(turn);
    }
    item = {};
}

bool ShelfOrder::has(std::uint64_t turn) const {
    const auto found = items_.find(turn);
    return found != items_.end() && found->second.state != Item::State::none;
}

void ShelfOrder::clear() {
    for (const auto& [turn, item] : items_)
        if (item.state != Item::State::none) drop(turn);
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
    for (auto next = items_.rbegin(); next != items_.rend() && (!after || next->first > *after); ++next) {
        Item& item = next->second;
        if (item.state == Item::State::none || item.state == Item::State::away || item.taken) continue;
        if (item.state == Item::State::coming) arrive(*next);
        if (item.state == Item::State::there) send_out(*next);
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
    item.state = Item::State::leaving;
}

void ShelfOrder::end_leaving(Entry& entry) {
    auto& [turn, item] = entry;
    if (!item.stored) hands_.wait(turn);
    item.stored = true;
    hands_.give_room(turn);
    item.state = Item::State::away;
}

void ShelfOrder::arrive(Entry& entry) {
    hands_.wait(entry.first);
    entry.second.state = Item::State::there;
}

// With room for two more, nothing has to be waited for.
void ShelfOrder::keep_room(std::uint64_t bytes) {
    for (auto next = items_.rbegin(); next != items_.rend() && staying_ + bytes > most_; ++next)
        if (next->second.state == Item::State::there && !next->second.taken) send_out(*next);
}

void ShelfOrder::fetch(Entry& entry) {
    staying_ += entry.second.bytes;
    hands_.fetch(entry.first);
    entry.second.state = Item::State::coming;
}

// What is taken after `turn`, as far as there is room without that of what is taken before it.
void ShelfOrder::fetch_ahead(std::uint64_t turn) {
    for (auto next = items_.upper_bound(turn); next != items_.end(); ++next) {
        Item& item = next->second;
        if (item.state != Item::State::away) continue;
        bool room = hands_.find_room(next->first, item.bytes);
        while (!room && make_room(next->first)) room = hands_.find_room(next->first, item.bytes);
        if (!room) return;
        fetch(*next);
    }
}

}  // namespace penstock::zero
