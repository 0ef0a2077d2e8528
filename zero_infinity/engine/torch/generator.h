// torch's default generators, which units draw from that are random while they run: the CPU's, and that of the GPU that
// computes.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace penstock::engine {

// Some 5 KB of the CPU's; where a GPU computes, 16 bytes of its own stand before them.
std::string generator_state(const c10::Device& device);
// Throws Error (storage) when it is not a state of that device's generators. One of a GPU's alone, as it was written
// once, leaves the CPU's as it is.
void set_generator_state(const c10::Device& device, const std::string& state);

}  // namespace penstock::engine
