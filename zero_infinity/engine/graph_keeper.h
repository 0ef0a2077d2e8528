// Activations::automatic: each unit's graph is kept from the first pass on, and where room falls short whole graphs are
// given up, the oldest first, which backward needs last. Nothing is foretold: what must stay free is the most that one
// call of a unit has taken so far, forward or backward. Where nothing is left to give up, compute goes on as in torch.
#pragma once

#include "zero_infinity/engine/session_options.h"
#include "zero_infinity/engine/tape.h"
#include "zero_infinity/engine/torch/memory_meter.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::engine {

enum class Half : std::uint8_t { forward, backward };

// Compute thread. Does nothing with other Activations. The tape outlives it.
class GraphKeeper {
   public:
    // REQUIRES: options.room, of automatic without a budget.
    GraphKeeper(Tape& tape, EngineOptions options);

    // A pass and its backward, while it lives: what torch allocates is counted.
    class Step {
       public:
        explicit Step(GraphKeeper& keeper);
        ~Step();
        Step(const Step&) = delete;
        Step& operator=(const Step&) = delete;

       private:
        GraphKeeper& keeper_;
    };

    void before(const Call& call, Half half);  // makes room for it, and begins to count
    void after(const Call& call, Half half);   // what it took is known
    // Since before(); null: nothing is counted.
    const MemoryMeter* meter() const noexcept { return meter_ ? &*meter_ : nullptr; }

    std::uint64_t reserve_bytes() const noexcept { return reserve_bytes_; }
    // A line for the log where a step has given up graphs, another number than the one told before; else empty. Two in
    // all.
    std::string take_note(std::size_t micro_batches);

   private:
    bool bounded() const noexcept { return options_.graph_budget_bytes != unbounded_graphs; }
    bool has_room(const Call& call, Half half);
    bool& seen(const Call& call, Half half);

    Tape& tape_;
    EngineOptions options_;
    std::optional<MemoryMeter> meter_;
    std::uint64_t reserve_bytes_ = 0;        // the most that one call took
    std::uint64_t least_room_bytes_ = 0;     // of this step, of those that something was to be given up for
    std::vector<std::array<bool, 2>> seen_;  // [unit][half]
    std::size_t told_ = 0;                   // graphs that were given up, by the last note
    int notes_ = 0;
};

}  // namespace penstock::engine
