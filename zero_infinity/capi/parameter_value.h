// A value of a parameter as a caller of the C interface names it, by indices: refused, or found.
#pragma once

#include "zero_infinity/capi/penstock_session.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/weights/read_out.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock::zero {

// All throw store::Refusal (usage).
ParameterValue value_of(const penstock_what& what);
const UnitSpec& unit_of(const ModelLayout& layout, std::uint32_t unit);
const ParameterSpec& own_parameter(const ModelLayout& layout, ParameterId parameter);  // refuses borrowed ones
const ParameterSpec& parameter_with(const ModelLayout& layout, ParameterId parameter, ParameterValue value);
PlaneType weight_type(const ModelLayout& layout, ParameterId parameter);
penstock_place place_of(const ModelLayout& layout, ParameterId parameter);

// All elements of one value, to the caller's memory. `layout` and the memory outlive it.
class ToMemory final : public WeightSink {
   public:
    // Refusal: also of memory of another size.
    ToMemory(const ModelLayout& layout, ParameterId parameter, ParameterValue value, std::span<std::byte> to);
    ReadOut what() const;  // that goes there
    void write(const NamedParameter& parameter, const ValueStretch& stretch) override;

   private:
    const ParameterSpec* wanted_;
    ParameterValue value_;
    std::span<std::byte> to_;
};

}  // namespace penstock::zero
