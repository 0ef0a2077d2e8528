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
    take_in();
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
    take_in();
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
    take_in();
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
    expect_gradients(unit);
    if (!finite) throw Error(ExitCode::non_finite, non_finite_gradient(tiles_.values.step, name_of_first()));
}

void StepUpdate::expect_gradients(std::uint32_t unit) {
    refuse_missing(work_.gradients.missing(unit));
    pieces_.prepare(unit, tiles_.values.step, groups_, skipped_steps_,
                    [this](ParameterId parameter) { return stays(parameter); });
    note_skipped(unit);
}

std::string StepUpdate::name_of_first() {
    const auto first = work_.gradients.first_non_finite();
    return first ? work_.gradients.name_of(*first) : "their sum";
}

void StepUpdate::leave(const std::vector<std::uint32_t>& units, const std::vector<std::uint32_t>& again) {
    take_in();
    within_ = false;
    for (const std::uint32_t unit : units)
        if (std::find(again.begin(), again.end(), unit) == again.end()) expect_gradients(unit);  // else they were taken
    work_.gradients.lend();
    for (const std::uint32_t unit : again) work_.gradients.lend_again(unit);
    work_.gradients.end_step();
}

void StepUpdate::update(std::uint32_t unit) {
    if (handed_out_.contains(unit)) return end_beside(unit);
    if (within_ && goes_beside(unit)) return hand_out(unit, false);
    take_in();  // the workers are one thread's at a time
    if (within_) take_gradients(unit);
    const std::string bad = update_tiles(work_.driver.take(unit), tiles_);
    if (!bad.empty() && !speculative_) throw Error(ExitCode::non_finite, bad);
    if (bad_value_.empty()) bad_value_ = bad;  // which a clipped gradient may not give
    work_.driver.end_unit();
    work_.gradients.give_back(unit);
}

// Compute's thread, or the other one. Returns what it must refuse, if anything; what is left of the unit is undefined.
std::string StepUpdate::update_tiles(UnitInHand& hand, const TileUpdate& tiles) const {
    std::string found;
    std::vector<TileTurn> turns;
    for (auto staged = hand.next(); !staged.empty(); staged = hand.next()) {
        turns.clear();
        for (const StagedTile& each : staged)
            turns.push_back({each.view, work_.gradients.tile(each.tile, each.gradient), pieces_.of(each.tile)});
        const auto bad = zero::update_tiles(tiles, turns, work_.workers);
        if (bad && found.empty())
            found = refusal(hand.unit(), turns[bad->turn].pieces.first + bad->element, tiles.values.step);
        if (bad && !speculative_) return found;
        hand.put_back();
    }
    return found;
}

// ---------------------------------------------------------------- beside compute

// What is written twice, because a step may be clipped, is on NVMe.
bool StepUpdate::goes_beside(std::uint32_t unit) const {
    return work_.beside && !speculative_ && work_.driver.is_resident(unit);
}

void StepUpdate::begun(const std::vector<std::uint32_t>& units) {
    if (within_ || !std::all_of(units.begin(), units.end(), [&](std::uint32_t unit) { return goes_beside(unit); }))
        return;
    for (const bool stay : {true, false})  // those are waited for before the next forward
        for (const std::uint32_t unit : units)
            if (plan_.layout.stays(unit) == stay) hand_out(unit, true);
}

void StepUpdate::hand_out(std::uint32_t unit, bool ahead) {
    std::optional<Ticket> gradients;
    if (within_) {
        gradients = work_.gradients.begin_lend(unit);
        expect_gradients(unit);
    }
    HandedOut& out =
        handed_out_.emplace(unit, HandedOut{work_.driver.hand_out(unit), tiles_, gradients, 0, ahead}).first->second;
    out.job = work_.beside->post([this, &out] { update_beside(out); });
}

void StepUpdate::update_beside(HandedOut& out) {
    const std::uint32_t unit = out.hand.unit();
    if (out.gradients && !work_.gradients.take_lent(unit, *out.gradients, work_.workers)) {
        const auto first = work_.gradients.first_non_finite(unit);
        throw Error(ExitCode::non_finite,
                    non_finite_gradient(out.tiles.values.step, first ? work_.gradients.name_of(*first) : "their sum"));
    }
    const std::string bad = update_tiles(out.hand, out.tiles);
    if (!bad.empty()) throw Error(ExitCode::non_finite, bad);
}

bool StepUpdate::wait_for(std::span<const std::uint32_t> units) {
    bool any = false;
    for (const std::uint32_t unit : units) {
        const auto out = handed_out_.find(unit);
        if (out == handed_out_.end()) continue;
        work_.beside->wait(out->second.job);
        any = true;
    }
    return any;
}

void StepUpdate::take_in() {
    if (work_.beside) work_.beside->finish();
    end_taken();
}

// The update() of those that were handed out ahead ends them.
void StepUpdate::end_taken() {
    for (auto out = handed_out_.begin(); out != handed_out_.end();) {
        const auto each = out++;
        if (!each->second.ahead) end_beside(each->first);
    }
}

void StepUpdate::end_beside(std::uint32_t unit) {
    const HandedOut& out = handed_out_.at(unit);
    work_.beside->wait(out.job);
    work_.driver.end_unit(out.hand);
    work_.gradients.give_back(unit);
    handed_out_.erase(unit);
}

// ---------------------------------------------------------------- what came of it

std::string StepUpdate::refusal(std::uint32_t unit, std::uint64_t element, std::uint64_t step) const {
    const UnitLayout& layout = plan_.layout.unit(unit);
    return fmt::format(
        "step {} makes unit '{}', parameter '{}' {}; the last committed step is untouched: start a new "
        "run with a lower learning rate",
        step, layout.spec().name, parameter_at(layout, element),
        beyond(*plan_.layout.format().codec, plan_.options.names.codec));
}

bool StepUpdate::clip(const UpdateRequest& request, double gradient_norm) {
    take_in();
    const auto scale = static_cast<float>(clip_factor(gradient_norm, request.clip) / request.loss_scale);
    const bool again = std::exchange(tiles_.gradient_scale, scale) != scale;
    if (!again && !bad_value_.empty()) throw Error(ExitCode::non_finite, bad_value_);
    speculative_ = false;
    return again;
}

void StepUpdate::end() {
    take_in();
    for (const ParameterId parameter : skipped_) skipped_steps_.add(parameter);
    work_.gradients.end_step();
}

}  // namespace penstock::zero
