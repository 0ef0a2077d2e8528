#include "zero_infinity/engine/model.h"

#include "aio/words/check.h"
#include "aio/words/error.h"

#include <algorithm>

namespace penstock::engine {

const Parameter& Unit::declare(std::string name, std::vector<std::int64_t> shape, Initial initial,
                               zero::Training training) {
    parameters_.push_back(
        std::make_unique<Parameter>(zero::ParameterSpec{std::move(name), std::move(shape), training}, initial));
    return *parameters_.back();
}

const Parameter& Unit::borrow(const Unit& owner, const Parameter& parameter) {
    for (const Borrowed& earlier : borrowed_)
        PENSTOCK_CHECK(earlier.parameter != &parameter, "unit '{}' borrows '{}' twice", name_, parameter.spec().name);
    for (const auto& owned : owner.parameters_) {
        if (owned.get() != &parameter) continue;
        borrowed_.push_back({&owner, owned.get()});
        return parameter;
    }
    PENSTOCK_CHECK(false, "unit '{}' borrows a parameter that '{}' does not have", name_, owner.name());
}

zero::UnitSpec Unit::spec() const {
    zero::UnitSpec spec{name_, {}};
    for (const auto& parameter : parameters_) spec.parameters.push_back(parameter->spec());
    return spec;
}

Model::Model(std::vector<std::unique_ptr<Unit>> units) : units_(std::move(units)) {
    if (units_.empty()) throw Error(ExitCode::usage, "the model has no units");
    for (std::uint32_t index = 0; index < units_.size(); ++index) {
        const Unit& unit = *units_[index];
        for (std::uint32_t earlier = 0; earlier < index; ++earlier)
            if (units_[earlier]->name() == unit.name())
                throw Error(ExitCode::usage, fmt::format("two units of the model are called '{}'", unit.name()));
        for (const Borrowed& borrowed : unit.borrowed())
            if (!comes_before(borrowed.owner, index))
                throw Error(ExitCode::usage, fmt::format("unit '{}' borrows from '{}', which does not come before it",
                                                         unit.name(), borrowed.owner->name()));
    }
}

bool Model::comes_before(const Unit* unit, std::uint32_t index) const {
    return std::any_of(units_.begin(), units_.begin() + index, [&](const auto& each) { return each.get() == unit; });
}

std::uint32_t Model::index_of(const Unit& unit) const {
    const auto found =
        std::find_if(units_.begin(), units_.end(), [&](const auto& each) { return each.get() == &unit; });
    PENSTOCK_CHECK(found != units_.end(), "unit '{}' is not part of the model", unit.name());
    return static_cast<std::uint32_t>(found - units_.begin());
}

std::uint64_t Model::parameter_numel() const noexcept {
    std::uint64_t numel = 0;
    for (const auto& unit : units_)
        for (const auto& parameter : unit->parameters()) numel += parameter->spec().numel();
    return numel;
}

std::uint64_t Model::trainable_numel() const noexcept {
    std::uint64_t numel = 0;
    for (const auto& unit : units_)
        for (const auto& parameter : unit->parameters())
            if (parameter->spec().training == zero::Training::trainable) numel += parameter->spec().numel();
    return numel;
}

}  // namespace penstock::engine
