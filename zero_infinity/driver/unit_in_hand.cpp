#include "zero_infinity/driver/unit_in_hand.h"

#include "aio/words/check.h"

namespace penstock::zero {

UnitInHand::UnitInHand(const UnitInHandDeps& deps, const Unit& unit) : deps_(deps), unit_(unit) {}

bool UnitInHand::ended() const {
    return put_back_ == deps_.layout->unit(unit_.unit).tile_count();
}

std::span<const StagedTile> UnitInHand::next() {
    PENSTOCK_CHECK(tiles_.empty(), "more tiles of unit {} while {} are not put back", unit_.unit, tiles_.size());
    const std::uint32_t count = deps_.layout->unit(unit_.unit).tile_count();
    if (ended()) return {};
    if (put_back_ == 0) await_weights();
    if (unit_.tiles == Tiles::all_at_once) {
        for (std::uint32_t index = 0; index < count; ++index) {
            const std::uint64_t number = deps_.layout->number({unit_.unit, index});
            tiles_.push_back(tile(index, {deps_.memory->states(number, 0).data(), nullptr}));
        }
    } else {
        StagedStates states;
        wait({.lane = TraceLane::wait_tiles, .unit = unit_.unit, .tile = put_back_}, [&] {
            states = deps_.mailbox->wait_staged(deps_.layout->number({unit_.unit, put_back_}));
        });
        tiles_.push_back(tile(put_back_, states));
    }
    updating_ = trace_start(deps_.trace);
    return tiles_;
}

// No fetch reads them. A tile that comes through the driver comes behind that by itself, unless the unit was shut.
void UnitInHand::await_weights() {
    if (!unit_.shut && unit_.tiles == Tiles::through_driver) return;
    if (unit_.shut && unit_.tiles == Tiles::through_driver) send(orders::AwaitUpdate{unit_.unit});
    wait({.lane = TraceLane::wait_tiles, .unit = unit_.unit}, [&] {
        if (unit_.shut) return deps_.mailbox->wait_shut(unit_.unit);
        deps_.mailbox->wait([&](const Progress& progress) { return progress.orders_done >= unit_.begun; });
    });
}

StagedTile UnitInHand::tile(std::uint32_t index, const StagedStates& states) const {
    const UnitTile tile{unit_.unit, index};
    const UnitObjects& objects = deps_.layout->objects(unit_.unit);
    std::byte* weights =
        objects.weights ? unit_.weights + deps_.layout->offset_bytes({*objects.weights, index}) : nullptr;
    const std::uint64_t numel = deps_.layout->unit(unit_.unit).tile_numel(index);
    return {tile, deps_.layout->number(tile), {weights, states.data, numel}, states.gradient};
}

void UnitInHand::put_back() {
    PENSTOCK_CHECK(!tiles_.empty(), "tiles of unit {} are put back, but were not handed out", unit_.unit);
    const bool one = unit_.tiles == Tiles::through_driver;
    trace_end(deps_.trace, deps_.thread, updating_,
              {.lane = TraceLane::update, .unit = unit_.unit, .tile = one ? put_back_ : no_trace_index});
    put_back_ += static_cast<std::uint32_t>(tiles_.size());
    if (one) send(orders::PutBack{.number = tiles_[0].number, .weights = tiles_[0].view.weights});
    tiles_.clear();
    if (unit_.shut && ended()) send(orders::Open{unit_.unit});
}

void UnitInHand::send(const Order& order) {
    deps_.mailbox->send(order);
    deps_.io->wake();
}

template <typename Wait>
void UnitInHand::wait(const TraceSpan& span, Wait wait) {
    const auto start = std::chrono::steady_clock::now();
    const TraceStart from = trace_start(deps_.trace);
    wait();
    trace_end(deps_.trace, deps_.thread, from, span);
    waited_ += std::chrono::steady_clock::now() - start;
}

}  // namespace penstock::zero
