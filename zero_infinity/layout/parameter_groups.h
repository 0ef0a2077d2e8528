// Which optimizer updates which parameter: parameter groups as in torch.optim, chosen by name.
#pragma once

#include "zero_infinity/layout/unit.h"
#include "zero_infinity/optimizer/optimizer.h"
#include "zero_infinity/optimizer/optimizer_piece.h"

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace penstock::zero {

// Parameters with options of their own. `pattern` is a shell glob (fnmatch: *, ?, [a-z]) on "UNIT.PARAMETER", the whole
// of it: "blocks.*.norm*" or "*.bias"; a * goes over dots.
struct ParameterGroup {
    std::string pattern;
    std::shared_ptr<const Optimizer> optimizer;
    double learning_rate_factor = 1;  // the group's rate is StepValues::learning_rate times this, in double
    // Where there are any: these "UNIT.PARAMETER" and no others, and the pattern is only what the group is called.
    std::set<std::string> names = {};
};

// A value that only its owner changes; any thread may read it. The first pattern that matches a parameter wins; a
// parameter that no pattern matches is updated by `others`. All groups keep the same number of moments:
// they are planes of one format.
class ParameterGroups {
   public:
    // Every parameter by one optimizer. Implicit: one optimizer is the simplest of groups.
    ParameterGroups(std::unique_ptr<Optimizer> all);
    // Throws Error (usage) when the groups keep different numbers of moments, or a rate's factor is negative or not
    // finite. REQUIRES: no optimizer is null.
    ParameterGroups(std::shared_ptr<const Optimizer> others, std::vector<ParameterGroup> groups);

    const Optimizer& others() const noexcept { return *groups_.back().optimizer; }
    std::uint32_t moments() const noexcept { return others().moments(); }
    const ParameterGroup& group_of(const std::string& unit, const std::string& parameter) const;
    // Which one, in the order in which they were given; `others` come last.
    std::size_t index_of(const std::string& unit, const std::string& parameter) const;
    std::size_t count() const noexcept { return groups_.size(); }  // with `others`
    const ParameterGroup& group(std::size_t index) const { return groups_.at(index); }

    // Throws Error (usage) naming the first pattern that is without effect: no trainable parameter has it as its first
    // match.
    void check_use(std::span<const UnitLayout> units) const;

   private:
    std::vector<ParameterGroup> groups_;  // others last, whose pattern is "*"
};

// All of a unit's shard, in order; neighbours of one group are one piece. Padding goes with the parameter before it.
// Example: a norm of 768 in one group and a matrix of 100 × 100 in another: ends at 768 and 10816.
// The optimizers stay the groups'.
std::vector<OptimizerPiece> optimizer_pieces(const UnitLayout& unit, const ParameterGroups& groups);

}  // namespace penstock::zero
