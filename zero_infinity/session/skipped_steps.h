// How many steps were made without a parameter: one that no gradient came to and that is Unused::skipped counts its
// own.
#pragma once

#include "zero_infinity/layout/unit.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace penstock::zero {

// Of those parameters alone that have skipped a step. Committed with every step as text: with the parameters numbered
// through all units from 1, "3:7 2 12:1" is 7 of number 3, 2 of number 4, the next one, and 1 of number 12 behind that.
// So 20,000 experts take no more than 160 KB of the client state.
class SkippedSteps {
   public:
    explicit SkippedSteps(std::span<const UnitLayout> units);
    // Throws Error (storage) on text that no session has written for these units.
    void read(const std::string& text);

    std::uint64_t of(ParameterId parameter) const;
    void add(ParameterId parameter) { ++counts_[number(parameter)]; }
    bool empty() const noexcept { return counts_.empty(); }
    std::string text() const;

   private:
    std::size_t number(ParameterId parameter) const { return first_.at(parameter.unit) + parameter.index + 1; }

    // Constant after construction: by unit, how many parameters come before it; and of all.
    std::vector<std::size_t> first_;

    std::map<std::size_t, std::uint64_t> counts_;  // by number
};

}  // namespace penstock::zero
