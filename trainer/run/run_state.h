// What a run must know to continue exactly, as the store's client state.
#pragma once

#include "swap/format/manifest.h"

#include <cstdint>
#include <optional>
#include <string>

namespace penstock::trainer {

// Committed with step `step`.
struct RunState {
    std::int64_t step = 0;  // the newest finished one
    std::int64_t rows = 0;  // of data that were seen
    std::string data_hash;
    std::optional<double> first_loss;  // of step 1; nothing at step 0
    std::optional<double> last_loss;   // of `step`
    std::optional<double> last_norm;   // of its gradients, before clipping
};

// How far a run is.
struct RunProgress {
    RunState state;                         // of the newest finished step
    std::optional<std::int64_t> committed;  // the newest committed step; nothing in a scratch run that began anew
};

// A problem, and what of the run is safe all the same.
std::string with_what_is_safe(const std::string& problem, const RunProgress& progress, const std::string& store);

// Writes its keys into `client` (over the configuration's snapshot).
void write_state(const RunState& state, store::ClientState& client);
// Throws Error (storage) when the state was not written by the trainer or by a newer one.
RunState read_state(const store::ClientState& client);

}  // namespace penstock::trainer
