// What gradients have come to in a step: nothing that should be trained may silently not be.
#pragma once

#include "zero_infinity/engine/model.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace penstock::engine {

// Backward comes to the units in reverse, so the one that an error names is the first before the mistake, or the
// mistake itself.
class Reached {
   public:
    // The model outlives it.
    explicit Reached(const Model& model) : model_(&model) {}

    void begin_step() { parameters_.clear(); }
    void add(const Parameter* parameter) { parameters_.insert(parameter); }

    // Backward is done with the unit, of whose inputs `wanted` were to get gradients, and has or has not passed some
    // on. Throws Error (usage).
    void check(std::uint32_t unit, const std::set<std::string>& wanted, bool passed_on) const;

   private:
    std::vector<std::string> missing(const Unit& unit) const;

    const Model* model_;
    std::set<const Parameter*> parameters_;
};

}  // namespace penstock::engine
