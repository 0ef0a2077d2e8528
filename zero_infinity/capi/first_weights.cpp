#include "zero_infinity/capi/first_weights.h"

#include "swap/capi/c_error.h"

#include <fmt/format.h>

namespace penstock::zero {

using store::Refusal;
using store::require;

void FirstWeights::check(std::span<const UnitLayout>) {
    require(options_.first_weights != nullptr, "options.first_weights is NULL, and there is no store to go on from");
}

void FirstWeights::read(const NamedParameter& parameter, std::uint64_t first, std::span<float> values) {
    const std::uint32_t unit = index_of(parameter.unit);
    const auto index = static_cast<std::uint32_t>(&parameter.spec - parameter.unit.parameters.data());
    penstock_error error{};
    const penstock_status status =
        options_.first_weights(unit, index, first, values.size(), values.data(), &error, options_.user);
    if (status == PENSTOCK_OK) return;
    error.message[sizeof error.message - 1] = '\0';
    throw Refusal(status, error.message[0] != '\0'
                              ? error.message
                              : fmt::format("the first weights of '{}' were refused", parameter.name()));
}

// Stretches come unit by unit.
std::uint32_t FirstWeights::index_of(const UnitSpec& unit) {
    while (model_.units[unit_].name != unit.name) unit_ = (unit_ + 1) % model_.units.size();
    return static_cast<std::uint32_t>(unit_);
}

}  // namespace penstock::zero
