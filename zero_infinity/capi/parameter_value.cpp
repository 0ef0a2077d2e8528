#include "zero_infinity/capi/parameter_value.h"

#include "swap/capi/c_error.h"
#include "swap/capi/c_struct.h"
#include "zero_infinity/capi/c_model.h"

#include <cstring>

namespace penstock::zero {

using store::require;

ParameterValue value_of(const penstock_what& what) {
    const int number = store::number_of(what);
    require(number >= PENSTOCK_WEIGHT && number <= PENSTOCK_MOMENT1, "there is no penstock_what {}", number);
    return static_cast<ParameterValue>(number);
}

const UnitSpec& unit_of(const ModelLayout& layout, std::uint32_t unit) {
    require(unit < layout.unit_count(), "there is no unit {}: the model has {}", unit, layout.unit_count());
    return layout.unit(unit).spec();
}

const ParameterSpec& own_parameter(const ModelLayout& layout, ParameterId parameter) {
    const UnitSpec& of = unit_of(layout, parameter.unit);
    require(parameter.index < of.parameters.size(), "unit '{}' has no parameter {} of its own: it has {}", of.name,
            parameter.index, of.parameters.size());
    return of.parameters[parameter.index];
}

const ParameterSpec& parameter_with(const ModelLayout& layout, ParameterId parameter, ParameterValue value) {
    const ParameterSpec& spec = own_parameter(layout, parameter);
    if (value == ParameterValue::weight) return spec;
    require(spec.training == Training::trainable, "parameter '{}' is frozen: it has its weight only", spec.name);
    const std::uint32_t moments = layout.format().moments;
    const std::uint32_t needed = value == ParameterValue::moment1 ? 2 : value == ParameterValue::moment0 ? 1 : 0;
    require(needed <= moments, "this optimizer keeps {} moments", moments);
    return spec;
}

PlaneType weight_type(const ModelLayout& layout, ParameterId parameter) {
    return layout.unit(parameter.unit).weight_type(own_parameter(layout, parameter).training, layout.format());
}

penstock_place place_of(const ModelLayout& layout, ParameterId parameter) {
    const bool frozen = own_parameter(layout, parameter).training == Training::frozen;
    const ParameterPlace& place = layout.unit(parameter.unit).place(parameter.index);
    const PlaneType type = weight_type(layout, parameter);
    return {.struct_bytes = sizeof(penstock_place),
            .offset_bytes = place.first * bytes_of(type),
            .numel = place.numel,
            .type = type_of(type),
            .frozen = frozen ? 1 : 0};
}

ToMemory::ToMemory(const ModelLayout& layout, ParameterId parameter, ParameterValue value, std::span<std::byte> to)
    : wanted_(&parameter_with(layout, parameter, value)), value_(value), to_(to) {
    const std::uint64_t element =
        value == ParameterValue::weight ? bytes_of(weight_type(layout, parameter)) : sizeof(float);
    require(to.size() == wanted_->numel() * element, "{} bytes for parameter '{}' of {}", to.size(), wanted_->name,
            wanted_->numel() * element);
}

ReadOut ToMemory::what() const {
    return {.values = {value_}, .wanted = [this](const NamedParameter& each) { return &each.spec == wanted_; }};
}

void ToMemory::write(const NamedParameter& /*parameter*/, const ValueStretch& stretch) {
    const std::uint64_t element = bytes_of(stretch.type);
    std::memcpy(to_.data() + stretch.first * element, stretch.data, stretch.numel * element);
}

}  // namespace penstock::zero
