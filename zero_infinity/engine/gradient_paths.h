// The graph at a unit's boundary: it is cut there, and which of the unit's outputs require a gradient only a graph
// tells, where a call without one must know.
#pragma once

#include "zero_infinity/engine/bundle.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace penstock::engine {

std::set<std::string> requiring_gradient(const Bundle& bundle);
// Cuts the graph at a boundary: the same memory, new leaves where a gradient is wanted.
Bundle cut(const Bundle& bundle, const std::set<std::string>& wanted);

// Learned from each unit's first call over inputs of one form: their names, and which of them require a gradient.
class GradientPaths {
   public:
    explicit GradientPaths(std::size_t unit_count) : units_(unit_count) {}

    bool knows(std::uint32_t unit, const Bundle& input) const;
    void learn(std::uint32_t unit, const Bundle& input, const Bundle& output);
    // REQUIRES: knows().
    const std::set<std::string>& of(std::uint32_t unit, const Bundle& input) const;

   private:
    std::vector<std::map<std::string, std::set<std::string>>> units_;  // by the inputs' form
};

}  // namespace penstock::engine
