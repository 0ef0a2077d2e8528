// A training run that is open: its configuration, data, directory and session, resumed or new.
#pragma once

#include "trainer/config/config.h"
#include "trainer/config/resume_rule.h"
#include "trainer/data/batches.h"
#include "trainer/data/token_file.h"
#include "trainer/plan/step_activations.h"
#include "trainer/ranks/run_ranks.h"
#include "trainer/run/run_directory.h"
#include "trainer/run/run_state.h"
#include "zero_infinity/engine/session.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::trainer {

class Console;

// Where a run goes on, unless it is new.
struct WhereFrom {
    // Names a snapshot (trainer/ckpt/find_snapshot.h), which a run that went on from it before does not go back to.
    // Empty: the store's newest commit, unless the run's log reports a later one.
    std::string resume_from;
    bool go_back = false;             // all the same
    std::vector<std::string> change;  // keys whose values may differ from the run's before, though that changes results
};

// Compute thread. Stays where it is made. After an exception of the session it may only be destroyed. Of several ranks
// each has one, with a store of its own; run.directory is rank 0's.
class OpenedRun {
   public:
    // Checks the data, opens the store, resumes or initialises, and says what it found. The ranks outlive it. Throws
    // Error: usage (data, a key that differs at a resume and is not to, ranks that differ), does_not_fit, storage (also
    // a store that is older than the run's log, or gone).
    OpenedRun(TrainConfig config, WhereFrom from, RunRanks& ranks, Console& console);
    OpenedRun(const OpenedRun&) = delete;
    OpenedRun& operator=(const OpenedRun&) = delete;

    const TrainConfig& config() const noexcept { return config_; }
    RunRanks& ranks() const noexcept { return ranks_; }
    const RunDirectory& directory() const { return directory_.value(); }  // REQUIRES: ranks().speaks()
    const RunProgress& start() const noexcept { return start_; }          // where it goes on
    Batches& batches() noexcept { return batches_; }
    engine::Session& session() noexcept { return *session_; }
    at::Device device() const;  // where compute reads

    // What is committed with a step beside weights and states: the state, and the configuration that must not change.
    store::ClientState client_state(const RunState& state) const;

   private:
    void open(Console& console);
    void adopt_directory(Console& console);
    std::unique_ptr<engine::Session> open_session(Console& console);
    engine::SessionOptions session_options(Console& console);
    void accept(const store::ClientState& stored, const std::string& place);
    std::vector<Difference> check_settings(const store::ClientState& stored, const RunState& state,
                                           const std::string& place);
    RunState first_state() const;
    void check_log(const RunState& state);
    void check_log_of_new_run() const;
    std::string what_else_helps() const;
    void check_room_for_activations() const;
    void say_start(Console& console);
    void say_activations(Console& console) const;

    // Built in this order and destroyed in reverse.
    RunRanks& ranks_;
    TrainConfig config_;
    std::string store_directory_;  // of this rank
    zero::ShelfBytes away_;        // of activations, in a step whose graphs are not kept
    WhereFrom from_;
    TokenFile data_;
    Batches batches_;
    unsigned cores_ = 1;         // for this rank's arithmetic
    std::uint32_t sharing_ = 1;  // ranks on this machine
    unsigned threads_ = 1;
    std::optional<RunDirectory> directory_;   // rank 0's
    StoreSeen own_;                           // of the run, before the session opened it
    store::ClientState bits_;                 // what decides them beside the configuration
    std::optional<store::StoreUuid> origin_;  // of the snapshot that the run goes on from
    std::vector<std::string> notes_;          // on what is gone on from, said when it has been
    std::vector<std::string> warnings_;
    std::unique_ptr<engine::Session> session_;
    RunProgress start_;
};

}  // namespace penstock::trainer
