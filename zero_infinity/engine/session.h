// The composition of everything below a training loop: directory, I/O, store, pool, device, driver, engine, built in
// this order and destroyed in reverse. What `initialize` is to a DeepSpeed user.
#pragma once

#include "aio/io.h"
#include "swap/store/tensor_store.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/engine/engine.h"
#include "zero_infinity/engine/session_options.h"
#include "zero_infinity/plan/memory_plan.h"
#include "zero_infinity/plan/traffic.h"
#include "zero_infinity/ranks/communicator.h"
#include "zero_infinity/weights/read_out.h"
#include "zero_infinity/weights/weight_source.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::engine {

// What a session tells while it is built, on the caller's thread. Any may be empty.
struct SessionEvents {
    // The newest committed client state, before anything else is done with the store; throws Error to refuse the
    // resume.
    std::function<void(const store::ClientState&)> recovered;
    // While a new store is written, or the one that is there verified.
    std::function<void(const char* what, std::uint64_t done_bytes, std::uint64_t total_bytes)> progress;
};

// What a session takes from outside in the place of its own. Each may be null; all outlive it.
struct SessionSeams {
    zero::WeightSource* weights = nullptr;       // of a new store; null: drawn from options.seed
    zero::Communicator* communicator = nullptr;  // null: one rank alone
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

    bool resumed() const noexcept;                      // false: freshly initialised
    const store::ClientState& client() const noexcept;  // of the newest committed generation when the session began

    const aio::IoStatistics& io_statistics() const noexcept;
    const zero::WaitTimes& waits() const noexcept;
    const pool::PinnedPool& pool() const noexcept;
    const pool::Budget& budget() const noexcept;    // the pool's
    std::string memory_table() const;               // one line per use, and the limit
    std::string io_name() const;                    // "io_uring, direct"
    std::uint32_t prefetch_depth() const noexcept;  // what the budget allowed

    // What one training step reads and writes, exactly, from the schedules and the objects; a commit's manifests are on
    // top.
    struct StepBytes {
        std::uint64_t read = 0;
        std::uint64_t write = 0;
        std::uint64_t resident_write = 0;  // on top, in a step that commits: what host memory holds
        double mean(zero::Durability durability) const noexcept;  // read and written over the steps of one commit
    };
    StepBytes step_bytes() const noexcept;
    double planned_bytes() const noexcept;  // step_bytes().mean() of this session's durability
    // The formula's bytes per trainable parameter and step, before what the turn from forward to backward saves.
    zero::Traffic nominal_traffic() const;

    // Gives the newest step, which is committed first, to the sink, by names (zero_infinity/weights/read_out.h). Takes
    // memory for one tile outside the pool. REQUIRES: durable, not within train_batch().
    void read_out(const zero::ReadOut& what, zero::WeightSink& sink);

    // Copies the newest step, which is committed first, into a snapshot in the new directory `path` while training goes
    // on. Progress, end and outcome: see Driver. REQUIRES: options.keeping, durable, no copy is under way.
    void keep(const std::string& path);
    const store::StoreUuid& store_uuid() const noexcept;  // that its snapshots name as their origin
    zero::SnapshotProgress keep_progress() const;
    void finish_keep(const std::function<bool(const zero::SnapshotProgress&)>& wanted);
    std::vector<zero::EndedSnapshot> take_kept();

    // The user's own part of the client state: keys that begin with "user.", committed with every later step and found
    // here again at a resume. What ClientStateOf gives for the same key goes before.
    store::ClientState& user_state() noexcept;

    // Lines for the log that came up since the last call: what fell back and why, a tile that was read twice, …
    std::vector<std::string> take_notes();

   private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace penstock::engine
