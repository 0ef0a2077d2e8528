// A model as a session is told of it, and what of it decides how the bytes of its store are read.
#pragma once

#include "zero_infinity/codec/codec.h"
#include "zero_infinity/layout/parameter_groups.h"
#include "zero_infinity/layout/unit.h"
#include "zero_infinity/optimizer/optimizer.h"
#include "zero_infinity/order/window_plan.h"

#include <string>
#include <vector>

namespace penstock::zero {

// What is trained: the units in the order in which their gradients are summed and their tiles updated.
struct ModelSpec {
    std::vector<UnitSpec> units;
    ParameterGroups optimizers;
    // What a pass visits, as far as it is known: for these the window is planned. Empty: each unit once, with the
    // owners of what it borrows; in training then again in reverse order.
    PassVisits training;
    PassVisits inference;
};

// Throws Error (usage): there is no such codec, or it loses what this optimizer must not lose.
StateFormat format_of(const std::string& codec, const Optimizer& optimizer);

// Of everything that decides what the bytes of the objects mean, and that their names and sizes do not show: options of
// an optimizer are not among it, which optimizer keeps a parameter's moments is.
std::string fingerprint_of(const ModelSpec& model, const std::string& codec);

}  // namespace penstock::zero
