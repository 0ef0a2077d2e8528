#include "zero_infinity/order/step_order.h"

#include "aio/words/check.h"
#include "zero_infinity/order/update_sequence.h"

#include <algorithm>
#include <utility>

namespace penstock::zero {

namespace {

StepRules of_each_unit(StepRules rules, std::size_t units) {
    if (rules.deferred.empty()) rules.deferred.resize(units);
    return rules;
}

}  // namespace

StepOrder::StepOrder(const ModelLayout& layout, StepRules rules, StepHands& hands)
    : layout_(layout),
      rules_(of_each_unit(std::move(rules), layout.unit_count())),
      hands_(hands),
      awaiting_(layout.unit_count()) {
    PENSTOCK_CHECK(rules_.deferred.size() == layout.unit_count(), "{} units are deferred or not, of {}",
                   rules_.deferred.size(), layout.unit_count());
}

std::optional<std::uint32_t> StepOrder::next() const noexcept {
    return first_ == units_.size() ? std::nullopt : std::optional(units_[first_]);
}

// ---------------------------------------------------------------- a step that is begun before its gradients

// With clipping it may have to be undone: then what was before it must be committed, or will be when its pass begins.
bool StepOrder::may_begin(bool clips) const noexcept {
    if (rules_.order != UpdateOrder::within) return false;
    return !clips || (rules_.undoes && (committed_ || committing_ || (commits_ && next())));
}

void StepOrder::note_clip(bool clipped) noexcept {
    clipped_in_a_row_ = clipped ? std::min(clipped_in_a_row_ + 1, a_run_of_clips) : 0;
}

void StepOrder::begin(bool commits) {
    PENSTOCK_CHECK(!within_, "a step is begun within another one");
    within_ = Within{.commits = commits};
    if (!next() && !committing_) return update_within();
    const std::vector<std::uint32_t> units = updated_within();
    if (!units.empty()) within_->first = units.front();
}

std::vector<std::uint32_t> StepOrder::updated_within() const {
    return those_of(in_order_of_leaving(layout_, hands_.expected()), rules_.deferred, false);
}

// REQUIRES: no unit awaits its update.
void StepOrder::update_within() {
    if (committing_) finish();
    within_->updates = true;
    begin_update({.of = BegunUpdate::Of::within, .units = updated_within(), .again = {}, .commits = within_->commits});
}

// ---------------------------------------------------------------- within a pass

void StepOrder::arrive(std::span<const std::uint32_t> units) {
    for (const std::uint32_t unit : units)
        if (owes(unit)) update_unit(unit);
    const bool first_comes = within_ && std::find(units.begin(), units.end(), within_->first) != units.end();
    if (first_comes && !updates_within() && !next()) update_within();
    hands_.arrived(units);
}

Departure StepOrder::depart(std::uint32_t unit) {
    if (!within_) return Departure::left;
    if (layout_.stays(unit)) return Departure::kept;
    if (!within_->updates) {
        if (next()) return Departure::left;  // of the step before: not in this pass
        update_within();
    }
    if (!awaits(unit)) return Departure::left;
    update_unit(unit);
    within_->updated.push_back(unit);
    return Departure::updated;
}

// ---------------------------------------------------------------- between passes

void StepOrder::finish() {
    if (updates_within()) return;
    update_all();
    if (!committing_) return hands_.finish_writes();
    hands_.finish_commit();
    committing_ = false;
    committed_ = true;
}

Ended StepOrder::end(bool commits, const std::vector<bool>& changed) {
    PENSTOCK_CHECK(!within_, "a step ends as if it had not been begun");
    std::vector<std::uint32_t> units =
        in_order_of_visits(layout_, defers() ? hands_.expected() : std::span<const Visit>());
    const std::vector<std::uint32_t> changing = those_of(units, changed, true);
    if (!changing.empty()) units = changing;  // else nobody's end would be the step's
    committed_ = false;
    begin_update({.of = BegunUpdate::Of::step, .units = std::move(units), .again = {}, .commits = commits});
    update_residents();
    if (defers()) return Ended::deferred;
    update_all();
    return Ended::whole;
}

Ended StepOrder::end_begun(bool clipped) {
    PENSTOCK_CHECK(updates_within(), "a step ends as if its units had been updated within its pass");
    committed_ = false;
    update_all();
    hands_.end_of_residents();
    std::vector<bool> left = rules_.deferred;
    const bool again = clipped && !within_->updated.empty();
    const bool leaves = again || defers();
    const Within done = *std::exchange(within_, std::nullopt);
    if (!leaves) {
        end_of_step();
        return Ended::whole;
    }
    if (again) {
        hands_.finish_writes();
        hands_.undo(done.updated);
        for (const std::uint32_t unit : done.updated) left[unit] = true;
    }
    begin_update({.of = BegunUpdate::Of::rest,
                  .units = those_of(in_order_of_visits(layout_, hands_.expected()), left, true),
                  .again = again ? done.updated : std::vector<std::uint32_t>(),
                  .commits = done.commits});
    return again ? Ended::again : Ended::deferred;
}

void StepOrder::commit() {
    begin_commit();
    finish();
}

// ---------------------------------------------------------------- the update under way

// The step that is to be updated, or some units of it.
bool StepOrder::defers() const noexcept {
    if (!within_) return rules_.order == UpdateOrder::deferred || rules_.defers_others;
    return std::find(rules_.deferred.begin(), rules_.deferred.end(), true) != rules_.deferred.end();
}

void StepOrder::begin_update(BegunUpdate update) {
    PENSTOCK_CHECK(!next() && !committing_, "an update begins within another update or a commit");
    units_ = update.units;
    for (const std::uint32_t unit : units_) awaiting_[unit] = true;
    at_ = update.at();
    first_ = 0;
    commits_ = update.commits;
    hands_.begin(update);
}

void StepOrder::update_unit(std::uint32_t unit) {
    hands_.update(unit);
    awaiting_[unit] = false;
    while (first_ < units_.size() && !awaiting_[units_[first_]]) ++first_;
    if (!updates_within() && !next()) end_of_step();
}

// They come first.
void StepOrder::update_residents() {
    bool any = false;
    for (const std::uint32_t unit : std::vector(units_)) {
        if (!layout_.stays(unit)) break;
        update_unit(unit);
        any = true;
    }
    if (any) hands_.end_of_residents();
}

void StepOrder::update_all() {
    while (const auto unit = next()) update_unit(*unit);
}

void StepOrder::end_of_step() {
    hands_.end_of_step();
    if (commits_) begin_commit();
}

void StepOrder::begin_commit() {
    committing_ = true;
    hands_.begin_commit();
}

}  // namespace penstock::zero
