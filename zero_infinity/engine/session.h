// The composition of everything below a training loop, in three stages: plan (session_plan.h), open, build. Destroyed
// in reverse. What `initialize` is to a DeepSpeed user.
#pragma once

#include "swap/format/manifest.h"
#include "zero_infinity/driver/driver.h"
#include "zero_infinity/engine/engine.h"
#include "zero_infinity/engine/session_options.h"
#include "zero_infinity/plan/traffic.h"
#include "zero_infinity/ranks/communicator.h"
#include "zero_infinity/weights/read_out.h"
#include "zero_infinity/weights/weight_source.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace penstock::engine {

// What a session tells while it is built, on the caller's thread. Any may be empty.
struct SessionEvents {
    // What the run is to go on from, the newest committed client state of the store or snapshot in `directory`, before
    // anything else is done with the store; throws Error to refuse the resume.
    std::function<void(const store::ClientState&, const std::string& directory)> recovered;
    // While a new store is written, or the one that is there verified.
    std::function<void(const char* what, std::uint64_t done_bytes, std::uint64_t total_bytes)> progress;
};

// What a session takes from outside in the place of its own. Each may be null; all outlive it.
struct SessionSeams {
    zero::WeightSource* weights = nullptr;       // of a new store; null: drawn from options.seed
    zero::Communicator* communicator = nullptr;  // null: one rank alone
};

// What stays as it is while the session lives.
struct SessionInfo {
    bool resumed = false;              // false: freshly initialised
    store::ClientState client;         // of the newest committed generation when the session began
    store::StoreUuid store;            // that its snapshots name as their origin
    std::string io;                    // "io_uring, direct"
    std::uint32_t prefetch_depth = 0;  // what the budget allowed
    std::uint64_t pool_budget_bytes = 0;
    std::string memory_table;  // one line per use, and the limit
    zero::StepBytes step_bytes;
    double planned_bytes = 0;  // step_bytes.mean() of this session's durability
    // The formula's bytes per trainable parameter and step, before what the turn from forward to backward saves.
    zero::Traffic nominal_traffic;
};

// What has been counted since the session began.
struct SessionCounters {
    std::uint64_t read_bytes = 0;
    std::uint64_t write_bytes = 0;
    zero::WaitTimes waits;
    std::uint64_t pool_peak_bytes = 0;
    std::uint64_t activation_peak_bytes = 0;  // the largest of StepReport's
};

// All calls on the compute thread. When a device is stuck its destructor keeps everything that the device may still
// write into, so that the process can end and say why.
class Session {
   public:
    // Checks the budget, locks the directories; then resumes the newest committed generation, or initialises the model
    // unit by unit into a new store and commits generation 0 with `initial_client`. Nothing is created before the
    // budget was checked. An optimizer (std::unique_ptr) for all parameters is a ParameterGroups too. Throws Error:
    // usage (also a group that no parameter is in), does_not_fit (with the table of uses), storage, and what
    // events.recovered and seams.weights throw.
    Session(std::unique_ptr<Model> model, zero::ParameterGroups optimizers, SessionOptions options,
            const store::ClientState& initial_client, const SessionEvents& events, const SessionSeams& seams = {});
    ~Session();

    Engine& engine() noexcept;
    const Model& model() const noexcept;
    const SessionInfo& info() const noexcept;
    SessionCounters counters() const;

    // Gives the newest step, which is committed first, to the sink, by names (zero_infinity/weights/read_out.h). Takes
    // memory for one tile outside the pool. REQUIRES: durable, not within train_batch().
    void read_out(const zero::ReadOut& what, zero::WeightSink& sink);

    // Copies the newest step, which is committed first, into a snapshot in the new directory `path` while training goes
    // on. Progress, end and outcome: see Driver. REQUIRES: options.snapshots, durable, no copy is under way.
    void begin_snapshot(const std::string& path);
    zero::SnapshotProgress snapshot_progress() const;
    void finish_snapshot(const std::function<bool(const zero::SnapshotProgress&)>& wanted);
    std::vector<zero::EndedSnapshot> take_snapshots();

    // Lines for the log that came up since the last call: what fell back and why, a tile that was read twice, …
    std::vector<std::string> take_notes();

   private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace penstock::engine
