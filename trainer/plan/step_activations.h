// What a step keeps from forward to backward, known beforehand: which units' graphs, and what of the others' inputs is
// laid aside under memory.activation_budget. As engine::Tape does.
#pragma once

#include "trainer/config/config.h"
#include "zero_infinity/forecast/shelf_replay.h"

#include <cstdint>
#include <span>

namespace penstock::trainer {

struct KeptGraphs {
    std::uint32_t first = 0;  // of the units whose graphs are kept; the last unit's always is, and counts for nothing
    std::uint64_t bytes = 0;  // of them all, as far as that is known
};

// `graph_bytes`: by unit, of one micro-batch; empty: not known, and where a budget or room bounds them, as if none were
// kept. `room_bytes`: what graphs find without a budget, of memory.activations "auto".
KeptGraphs kept_graphs(const TrainConfig& config, std::span<const std::uint64_t> graph_bytes,
                       std::uint64_t room_bytes = 0);

std::uint64_t input_bytes(const TrainConfig& config);          // of a micro-batch, between two units
std::uint64_t input_bytes_of_step(const TrainConfig& config);  // of all units, and micro-batches

// The inputs of all units whose graphs are not kept, but the first one's, which are the data; without that budget
// nothing.
zero::LaidAside laid_aside(const TrainConfig& config, const KeptGraphs& kept);
std::uint64_t bytes_of(const zero::LaidAside& laid);

// Of a step, to the byte: all of one size. Throws Error (does_not_fit) where the input of a unit is larger than the
// budget.
zero::ShelfBytes away_bytes(const TrainConfig& config, const KeptGraphs& kept);

}  // namespace penstock::trainer
