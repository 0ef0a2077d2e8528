#include "zero_infinity/engine/model.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "zero_infinity/engine/room/out_of_memory.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace penstock::engine {

const Parameter& Unit::declare(std::string name, std::vector<std::int64_t> shape, Initial initial,
                               zero::Training training, Unused unused) {
    parameters_.push_back(
        std::make_unique<Parameter>(zero::ParameterSpec{std::move(name), std::move(shape), training, unused}, initial));
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

namespace {

void each_parameter(const Unit& unit, const std::function<void(const Parameter&)>& visit) {
    for (const auto& parameter : unit.parameters()) visit(*parameter);
    for (const Borrowed& borrowed : unit.borrowed()) visit(*borrowed.parameter);
}

// Torch counts how often a tensor's memory was changed in place, through whichever view.
std::uint32_t version_of(const at::Tensor& tensor) {
    return tensor.defined() && !tensor.is_inference() ? tensor._version() : 0;
}

std::vector<std::uint32_t> versions_of(const Unit& unit, const Bundle& input) {
    std::vector<std::uint32_t> versions;
    for (const auto& [name, tensor] : input) versions.push_back(version_of(tensor));
    each_parameter(unit, [&](const Parameter& parameter) { versions.push_back(version_of(parameter.tensor())); });
    return versions;
}

void check_unchanged(const Unit& unit, const Bundle& input, const std::vector<std::uint32_t>& before) {
    auto version = before.begin();
    for (const auto& [name, tensor] : input)
        if (version_of(tensor) != *version++)
            throw Error(ExitCode::internal,
                        fmt::format("unit '{}' changes its input '{}' in place, which is the caller's and is needed "
                                    "again for the gradient: change a copy (clone())",
                                    unit.name(), name));
    each_parameter(unit, [&](const Parameter& parameter) {
        if (version_of(parameter.tensor()) != *version++)
            throw Error(ExitCode::internal, fmt::format("unit '{}' changes its parameter '{}' in place, which only the "
                                                        "update may: change a copy (clone())",
                                                        unit.name(), parameter.spec().name));
    });
}

// A view of a parameter would read memory that is gone when the next unit uses it.
void check_no_views(const Unit& unit, const Bundle& output) {
    each_parameter(unit, [&](const Parameter& parameter) {
        for (const auto& [name, tensor] : output)
            if (tensor.defined() && tensor.is_alias_of(parameter.tensor()))
                throw Error(ExitCode::internal,
                            fmt::format("unit '{}' returns '{}', a view of its parameter '{}': return a copy (clone())",
                                        unit.name(), name, parameter.spec().name));
    });
}

}  // namespace

Bundle Unit::run(const Bundle& input) const {
    const std::vector<std::uint32_t> versions = versions_of(*this, input);
    Bundle output;
    try {
        output = forward(input);
    } catch (const c10::Error& error) {
        if (is_out_of_memory(error)) throw;
        throw Error(ExitCode::internal, fmt::format("unit '{}': torch refuses what its forward() does: {}", name_,
                                                    error.what_without_backtrace()));
    }
    check_unchanged(*this, input, versions);
    check_no_views(*this, output);
    return output;
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

std::vector<zero::UnitSpec> Model::specs() const {
    std::vector<zero::UnitSpec> specs;
    for (const auto& unit : units_) {
        specs.push_back(unit->spec());
        for (const Borrowed& borrowed : unit->borrowed()) {
            const auto& all = borrowed.owner->parameters();
            const auto at = std::find_if(all.begin(), all.end(),
                                         [&](const auto& each) { return each.get() == borrowed.parameter; });
            specs.back().borrowed.push_back({index_of(*borrowed.owner), static_cast<std::uint32_t>(at - all.begin())});
        }
    }
    return specs;
}

std::uint32_t Model::index_of(const Unit& unit) const {
    const auto found =
        std::find_if(units_.begin(), units_.end(), [&](const auto& each) { return each.get() == &unit; });
    PENSTOCK_CHECK(found != units_.end(), "unit '{}' is not part of the model", unit.name());
    return static_cast<std::uint32_t>(found - units_.begin());
}

std::uint64_t Model::parameter_numel() const {
    return zero::count_parameters(specs()).all;
}

std::uint64_t Model::trainable_numel() const {
    return zero::count_parameters(specs()).trainable;
}

}  // namespace penstock::engine
