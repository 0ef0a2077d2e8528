#include "zero_infinity/engine/graph_keeper.h"

#include "aio/words/byte_count.h"
#include "aio/words/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace penstock::engine {

GraphKeeper::GraphKeeper(Tape& tape, EngineOptions options)
    : tape_(tape), options_(std::move(options)), seen_(tape.unit_count()) {
    PENSTOCK_CHECK(options_.activations != Activations::automatic || bounded() || options_.room,
                   "graphs are kept as far as there is room, and nobody says how much there is");
}

GraphKeeper::Step::Step(GraphKeeper& keeper) : keeper_(keeper) {
    if (keeper_.options_.activations != Activations::automatic) return;
    keeper_.meter_.emplace();
    keeper_.least_room_bytes_ = std::numeric_limits<std::uint64_t>::max();
}

GraphKeeper::Step::~Step() {
    keeper_.meter_.reset();
}

bool& GraphKeeper::seen(const Call& call, Direction direction) {
    return seen_[call.unit].at(static_cast<std::size_t>(direction));
}

// A call of a unit that has not run yet may take any amount, a head's logits for one: until each has, kept graphs have
// no more than half of what there is.
bool GraphKeeper::has_room(const Call& call, Direction direction) {
    const std::uint64_t wanted =
        seen(call, direction) ? reserve_bytes_ : std::max(reserve_bytes_, tape_.graph_bytes());
    const std::uint64_t room = options_.room(wanted);
    if (room >= wanted) return true;
    least_room_bytes_ = std::min(least_room_bytes_, room);
    return false;
}

void GraphKeeper::before(const Call& call, Direction direction) {
    if (!meter_) return;
    while (!bounded() && !has_room(call, direction) && tape_.give_up_oldest(call)) {
    }
    meter_->restart();
}

void GraphKeeper::after(const Call& call, Direction direction) {
    if (!meter_) return;
    reserve_bytes_ = std::max(reserve_bytes_, meter_->peak_bytes());
    seen(call, direction) = true;
    if (!bounded()) return;
    // One that alone is more than the budget does not cost the others theirs.
    if (tape_.at(call.unit, call.micro_batch).graph_bytes > options_.graph_budget_bytes) tape_.give_up(call);
    while (tape_.graph_bytes() > options_.graph_budget_bytes && tape_.give_up_oldest(call)) {
    }
}

std::string GraphKeeper::take_note(std::size_t micro_batches) {
    if (noted_ || tape_.given_up() == 0) return {};
    noted_ = true;
    const std::size_t calls = (tape_.unit_count() - 1) * micro_batches;  // the last unit's backward follows at once
    const std::string why =
        bounded() ? fmt::format("a budget of {}", bytes_text(options_.graph_budget_bytes))
                  : fmt::format("{} were free, and one call of a unit takes up to {}", bytes_text(least_room_bytes_),
                                bytes_text(reserve_bytes_));
    return fmt::format("graphs of {} of {} calls of units were given up, the oldest first, and these are run again in "
                       "backward, to the same bits: {}",
                       tape_.given_up(), calls, why);
}

}  // namespace penstock::engine
