// A parameter whose memory comes and goes: the tensor stays, its storage is pointed at the gathered weights and
// cleared.
#pragma once

#include "zero_infinity/layout/unit.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>

namespace penstock::engine {

// How a parameter is drawn before the first step, in fp32, by a generator of its own (seed, unit, parameter): the order
// of initialisation does not matter.
struct Initial {
    enum class Kind : std::uint8_t { zeros, ones, normal } kind = Kind::zeros;
    double deviation = 0;  // of normal, mean 0
    static Initial zeros() { return {Kind::zeros, 0}; }
    static Initial ones() { return {Kind::ones, 0}; }
    static Initial normal(double deviation) { return {Kind::normal, deviation}; }
};

using zero::Unused;

// Owned by its unit; used on the compute thread only.
class Parameter {
   public:
    Parameter(zero::ParameterSpec spec, Initial initial) : spec_(std::move(spec)), initial_(initial) {}
    Parameter(const Parameter&) = delete;
    Parameter& operator=(const Parameter&) = delete;

    const zero::ParameterSpec& spec() const noexcept { return spec_; }
    Initial initial() const noexcept { return initial_; }

    // The weights. REQUIRES: bound (checked: elementwise kernels on a released parameter would crash).
    const at::Tensor& tensor() const;

    enum class State : std::uint8_t {
        meta,      // shape only, no tensor yet
        released,  // a tensor without memory
        bound,     // a tensor over memory of the driver's window
    };
    State state() const noexcept { return state_; }

    void materialise(at::ScalarType type, at::Device device);  // meta → released
    void bind(std::byte* data);                                // released → bound
    void release() noexcept;                                   // bound → released; views and saved tensors follow

   private:
    zero::ParameterSpec spec_;
    Initial initial_;
    State state_ = State::meta;
    at::Tensor tensor_;
};

}  // namespace penstock::engine
