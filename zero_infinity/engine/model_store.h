// The store that a session trains in: with the newest committed generation of the one that is there, with that of a
// snapshot, or with the first weights.
#pragma once

#include "swap/store_directory.h"
#include "zero_infinity/engine/session.h"

#include <memory>
#include <string>
#include <vector>

namespace penstock {

// What the store is to hold, and where.
struct ModelStoreParts {
    Io* io = nullptr;
    std::vector<StoreDirectory*> directories;
    const Model* model = nullptr;
    const std::vector<UnitLayout>* layouts = nullptr;
    StateFormat format;
    const std::vector<std::vector<OptimizerPiece>>* pieces = nullptr;  // [unit]
    std::string fingerprint;
};

struct ModelStore {
    std::unique_ptr<TensorStore> store;
    ClientState client;  // what the run goes on from
    bool resumed = false;
    std::vector<std::string> notes;  // lines for the log
};

// Polls the Io. Throws Error: usage (a store of another model, codec or optimizer), does_not_fit, storage, and what
// events.recovered throws.
ModelStore open_model_store(const ModelStoreParts& parts, const SessionOptions& options,
                            const ClientState& initial_client, const SessionEvents& events);

}  // namespace penstock
