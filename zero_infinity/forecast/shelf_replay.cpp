#include "zero_infinity/forecast/shelf_replay.h"

#include "aio/words/byte_count.h"
#include "aio/words/check.h"
#include "aio/words/error.h"
#include "pinned_pool/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace penstock::zero {

ShelfReplay::ShelfReplay(const LaidAside& laid, std::size_t visits, VirtualDevice& device, std::uint64_t first_number,
                         Wait wait)
    : device_(device),
      first_number_(first_number),
      wait_(std::move(wait)),
      all_bytes_(pool::whole_granules(laid.budget_bytes)),  // as the pool has it
      bytes_(laid.items.size()),
      visits_(visits),
      free_bytes_(all_bytes_),
      under_way_(laid.items.size()),
      order_(all_bytes_, *this) {
    std::vector<std::size_t> by_turn(laid.items.size());
    std::iota(by_turn.begin(), by_turn.end(), std::size_t{0});
    std::sort(by_turn.begin(), by_turn.end(),
              [&](std::size_t a, std::size_t b) { return laid.items[a].turn < laid.items[b].turn; });
    std::vector<std::uint64_t> turns(laid.items.size());
    for (std::size_t turn = 0; turn < by_turn.size(); ++turn) turns[by_turn[turn]] = turn;
    for (std::size_t i = 0; i < laid.items.size(); ++i) add(laid.items[i], turns[i]);
}

void ShelfReplay::add(const LaidItem& item, std::uint64_t turn) {
    if (item.bytes > all_bytes_) refuse(item.bytes);
    bytes_[turn] = pool::whole_granules(item.bytes);
    visits_[item.laid_in].laid.push_back(turn);
    PENSTOCK_CHECK(!item.taken_in.empty(), "what is laid aside in visit {} is never taken", item.laid_in);
    std::size_t before = item.laid_in;
    for (const std::size_t visit : item.taken_in) {
        PENSTOCK_CHECK(before < visit && visit < visits_.size(), "what is laid aside in visit {} is taken in {} of {}",
                       item.laid_in, visit, visits_.size());
        visits_[visit].taken.push_back({.turn = turn, .last = visit == item.taken_in.back()});
        before = visit;
    }
}

ShelfBytes shelf_bytes(const LaidAside& laid, std::size_t visits) {
    VirtualDevice device({.read = 1, .write = 1, .both = 1});
    ShelfReplay* replayed = nullptr;
    const auto pass_until = [&](const ShelfReplay::Reached& reached) {
        while (!reached()) {
            device.advance(device.seconds_to_next());
            while (const auto transfer = device.take_ended()) replayed->ended(transfer->number);
        }
    };
    ShelfReplay replay(laid, visits, device, 0, pass_until);
    replayed = &replay;
    for (std::size_t visit = 0; visit < visits; ++visit)
        for (std::size_t piece = 0; piece < replay.pieces(visit); ++piece) {
            replay.begin_piece(visit, piece);
            replay.end_piece(visit, piece);
        }
    replay.begin_pass();
    return replay.begun();
}

std::size_t ShelfReplay::pieces(std::size_t visit) const {
    return std::max({visits_[visit].taken.size(), visits_[visit].laid.size(), std::size_t{1}});
}

void ShelfReplay::begin_piece(std::size_t visit, std::size_t piece) {
    const std::vector<Take>& taken = visits_[visit].taken;
    if (piece < taken.size() && !order_.take(taken[piece].turn)) refuse(bytes_[taken[piece].turn]);
}

void ShelfReplay::end_piece(std::size_t visit, std::size_t piece) {
    const auto& [taken, laid] = visits_[visit];
    if (piece < taken.size()) taken[piece].last ? order_.drop(taken[piece].turn) : order_.put_back(taken[piece].turn);
    if (piece < laid.size() && !order_.lay(laid[piece], bytes_[laid[piece]])) refuse(bytes_[laid[piece]]);
}

bool ShelfReplay::find_room(std::uint64_t, std::uint64_t bytes) {
    if (bytes > free_bytes_) return false;
    free_bytes_ -= bytes;
    return true;
}

void ShelfReplay::wait(std::uint64_t turn) {
    device_.raise(first_number_ + turn);
    wait_([&] { return !under_way_[turn]; });
}

void ShelfReplay::begin(Direction direction, std::uint64_t turn) {
    under_way_[turn] = true;
    (direction == Direction::write ? begun_.out : begun_.in) += bytes_[turn];
    device_.begin({direction, first_number_ + turn, static_cast<double>(bytes_[turn])});
}

void ShelfReplay::refuse(std::uint64_t bytes) const {
    throw Error(
        ExitCode::does_not_fit,
        fmt::format("{} to lay aside find no room in a budget of {} for activations, beside what is in use: raise it "
                    "to {} at least",
                    bytes_text(bytes), bytes_text(all_bytes_), bytes_text(all_bytes_ - free_bytes_ + bytes)));
}

}  // namespace penstock::zero
