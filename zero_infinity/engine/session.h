// A torch model in a core session, with the engine that trains it. What `initialize` is to a DeepSpeed user.
#pragma once

#include "swap/format/manifest.h"
#include "zero_infinity/engine/engine.h"
#include "zero_infinity/engine/session_options.h"
#include "zero_infinity/session/core_session.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace penstock::engine {

using zero::SessionCounters;
using zero::SessionEvents;
using zero::SessionInfo;
using zero::SessionSeams;

// All calls on the compute thread, after an exception as CoreSession's.
class Session {
   public:
    // As CoreSession's, of the model's units; a new model is drawn from options.seed where seams.weights is null. An
    // optimizer (std::unique_ptr) for all parameters is a ParameterGroups too.
    Session(std::unique_ptr<Model> model, zero::ParameterGroups optimizers, SessionOptions options,
            const store::ClientState& initial_client, const SessionEvents& events, const SessionSeams& seams = {});
    ~Session();

    Engine& engine() noexcept;
    const Model& model() const noexcept;
    const SessionInfo& info() const noexcept;
    SessionCounters counters() const;

    // CoreSession's.
    void read_out(const zero::ReadOut& what, zero::WeightSink& sink);
    void begin_snapshot(const std::string& path);
    zero::SnapshotProgress snapshot_progress() const;
    void finish_snapshot(const std::function<bool(const zero::SnapshotProgress&)>& wanted);
    std::vector<zero::EndedSnapshot> take_snapshots();

    // Lines for the log that came up since the last call: what fell back and why, a tile that was read twice, …
    std::vector<std::string> take_notes();
    zero::Communicator& ranks() noexcept;

   private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace penstock::engine
