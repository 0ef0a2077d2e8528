// The store that a session trains in: with the newest committed generation of the one that is there, with that of a
// snapshot, or with the first weights.
#pragma once

#include "swap/store/open_store.h"
#include "zero_infinity/memory/residents.h"
#include "zero_infinity/plan/core_options.h"
#include "zero_infinity/session/rank_set.h"
#include "zero_infinity/session/session_info.h"

#include <optional>
#include <string>
#include <vector>

namespace penstock::zero {

// What the store is to hold, and where.
struct ModelStoreDeps {
    store::OpenStore* open = nullptr;  // locked, with an Io
    const ModelLayout* layout = nullptr;
    std::string fingerprint;
    WeightSource* weights = nullptr;       // of a new store
    Communicator* communicator = nullptr;  // of the layout's ranks, who all open
};

struct ModelStore {
    store::TensorStore* store = nullptr;  // of deps.open
    store::ClientState client;            // what the run goes on from
    bool resumed = false;
    std::vector<std::string> notes;  // lines for the log
    // Not empty: the store has no tiles and gets none, because host memory keeps all of them and nothing is committed.
    // Refers to what the opening was given.
    FillResidents fill;
    std::optional<SetMark> mark;  // of several ranks
};

// Polls the Io. Throws Error: usage (a store of another model, codec or optimizer), does_not_fit, storage, and what
// events.recovered throws.
ModelStore open_model_store(const ModelStoreDeps& deps, const CoreOptions& options,
                            const store::ClientState& initial_client, const SessionEvents& events);

}  // namespace penstock::zero
