#include "zero_infinity/engine/graph_keeper.h"

#include "aio/words/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace penstock::engine {
namespace {

// How much more than what graphs hold must be free for a call of a unit that has not run yet.
constexpr std::uint64_t times_held = 8;

constexpr int most_notes = 2;  // the first pass, whose units are not known yet, gives up more than those after it

std::string mebibytes(std::uint64_t bytes) {
    return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 0x1p20);
}

}  // namespace

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

bool& GraphKeeper::seen(const Call& call, Half half) {
    return seen_[call.unit].at(static_cast<std::size_t>(half));
}

// A unit that has not run yet may take any amount, a head's logits for one, and who goes beyond a cgroup's limit is
// killed: where room is not ample, the first pass gives more up than later ones.
bool GraphKeeper::has_room(const Call& call, Half half) {
    const std::uint64_t unknown = seen(call, half) ? 0 : times_held * tape_.graph_bytes();
    const std::uint64_t wanted = std::max(reserve_bytes_, unknown);
    const std::uint64_t room = options_.room(wanted);
    if (room >= wanted) return true;
    least_room_bytes_ = std::min(least_room_bytes_, room);
    return false;
}

void GraphKeeper::before(const Call& call, Half half) {
    if (!meter_) return;
    while (!bounded() && !has_room(call, half) && tape_.give_up_oldest(call)) {
    }
    meter_->restart();
}

void GraphKeeper::after(const Call& call, Half half) {
    if (!meter_) return;
    reserve_bytes_ = std::max(reserve_bytes_, meter_->peak_bytes());
    seen(call, half) = true;
    if (!bounded()) return;
    // One that alone is more than the budget does not cost the others theirs.
    if (tape_.at(call.unit, call.micro_batch).graph_bytes > options_.graph_budget_bytes) tape_.give_up(call);
    while (tape_.graph_bytes() > options_.graph_budget_bytes && tape_.give_up_oldest(call)) {
    }
}

std::string GraphKeeper::take_note(std::size_t micro_batches) {
    if (tape_.given_up() == 0 || tape_.given_up() == told_ || notes_ == most_notes) return {};
    ++notes_;
    told_ = tape_.given_up();
    const std::size_t calls = (tape_.unit_count() - 1) * micro_batches;  // the last unit's backward follows at once
    const std::string why = bounded() ? fmt::format("a budget of {}", mebibytes(options_.graph_budget_bytes))
                                      : fmt::format("{} were free, and one call of a unit takes up to {}",
                                                    mebibytes(least_room_bytes_), mebibytes(reserve_bytes_));
    return fmt::format(
        "graphs of {} of {} calls of units were given up, the oldest first, and these are run again in "
        "backward, to the same bits: {}",
        tape_.given_up(), calls, why);
}

}  // namespace penstock::engine
