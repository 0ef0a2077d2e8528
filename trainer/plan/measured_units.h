// What the units of a model take compute for, found by running one of each kind on this machine: with weights of no
// meaning, on tokens of no meaning, without a store.
#pragma once

#include "zero_infinity/engine/model.h"
#include "zero_infinity/forecast/step_forecast.h"
#include "zero_infinity/kernels/plane.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace penstock::trainer {

struct UnitsQuestion {
    const engine::Model* model = nullptr;  // on meta; afterwards its parameters are released tensors
    engine::Bundle input;                  // one micro-batch, as the first unit gets it
    std::uint64_t micro_batches = 1;
    zero::PlaneType weights = zero::PlaneType::bf16;
    zero::PlaneType gradients = zero::PlaneType::bf16;
    double seconds = 0.4;                             // of each kind, direction and way, at least one run
    std::function<void(const std::string& unit)> at;  // is measured now
};

// By unit, in both ways: run again in backward, or with its graph kept. The last unit has one, since its backward
// follows at once.
struct MeasuredUnits {
    std::vector<zero::UnitSeconds> recomputed, kept;  // forward and backward, of all micro-batches
    std::vector<std::uint64_t> graph_bytes;           // beside its output, of one micro-batch
    std::uint64_t call_bytes = 0;                     // the most that one of a unit takes, forward or backward
    std::size_t kinds = 0;                            // units of equal parameters are of one kind
};

// On the compute thread, with as many threads as torch was told, in host memory. Throws Error (does_not_fit) naming the
// unit whose weights and gradients do not fit this machine.
MeasuredUnits measure_units(const UnitsQuestion& question);

}  // namespace penstock::trainer
