#include "zero_infinity/gradients/gradient_ledger.h"

#include "aio/words/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace penstock::zero {

GradientLedger::GradientLedger(const ModelLayout& layout) : layout_(&layout), units_(layout.unit_count()) {
    const bool trains = layout.purpose() == Purpose::training;
    for (std::uint32_t index = 0; index < layout.unit_count(); ++index) {
        const UnitSpec& spec = layout.unit(index).spec();
        Unit& unit = units_[index];
        unit.own = spec.parameters.size();
        const auto append = [&](const ParameterSpec& parameter, ParameterId owner) {
            unit.entries.push_back({.owner = owner, .trainable = trains && parameter.training == Training::trainable});
        };
        for (std::uint32_t own = 0; own < unit.own; ++own) append(spec.parameters[own], {index, own});
        for (const BorrowedSpec& borrowed : spec.borrowed)
            append(layout.unit(borrowed.owner).spec().parameters.at(borrowed.parameter),
                   {borrowed.owner, borrowed.parameter});
    }
}

const GradientLedger::Entry& GradientLedger::entry(ParameterId parameter) const {
    const Entry& entry = units_.at(parameter.unit).entries.at(parameter.index);
    PENSTOCK_CHECK(entry.trainable, "unit {}: parameter {} is frozen and has no gradient", parameter.unit,
                   parameter.index);
    return entry;
}

GradientLedger::Entry& GradientLedger::entry(ParameterId parameter) {
    return const_cast<Entry&>(std::as_const(*this).entry(parameter));
}

bool GradientLedger::was_lent_within(std::uint32_t unit) const noexcept {
    const State state = units_[unit].state;
    return state == State::lent_within || state == State::updated_within;
}

bool GradientLedger::has_any(std::uint32_t unit) const {
    const std::vector<Entry>& entries = units_.at(unit).entries;
    return std::any_of(entries.begin(), entries.end(), [](const Entry& entry) { return entry.came; });
}

// ---------------------------------------------------------------- what comes

void GradientLedger::expect(ParameterId parameter) const {
    static_cast<void>(entry(parameter));
    const std::uint32_t unit = parameter.unit;
    PENSTOCK_CHECK(!was_lent_within(unit), "a gradient for unit {}, which was said to have all of them", unit);
    PENSTOCK_CHECK(units_[unit].state != State::lent,
                   "a gradient for unit {}, whose last update was not made: it is to be visited before", unit);
}

bool GradientLedger::add(ParameterId parameter) {
    expect(parameter);
    units_[parameter.unit].state = State::open;
    return !std::exchange(entry(parameter).came, true);
}

bool GradientLedger::clear(ParameterId parameter) {
    Entry& cleared = entry(parameter);
    PENSTOCK_CHECK(!was_lent_within(parameter.unit),
                   "a gradient is cleared of unit {}, which was said to have all of them", parameter.unit);
    State& state = units_[parameter.unit].state;
    if (state == State::counted) state = State::open;
    const bool had = cleared.has();
    cleared.came = cleared.passed_on = false;
    return had;
}

void GradientLedger::clear() {
    for (Unit& unit : units_) {
        for (Entry& entry : unit.entries) entry.came = entry.passed_on = false;
        if (unit.state == State::counted) unit.state = State::open;
    }
}

// ---------------------------------------------------------------- what is borrowed

std::optional<ParameterId> GradientLedger::first_borrowed(std::optional<std::uint32_t> owner) const {
    for (std::uint32_t index = 0; index < units_.size(); ++index) {
        const Unit& unit = units_[index];
        for (std::size_t at = unit.own; at < unit.entries.size(); ++at)
            if (const Entry& entry = unit.entries[at]; entry.came && (!owner || entry.owner.unit == *owner))
                return ParameterId{index, static_cast<std::uint32_t>(at)};
    }
    return std::nullopt;
}

bool GradientLedger::hand_on(ParameterId borrowed) {
    Entry& from = entry(borrowed);
    const bool first = add(from.owner);
    from.came = false;
    return first;
}

// ---------------------------------------------------------------- several ranks

void GradientLedger::pass_on(std::uint32_t unit) {
    for (Entry& entry : units_.at(unit).entries)
        if (std::exchange(entry.came, false)) entry.passed_on = true;
}

bool GradientLedger::has_own(std::uint32_t unit) const {
    const Unit& of = units_.at(unit);
    return std::any_of(of.entries.begin(), of.entries.begin() + static_cast<std::ptrdiff_t>(of.own),
                       [](const Entry& entry) { return entry.has(); });
}

template <typename Units, typename Visit>
void GradientLedger::for_each_own(Units& units, Visit visit) {
    std::size_t bit = 0;
    for (auto& unit : units)
        for (std::size_t at = 0; at < unit.own; ++at)
            if (unit.entries[at].trainable) visit(unit.entries[at], bit++);
}

std::size_t GradientLedger::came_bytes() const {
    std::size_t bits = 0;
    for_each_own(units_, [&](const Entry&, std::size_t) { ++bits; });
    return (bits + 7) / 8;
}

void GradientLedger::say_what_came(std::span<std::byte> bits) const {
    std::fill(bits.begin(), bits.end(), std::byte{});
    for_each_own(units_, [&](const Entry& entry, std::size_t bit) {
        if (entry.has()) bits[bit / 8] |= std::byte{1} << (bit % 8);
    });
}

void GradientLedger::hear_what_came(std::span<const std::byte> bits) {
    for_each_own(units_, [&](Entry& entry, std::size_t bit) {
        if ((bits[bit / 8] & std::byte{1} << (bit % 8)) != std::byte{}) entry.passed_on = true;
    });
}

// ---------------------------------------------------------------- who has the sums

void GradientLedger::count(std::uint32_t unit) {
    State& state = units_.at(unit).state;
    PENSTOCK_CHECK(state == State::open || state == State::counted, "the norm of gradients that an update works with");
    state = State::counted;
}

void GradientLedger::lend_all() {
    for (std::uint32_t unit = 0; unit < units_.size(); ++unit) {
        State& state = units_[unit].state;
        if (state == State::updated_within) continue;
        PENSTOCK_CHECK(state != State::lent_within, "unit {} is lent twice, or has nothing to lend", unit);
        PENSTOCK_CHECK(state == State::counted, "gradients are updated with before their norm");
        state = has_tiles(unit) ? State::lent : State::open;
    }
    clear();
}

void GradientLedger::lend_within(std::uint32_t unit) {
    State& state = units_.at(unit).state;
    PENSTOCK_CHECK((state == State::open || state == State::counted) && has_tiles(unit),
                   "unit {} is lent twice, or has nothing to lend", unit);
    state = State::lent_within;
}

void GradientLedger::give_back(std::uint32_t unit) {
    State& state = units_.at(unit).state;
    PENSTOCK_CHECK(state != State::updated_within, "gradients of unit {} are given back twice", unit);
    if (state == State::lent) state = State::open;
    if (state == State::lent_within) state = State::updated_within;
}

void GradientLedger::lend_again(std::uint32_t unit) {
    State& state = units_.at(unit).state;
    PENSTOCK_CHECK(state == State::updated_within, "unit {} is lent again, but was not given back", unit);
    state = State::lent_within;
}

// What was lent again is read after the step's end, too.
void GradientLedger::end_step() {
    for (std::uint32_t index = 0; index < units_.size(); ++index) {
        if (!was_lent_within(index)) continue;
        Unit& unit = units_[index];
        for (std::size_t at = 0; at < unit.own; ++at) unit.entries[at].came = false;
        unit.state = unit.state == State::lent_within ? State::lent : State::open;
    }
}

void GradientLedger::expect_lent(std::uint32_t unit) const {
    const State state = units_.at(unit).state;
    PENSTOCK_CHECK(state == State::lent || state == State::lent_within,
                   "a tile of gradients of unit {}, which are not lent", unit);
}

// ---------------------------------------------------------------- what is missing

std::optional<std::string> GradientLedger::first_missing() const {
    for (std::uint32_t unit = 0; unit < units_.size(); ++unit) {
        if (was_lent_within(unit)) continue;
        if (auto found = missing(unit)) return found;
    }
    return std::nullopt;
}

std::optional<std::string> GradientLedger::missing(std::uint32_t unit) const {
    const UnitSpec& spec = layout_->unit(unit).spec();
    std::vector<std::string> names;
    for (std::size_t at = 0; at < spec.parameters.size(); ++at)
        if (const Entry& entry = units_[unit].entries[at];
            entry.trainable && !entry.has() && spec.parameters[at].unused == Unused::refused)
            names.push_back(spec.parameters[at].name);
    if (names.empty()) return std::nullopt;
    return fmt::format("unit '{}', parameters '{}'", spec.name, fmt::join(names, "', '"));
}

}  // namespace penstock::zero
