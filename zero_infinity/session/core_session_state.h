// What a session holds, and what its calls are made of: passes, steps and commits.
#pragma once

#include "aio/words/check.h"
#include "zero_infinity/plan/visit_order.h"
#include "zero_infinity/ranks/commit_barrier.h"
#include "zero_infinity/session/core_session.h"
#include "zero_infinity/session/session_parts.h"
#include "zero_infinity/session/step_update.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace penstock::zero {

// The stages that were reached, each whole. They are given back in reverse; but kept for ever when something is under
// way that does not come back: until the process ends the device may write into them.
struct CoreSession::State {
    explicit State(Communicator* given) : communicator(given != nullptr ? given : &alone), barrier(*communicator) {}
    ~State();
    void end() noexcept;
    bool stuck();
    bool is_durable() const noexcept { return plan->options.durability != Durability::scratch; }
    void settle();
    void restore();
    void expect_pass(Pass pass, const PassVisits& visits);
    void check_user_keys() const;
    void add_borrowed();
    void begin_update(const UpdateRequest& request, double norm);
    std::vector<std::uint32_t> units_to_update(std::vector<std::uint32_t> units) const;
    void update_unit(std::uint32_t unit);
    void begin_writes(const std::vector<std::uint32_t>& units, UpdateAt at, GradientsFrom gradients);
    bool is_within() const noexcept { return step_within && step_within->updates; }
    bool defers() const noexcept;
    bool owes_update(std::uint32_t unit) const noexcept { return !is_within() && work->driver.awaits_update(unit); }
    void make_update_that_is_owed(std::uint32_t unit);
    bool all_is_committed_or_will_be() const noexcept;
    void begin_step(const UpdateRequest& request);
    bool may_update_within() const;
    void update_within();
    void finish_update();
    bool finish_step(const UpdateRequest& request, double gradient_norm);
    void end_of_units();
    double norm_of_gradients();
    store::ClientState client_with(const store::ClientState& user_of_step) const;
    void begin_commit(const store::ClientState& user_of_step);
    void finish_commit();

    // Runs what may fail halfway: whatever is thrown from within leaves the session failed.
    template <typename Call>
    void perform(Call call) {
        stage = Stage::failed;
        call();
        stage = Stage::ready;
    }
    // In whichever stage: a copy of a device may fail.
    template <typename Call>
    void look_at_sums(Call call) {
        PENSTOCK_CHECK(stage != Stage::failed, "gradients after an exception");
        const Stage before = std::exchange(stage, Stage::failed);
        call();
        stage = before;
    }
    template <typename Call>
    void change_sums(Call call) {
        norm.reset();
        look_at_sums(call);
    }

    LocalCommunicator alone;
    Communicator* communicator;
    CommitBarrier barrier;
    std::unique_ptr<SessionPlan> plan;
    std::unique_ptr<pool::PinnedPool> pool;  // before what may be at its memory until its own end
    std::unique_ptr<Device> device;          // after the end, for whoever still has memory of it; before that machine's
    std::unique_ptr<Machine> machine;
    ModelStore opened;
    std::unique_ptr<SessionWork> work;
    SessionInfo info;
    std::vector<std::string> notes;

    Stage stage = Stage::ready;
    Pass pass = Pass::training;
    VisitOrder order;
    std::optional<double> norm;  // of the sums as they are
    bool sums_lent = false;      // a client may change them unseen
    std::chrono::nanoseconds updating{0};
    store::ClientState newest;       // what the client gave for the newest step
    store::ClientState newest_user;  // as it was then
    bool commits = false;            // once its last unit is updated
    struct StepWithin {              // begun before its gradients
        UpdateRequest request;
        std::vector<GroupValues> groups;     // the request's
        bool updates = false;                // its units: those of the step before are all updated, and committed
        std::vector<std::uint32_t> updated;  // by complete()
    };
    std::optional<StepWithin> step_within;
    bool committed = true;  // all that there is of it
    store::ClientState user;
    std::string went_on_from;                   // went_on_from_key's value
    std::optional<SkippedSteps> skipped_steps;  // from the plan on
    std::optional<StepUpdate> step_update;
};

}  // namespace penstock::zero
