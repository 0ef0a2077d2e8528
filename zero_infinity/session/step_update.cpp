#include "zero_infinity/session/step_update.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "zero_infinity/optimizer/gradient.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace penstock::zero {
namespace {

std::string parameter_at(const UnitLayout& layout, std::uint64_t element_of_shard) {
    const std::uint64_t element = layout.shard_first() + element_of_shard;
    for (std::size_t index = 0; index < layout.spec().parameters.size(); ++index) {
        const ParameterPlace& place = layout.place(index);
        if (place.training == Training::trainable && element >= place.first && element < place.first + place.numel)
            return layout.spec().parameters[index].name;
    }
    return "padding";
}

// What a value is that an update refuses.
std::string beyond(const Codec& codec, const std::string& setting) {
    return codec.exact ? "infinite or NaN"
                       : fmt::format("infinite, NaN or larger than codec '{}' holds ({})", codec.name, setting);
}

void refuse_missing(const std::optional<std::string>& missing) {
    if (missing)
        throw Error(ExitCode::usage, fmt::format("no gradient came to {}: the loss does not depend on them. Use them, "
                                                 "freeze them, or say that a step may do without",
                                                 *missing));
}

}  // namespace

std::string non_finite_gradient(std::uint64_t step, const std::string& where) {
    return fmt::format("the gradient of step {} is not finite, first in {}; the last committed step is untouched", step,
                       where);
}

StepUpdate::StepUpdate(const SessionPlan& plan, SessionWork& work, SkippedSteps& skipped_steps)
    : plan_(plan), work_(work), skipped_steps_(skipped_steps), pieces_(plan.layout, plan.model.optimizers) {}

bool StepUpdate::stays(ParameterId parameter) const {
    return plan_.layout.unit(parameter.unit).spec().parameters[parameter.index].unused == Unused::skipped &&
           work_.gradients.is_fresh(parameter);
}

bool StepUpdate::stays(std::uint32_t unit) const {
    const UnitLayout& layout = plan_.layout.unit(unit);
    for (std::uint32_t index = 0; index < layout.spec().parameters.size(); ++index)
        if (layout.place(index).training == Training::trainable && !stays({unit, index})) return false;
    return true;
}

void StepUpdate::check(const UpdateRequest& request) {
    refuse_missing(work_.gradients.first_missing());
    PENSTOCK_CHECK(request.loss_scale > 0, "a loss scale of {}", request.loss_scale);
    pieces_.prepare(request.values.step, request.groups, skipped_steps_,
                    [this](ParameterId parameter) { return stays(parameter); });
}

void StepUpdate::check(std::span<const GroupValues> groups) const {
    pieces_.check(groups);
}

void StepUpdate::set_values(const UpdateRequest& request, double scale) {
    groups_.assign(request.groups.begin(), request.groups.end());
    tiles_ = {.format = &plan_.layout.format(), .values = request.values, .gradient_scale = static_cast<float>(scale)};
    skipped_.clear();
}

void StepUpdate::begin(const UpdateRequest& request, double gradient_norm, const std::vector<std::uint32_t>& units) {
    within_ = speculative_ = false;
    set_values(request, clip_factor(gradient_norm, request.clip) / request.loss_scale);
    pieces_.prepare(request.values.step, groups_, skipped_steps_,
                    [this](ParameterId parameter) { return stays(parameter); });
    for (std::uint32_t unit = 0; unit < plan_.layout.unit_count(); ++unit) note_skipped(unit);
    work_.gradients.lend();
    for (std::uint32_t unit = 0; unit < plan_.layout.unit_count(); ++unit)
        if (std::find(units.begin(), units.end(), unit) == units.end()) work_.gradients.give_back(unit);
}

void StepUpdate::begin_within(const UpdateRequest& request) {
    within_ = true;
    speculative_ = request.clip > 0;
    bad_value_.clear();
    set_values(request, 1 / request.loss_scale);
}

void StepUpdate::note_skipped(std::uint32_t unit) {
    const UnitLayout& layout = plan_.layout.unit(unit);
    for (std::uint32_t index = 0; index < layout.spec().parameters.size(); ++index)
        if (layout.place(index).training == Training::trainable && stays({unit, index}))
            skipped_.push_back({unit, index});
}

void StepUpdate::take_gradients(std::uint32_t unit) {
    const bool finite = work_.gradients.lend(unit, work_.workers);
    refuse_missing(work_.gradients.missing(unit));
    pieces_.prepare(unit, tiles_.values.step, groups_, skipped_steps_,
                    [this](ParameterId parameter) { return stays(parameter); });
    note_skipped(unit);
    if (!finite) throw Error(ExitCode::non_finite, non_finite_gradient(tiles_.values.step, name_of_first()));
}

std::string StepUpdate::name_of_first() {
    const auto first = work_.gradients.first_non_finite();
    return first ? work_.gradients.name_of(*first) : "their sum";
}

void StepUpdate::leave(const std::vector<std::uint32_t>& units, const std::vector<std::uint32_t>& again) {
    within_ = false;
    for (const std::uint32_t unit : units) {
        if (std::find(again.begin(), again.end(), unit) != again.end()) continue;  // its gradients were taken
        refuse_missing(work_.gradients.missing(unit));
        pieces_.prepare(unit, tiles_.values.step, groups_, skipped_steps_,
                        [this](ParameterId parameter) { return stays(parameter); });
        note_skipped(unit);
    }
    work_.gradients.lend();
    for (const std::uint32_t unit : again) work_.gradients.lend_again(unit);
    work_.gradients.end_step();
}

void StepUpdate::update(std::uint32_t unit) {
    if (within_) take_gradients(unit);
    update_tiles(unit);
}

void StepUpdate::update_tiles(std::uint32_t unit) {
    UnitInHand& hand = work_.driver.take(unit);
    for (auto staged = hand.next(); !staged.empty(); staged = hand.next()) {
        turns_.clear();
        for (const StagedTile& each : staged)
            turns_.push_back({each.view, work_.gradients.tile(each.tile, each.gradient), pieces_.of(each.tile)});
        if (const auto bad = zero::update_tiles(tiles_, turns_, work_.workers)) {
            const std::string found = refusal(unit, turns_[bad->turn].pieces.first + bad->element);
            if (!speculative_) throw Error(ExitCode::non_finite, found);
            if (bad_value_.empty()) bad_value_ = found;  // which a clipped gradient may not give
        }
        hand.put_back();
    }
    work_.driver.end_unit();
    work_.gradients.give_back(unit);
}

std::string StepUpdate::refusal(std::uint32_t unit, std::uint64_t element) const {
    const UnitLayout& layout = plan_.layout.unit(unit);
    return fmt::format(
        "step {} makes unit '{}', parameter '{}' {}; the last committed step is untouched: start a new "
        "run with a lower learning rate",
        tiles_.values.step, layout.spec().name, parameter_at(layout, element),
        beyond(*plan_.layout.format().codec, plan_.options.names.codec));
}

bool StepUpdate::clip(const UpdateRequest& request, double gradient_norm) {
    const auto scale = static_cast<float>(clip_factor(gradient_norm, request.clip) / request.loss_scale);
    const bool again = std::exchange(tiles_.gradient_scale, scale) != scale;
    if (!again && !bad_value_.empty()) throw Error(ExitCode::non_finite, bad_value_);
    speculative_ = false;
    return again;
}

void StepUpdate::end() {
    for (const ParameterId parameter : skipped_) skipped_steps_.add(parameter);
    work_.gradients.end_step();
}

}  // namespace penstock::zero
