// torch's default generator, which units draw from that are random while they run.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace penstock::engine {

// Of the CPU, or of the GPU that computes: some 5 KB, or 16 bytes.
std::string generator_state(const c10::Device& device);
// Throws Error (storage) when it is not a state of that device's generator.
void set_generator_state(const c10::Device& device, const std::string& state);

}  // namespace penstock::engine
