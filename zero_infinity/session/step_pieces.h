// Who updates what in one step: the layout's pieces, unless groups have values of their own or parameters are skipped.
#pragma once

#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/layout/parameter_groups.h"
#include "zero_infinity/optimizer/optimizer_piece.h"
#include "zero_infinity/session/skipped_steps.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace penstock::zero {

// What a group is updated by in one step, in the place of what it was given at the start.
struct GroupValues {
    double learning_rate = 0;
    std::shared_ptr<const Optimizer> optimizer;  // null: the group's own. Of the same name, with the same moments
};

class StepPieces {
   public:
    // Both outlive it.
    StepPieces(const ModelLayout& layout, const ParameterGroups& optimizers);

    // For the step of that number. `groups`: none, or one for each of the parameter groups, `others` last, that live
    // until the next call. `skipped` says whether a parameter stays as it is. Throws Error (usage) on another number of
    // groups, an optimizer that keeps other moments, and a step before those that were skipped.
    void prepare(std::uint64_t step, std::span<const GroupValues> groups, const SkippedSteps& before,
                 const std::function<bool(ParameterId)>& skipped);
    // The same of one unit. REQUIRES: the groups were checked.
    void prepare(std::uint32_t unit, std::uint64_t step, std::span<const GroupValues> groups,
                 const SkippedSteps& before, const std::function<bool(ParameterId)>& skipped);
    void check(std::span<const GroupValues> groups) const;  // as prepare() does
    TilePieces of(UnitTile tile) const;

   private:
    // Constant after construction.
    const ModelLayout* layout_;
    const ParameterGroups* optimizers_;
    std::vector<std::vector<std::size_t>> groups_;  // by unit and parameter

    // Of the step under way.
    std::vector<std::vector<OptimizerPiece>> own_;  // by unit; empty: the layout's
};

}  // namespace penstock::zero
