// The first weights: drawn unit by unit straight into the store, so that the model never exists whole in memory.
#pragma once

#include "swap/tensor_store.h"
#include "zero_infinity/engine/model.h"
#include "zero_infinity/parameter_groups.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

namespace penstock {

// What is drawn for one parameter, into `values` (spec().numel() floats): depends on nothing but the seed and the
// names.
void draw_initial(const Parameter& parameter, const std::string& unit, std::uint64_t seed, float* values);

using ProgressReport = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

// Writes every tile of every unit, with moments as the optimizers of `pieces` ([unit], of its shard) begin; commits
// nothing. Takes one unit in fp32 and one tile of memory; one write may take
// `deadline`. REQUIRES: called on the thread that owns the Io. Throws Error (storage).
void initialise(Io& io, TensorStore& store, const Model& model, const std::vector<UnitLayout>& layouts,
                const StateFormat& format, const std::vector<std::vector<OptimizerPiece>>& pieces, std::uint64_t seed,
                std::chrono::seconds deadline, const ProgressReport& progress);

}  // namespace penstock
