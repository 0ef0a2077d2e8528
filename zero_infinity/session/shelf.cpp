#include "zero_infinity/session/shelf.h"

#include "aio/words/byte_count.h"
#include "aio/words/check.h"
#include "aio/words/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace penstock::zero {

Shelf::Shelf(pool::PinnedPool& pool, pool::UseId use, ShelfMover& mover, std::string setting)
    : pool_(pool), use_(use), mover_(mover), setting_(std::move(setting)) {}

// The driver has stopped by now, or is about to be: nobody waits for what it was sent for.
Shelf::~Shelf() = default;

std::span<std::byte> Shelf::lay(const Place& place) {
    Item& item = items_[place.turn];
    PENSTOCK_CHECK(item.state == Item::State::none, "two things are laid aside for turn {}", place.turn);
    longest_ = std::max(longest_, place.bytes);
    keep_room();
    item.memory = room_for(place.bytes, std::nullopt);
    item.unit = place.unit;
    item.bytes = place.bytes;
    item.state = Item::State::there;
    item.stored = item.taken = false;
    staying_ += item.memory.bytes();
    ++figures_.items;
    figures_.bytes += place.bytes;
    return {item.memory.data(), place.bytes};
}

std::span<std::byte> Shelf::take(std::uint64_t turn) {
    PENSTOCK_CHECK(has(turn), "nothing is laid aside for turn {}", turn);
    Item& item = items_.at(turn);
    if (item.state == Item::State::away) fetch(item, room_for(item.bytes, turn));
    item.taken = true;
    fetch_ahead(turn);
    if (item.state == Item::State::coming) arrive(item);
    return {item.memory.data(), item.bytes};
}

void Shelf::put_back(std::uint64_t turn) {
    items_.at(turn).taken = false;
}

void Shelf::drop(std::uint64_t turn) {
    Item& item = items_.at(turn);
    if (item.state == Item::State::leaving) end_leaving(item);
    if (item.state == Item::State::coming) arrive(item);
    if (item.state == Item::State::there) staying_ -= item.memory.bytes();
    item.memory.reset();
    item.state = Item::State::none;
    item.taken = false;
}

bool Shelf::has(std::uint64_t turn) const {
    const auto found = items_.find(turn);
    return found != items_.end() && found->second.state != Item::State::none;
}

void Shelf::clear() {
    for (auto& [turn, item] : items_)
        if (item.state != Item::State::none) drop(turn);
    figures_ = {};
}

// What is taken last makes room first. What is taken before `after` keeps its own, unless nothing else is there to
// give.
pool::Lease Shelf::room_for(std::uint64_t bytes, std::optional<std::uint64_t> after) {
    for (;;) {
        if (auto memory = pool_.try_acquire(use_, bytes)) return std::move(*memory);
        if (give_room(after) || (after && give_room(std::nullopt))) continue;
        throw Error(ExitCode::does_not_fit,
                    fmt::format("{} to lay aside find no room in {} beside what is in use: raise it to {} at least",
                                bytes_text(bytes), setting_, bytes_text(pool_.figures(use_).granted_bytes + bytes)));
    }
}

// False: nothing that may go is in memory.
bool Shelf::give_room(std::optional<std::uint64_t> after) {
    for (auto next = items_.rbegin(); next != items_.rend() && (!after || next->first > *after); ++next) {
        Item& item = next->second;
        if (item.state == Item::State::none || item.state == Item::State::away || item.taken) continue;
        if (item.state == Item::State::coming) arrive(item);
        if (item.state == Item::State::there) send_out(item);
        end_leaving(item);
        return true;
    }
    return false;
}

// What came from its block, and was not changed, is there still.
void Shelf::send_out(Item& item) {
    if (!item.stored && item.block_bytes != item.memory.bytes()) {
        item.block = mover_.allocate(item.memory.bytes());  // or throws, and nothing has changed
        item.block_bytes = item.memory.bytes();
    }
    staying_ -= item.memory.bytes();
    item.state = Item::State::leaving;
    if (item.stored) return;
    mover_.out(*item.block, item.memory.span(), item.unit);
    figures_.away_bytes += item.memory.bytes();
}

void Shelf::end_leaving(Item& item) {
    if (!item.stored) mover_.wait(*item.block);
    item.stored = true;
    item.memory.reset();
    item.state = Item::State::away;
}

void Shelf::arrive(Item& item) {
    mover_.wait(*item.block);
    item.state = Item::State::there;
}

// While there is room for two more, nothing has to be waited for.
void Shelf::keep_room() {
    const std::uint64_t most = pool_.figures(use_).bytes;
    for (auto next = items_.rbegin(); next != items_.rend() && staying_ + 2 * longest_ > most; ++next)
        if (next->second.state == Item::State::there && !next->second.taken) send_out(next->second);
}

void Shelf::fetch(Item& item, pool::Lease memory) {
    item.memory = std::move(memory);
    staying_ += item.memory.bytes();
    mover_.in(*item.block, item.memory.span(), item.unit);
    item.state = Item::State::coming;
}

// What is taken after `turn`, as far as there is room without that of what is taken before it.
void Shelf::fetch_ahead(std::uint64_t turn) {
    for (auto next = items_.upper_bound(turn); next != items_.end(); ++next) {
        Item& item = next->second;
        if (item.state != Item::State::away) continue;
        auto memory = pool_.try_acquire(use_, item.bytes);
        while (!memory && give_room(next->first)) memory = pool_.try_acquire(use_, item.bytes);
        if (!memory) return;
        fetch(item, std::move(*memory));
    }
}

}  // namespace penstock::zero
