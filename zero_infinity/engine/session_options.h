// What a session of the engine is told, with every default; without torch, so that a program can read its configuration
// into it.
#pragma once

#include "aio/words/enum_words.h"
#include "zero_infinity/plan/core_options.h"

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

namespace penstock::engine {

enum class Activations : std::uint8_t {
    automatic,  // as retain, but whole graphs are given up where room runs short: engine/graph_keeper.h
    recompute,  // keep unit inputs, run forward again in backward
    retain,     // keep the graph of every unit and micro-batch between forward and backward
};
constexpr auto words_of(Activations) noexcept {
    return std::array{Word{Activations::automatic, "auto"}, Word{Activations::recompute, "recompute"},
                      Word{Activations::retain, "keep"}};
}

inline constexpr std::uint64_t unbounded_graphs = std::numeric_limits<std::uint64_t>::max();

// What compute may still allocate outside of the pool; asked before each call of a unit, which `reserve_bytes` are
// wanted for.
using Room = std::function<std::uint64_t(std::uint64_t reserve_bytes)>;

struct EngineOptions {
    double gradient_clipping = 0;  // global norm; 0: none
    Activations activations = Activations::automatic;
    // What kept graphs may take together, outside of the pool. Of automatic: instead of what is free. Of retain: the
    // first step of a run recomputes, and measures them; then as many units' graphs are kept as fit, of those nearest
    // to the loss (engine/tape.h).
    std::uint64_t graph_budget_bytes = unbounded_graphs;
    std::string activations_setting = "engine.activations";  // what `activations` is called, for messages
    Room room;  // of automatic without a budget; empty: what the machine says (engine/room/compute_room.h)
    std::function<std::uint32_t()> wish;  // asked once in each step: see StepReport::wish; empty: 0
};

struct SessionOptions : zero::CoreOptions {
    std::uint64_t seed = 1;  // of the initial weights
    // Between their uses; not of zero::updates_at_once(), which keeps one unit's.
    zero::GradientTier gradients = zero::GradientTier::automatic;
    EngineOptions engine;
};

// What its core is told. Units that are updated within backward share the memory of their gradients: the engine runs
// all micro-batches of a unit before it goes to the next.
inline zero::CoreOptions core_options(const SessionOptions& options) {
    zero::CoreOptions core = options;
    // Where graphs are kept as far as a budget goes, as if none were.
    const bool kept =
        options.engine.activations != Activations::recompute && options.engine.graph_budget_bytes == unbounded_graphs;
    core.forward_part = kept ? zero::forward_part_kept : zero::forward_part_recomputed;
    core.clips = options.engine.gradient_clipping > 0;
    if (zero::updates_at_once(core))
        core.gradient_memory = zero::GradientMemory::one_unit;
    else
        zero::place_gradients(options.gradients, core);
    return core;
}

}  // namespace penstock::engine
