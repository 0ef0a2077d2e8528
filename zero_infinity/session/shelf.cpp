#include "zero_infinity/session/shelf.h"

#include "aio/words/byte_count.h"
#include "aio/words/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace penstock::zero {

Shelf::Shelf(pool::PinnedPool& pool, pool::UseId use, ShelfMover& mover, std::string setting)
    : pool_(pool), use_(use), mover_(mover), setting_(std::move(setting)), order_(pool.figures(use).bytes, *this) {}

// The driver has stopped by now, or is about to be: nobody waits for what it was sent for.
Shelf::~Shelf() = default;

std::span<std::byte> Shelf::lay(const Place& place) {
    const std::uint64_t most = pool_.figures(use_).bytes;  // which no rounding passes
    if (place.bytes > most || !order_.lay(place.turn, pool::whole_granules(place.bytes))) fail(place.bytes);
    Held& held = held_.at(place.turn);
    held.unit = place.unit;
    held.bytes = place.bytes;
    ++figures_.items;
    figures_.bytes += place.bytes;
    return {held.memory.data(), held.bytes};
}

std::span<std::byte> Shelf::take(std::uint64_t turn) {
    if (!order_.take(turn)) fail(held_.at(turn).bytes);
    const Held& held = held_.at(turn);
    return {held.memory.data(), held.bytes};
}

void Shelf::drop(std::uint64_t turn) {
    order_.drop(turn);
    auto node = held_.extract(turn);
    if (node.mapped().block) vacated_[pool::whole_granules(node.mapped().bytes)].push_back(*node.mapped().block);
    node.mapped() = {};
    spare_.keep(std::move(node));
}

void Shelf::clear() {
    while (!held_.empty()) drop(held_.begin()->first);
    figures_ = {};
}

bool Shelf::find_room(std::uint64_t turn, std::uint64_t bytes) {
    auto memory = pool_.try_acquire(use_, bytes);
    if (!memory) return false;
    spare_.put(held_, turn).memory = std::move(*memory);
    return true;
}

void Shelf::give_room(std::uint64_t turn) {
    held_.at(turn).memory.reset();
}

void Shelf::send(std::uint64_t turn) {
    Held& held = held_.at(turn);
    std::vector<store::SpillBlock>& vacated = vacated_[held.memory.bytes()];
    if (vacated.empty()) {
        held.block = mover_.allocate(held.memory.bytes());  // or throws, and nothing has changed
    } else {
        held.block = vacated.back();
        vacated.pop_back();
    }
    mover_.out(*held.block, held.memory.span(), held.unit);
    figures_.away_bytes += held.memory.bytes();
}

void Shelf::fetch(std::uint64_t turn) {
    const Held& held = held_.at(turn);
    mover_.in(*held.block, held.memory.span(), held.unit);
}

void Shelf::wait(std::uint64_t turn) {
    mover_.wait(*held_.at(turn).block);
}

void Shelf::fail(std::uint64_t bytes) const {
    const std::uint64_t granted = pool_.figures(use_).granted_bytes;
    const std::uint64_t least = bytes + std::min(granted, std::numeric_limits<std::uint64_t>::max() - bytes);
    throw Error(ExitCode::does_not_fit,
                fmt::format("{} to lay aside find no room in {} beside what is in use: raise it to {} at least",
                            bytes_text(bytes), setting_, bytes_text(least)));
}

}  // namespace penstock::zero
