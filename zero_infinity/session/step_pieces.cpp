#include "zero_infinity/session/step_pieces.h"

#include "aio/words/error.h"

#include <fmt/format.h>

namespace penstock::zero {
namespace {

bool keep_the_same(const Optimizer& one, const Optimizer& other) {
    if (one.name() != other.name() || one.moments() != other.moments()) return false;
    for (std::uint32_t moment = 0; moment < one.moments(); ++moment)
        if (one.moment_kind(moment) != other.moment_kind(moment)) return false;
    return true;
}

}  // namespace

StepPieces::StepPieces(const ModelLayout& layout, const ParameterGroups& optimizers)
    : layout_(&layout), optimizers_(&optimizers), own_(layout.unit_count()) {
    for (const UnitLayout& unit : layout.units()) {
        groups_.emplace_back();
        for (const ParameterSpec& parameter : unit.spec().parameters)
            groups_.back().push_back(optimizers.index_of(unit.spec().name, parameter.name));
    }
}

void StepPieces::check(std::span<const GroupValues> groups) const {
    if (!groups.empty() && groups.size() != optimizers_->count())
        throw Error(ExitCode::usage, fmt::format("an update has values for {} parameter groups, the model has {}",
                                                 groups.size(), optimizers_->count()));
    for (std::size_t index = 0; index < groups.size(); ++index) {
        const Optimizer* given = groups[index].optimizer.get();
        const Optimizer& own = *optimizers_->group(index).optimizer;
        if (given != nullptr && !keep_the_same(*given, own))
            throw Error(ExitCode::usage,
                        fmt::format("the update gives parameter group {} the optimizer {} with {} moments, but what is "
                                    "stored are the {} of {}",
                                    index, given->name(), given->moments(), own.moments(), own.name()));
    }
}

void StepPieces::prepare(std::uint64_t step, std::span<const GroupValues> groups, const SkippedSteps& before,
                         const std::function<bool(ParameterId)>& skipped) {
    check(groups);
    for (std::uint32_t unit = 0; unit < layout_->unit_count(); ++unit) prepare(unit, step, groups, before, skipped);
}

void StepPieces::prepare(std::uint32_t unit, std::uint64_t step, std::span<const GroupValues> groups,
                         const SkippedSteps& before, const std::function<bool(ParameterId)>& skipped) {
    const UnitLayout& at = layout_->unit(unit);
    const auto count = static_cast<std::uint32_t>(at.spec().parameters.size());
    const auto is_its_own = [&](std::uint32_t index) {
        return at.place(index).training == Training::trainable &&
               (before.of({unit, index}) > 0 || skipped({unit, index}));
    };
    bool other = !groups.empty();
    for (std::uint32_t index = 0; index < count && !other; ++index) other = is_its_own(index);
    std::vector<OptimizerPiece>& pieces = own_[unit];
    pieces.clear();
    const std::uint64_t shard_end = at.shard_first() + at.shard_numel();
    for (std::uint32_t index = 0; index < count && other; ++index) {
        const ParameterPlace& place = at.place(index);
        if (place.training == Training::frozen || place.first >= shard_end) continue;
        const std::size_t group = groups_[unit][index];
        const ParameterGroup& own = optimizers_->group(group);
        OptimizerPiece piece{.end = at.shard_numel(),
                             .optimizer = own.optimizer.get(),
                             .learning_rate_factor = own.learning_rate_factor,
                             .skipped_steps = before.of({unit, index})};
        if (piece.skipped_steps >= step)
            throw Error(ExitCode::usage,
                        fmt::format("step {} is made again: unit '{}', parameter '{}' has skipped {} steps", step,
                                    at.spec().name, at.spec().parameters[index].name, piece.skipped_steps));
        if (!groups.empty()) {
            piece.learning_rate = groups[group].learning_rate;
            if (groups[group].optimizer) piece.optimizer = groups[group].optimizer.get();
        }
        if (skipped({unit, index})) piece.optimizer = nullptr;
        // Padding goes with the parameter before it. Who ends before the shard begins has no piece of it.
        if (place.first <= at.shard_first())
            pieces.clear();
        else
            pieces.back().end = place.first - at.shard_first();
        pieces.push_back(piece);
    }
}

TilePieces StepPieces::of(UnitTile tile) const {
    TilePieces pieces = layout_->pieces(tile);
    if (!own_[tile.unit].empty()) pieces.shard = own_[tile.unit];
    return pieces;
}

}  // namespace penstock::zero
