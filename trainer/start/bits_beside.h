// What decides a run's bits beside its configuration and this program: the processor, the libraries that compute, and
// what the environment asks of them.
#pragma once

#include "swap/format/manifest.h"
#include "zero_infinity/device/device.h"

#include <string>
#include <vector>

namespace penstock::trainer {

// As they are now, as "bits.NAME" → text, for the client state; "not set" for a variable that is not.
store::ClientState bits_beside(zero::DeviceKind device);

// One line for each that differs from what a checkpoint holds. One that the checkpoint does not know is not compared.
std::vector<std::string> changed_bits(const store::ClientState& stored, const store::ClientState& now);

}  // namespace penstock::trainer
