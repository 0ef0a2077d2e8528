// What a session holds, and what its calls are made of: passes, steps and commits.
#pragma once

#include "aio/words/check.h"
#include "zero_infinity/order/step_order.h"
#include "zero_infinity/order/visit_order.h"
#include "zero_infinity/ranks/commit_barrier.h"
#include "zero_infinity/session/core_session.h"
#include "zero_infinity/session/session_parts.h"
#include "zero_infinity/session/step_update.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace penstock::zero {

// The stages that were reached, each whole. They are given back in reverse; but kept for ever when something is under
// way that does not come back: until the process ends the device may write into them.
struct CoreSession::State final : StepHands {
    explicit State(RankWays ways) : ranks(ways), barrier(ranks) {}
    ~State();
    void open(ModelSpec model, const CoreOptions& options, const MachineRoom& room,
              const store::ClientState& initial_client, const SessionEvents& events, const SessionSeams& seams);
    void end() noexcept;
    bool stuck();
    std::uint64_t next_generation() const noexcept { return barrier.mine() + 1; }  // which writes are for
    bool is_durable() const noexcept { return plan->options.durability != Durability::scratch; }
    void settle();
    void restore();
    void expect_pass(Pass pass, const PassVisits& visits);
    void check_user_keys() const;
    void wait_for_updates(std::span<const std::uint32_t> units);  // beside compute
    void wait_for_updates();
    void add_borrowed();
    // Of several ranks: a training pass ends; what came until now is averaged over them, if it is not; and is whole.
    void end_addends();
    void add_over_ranks();
    // In which order units are closed within this pass: all ranks call it at its first addend, or at its end.
    void agree_on_closing();
    void lay_out_sums();
    ParameterMemory lent_sum(ParameterId parameter, GradientSums::Sum (GradientSums::*sum_of)(ParameterId));
    // No gradient of it may be skipped, which is known at the end alone.
    bool may_know_early(const UpdateRequest& request) const noexcept {
        return plan->options.purpose == Purpose::training && request.overflow == UpdateRequest::Overflow::refused &&
               request.loss_scale > 0;
    }
    // Of several ranks: each updates its part as the others do theirs. All call it. Throws Error (usage).
    void agree_on(const UpdateRequest& request);
    void begin_step(const UpdateRequest& request);
    Ended end_step(const UpdateRequest& request, double gradient_norm);
    void request_step(const UpdateRequest& request, double gradient_norm);
    std::vector<bool> units_to_update() const;
    double norm_of_gradients();
    // Where they are, or in the copy.
    const std::byte* in_host_memory(const ParameterMemory& memory, std::vector<std::byte>& copy);
    std::string first_non_finite();
    void forget_norm() noexcept {
        norm.reset();
        sums_lent = false;
    }
    store::ClientState client_with(const store::ClientState& user_of_step) const;

    // What the order of steps has it do.
    std::span<const Visit> expected() const override { return order.expected(Pass::training); }
    void begin(const BegunUpdate& update) override;
    void update(std::uint32_t unit) override;
    void end_of_residents() override {
        step_update->end_taken();
        work->driver.renew_residents();
    }
    void end_of_step() override { step_update->end(); }
    void begin_commit() override;
    void finish_commit() override;
    void finish_writes() override {
        step_update->take_in();
        work->driver.end_update();
    }
    void undo(const std::vector<std::uint32_t>& units) override { work->driver.take_back(units); }

    // An Error here is told to the other ranks, or what ended them is thrown here.
    template <typename Call>
    void told_to_ranks(Call call) {
        try {
            call();
        } catch (const Error& error) {
            tell_ranks(error);
        }
    }
    // REQUIRES: the Error is being handled.
    [[noreturn]] void tell_ranks(const Error& error) {
        if (ranks.ranks() == 1) throw;
        throw ranks.failed(error);
    }
    // Runs what may fail halfway: whatever is thrown from within leaves the session failed.
    template <typename Call>
    void perform(Call call) {
        stage = Stage::failed;
        told_to_ranks(call);
        stage = Stage::ready;
    }
    // In whichever stage: a copy of a device may fail.
    template <typename Call>
    void look_at_sums(Call call) {
        PENSTOCK_CHECK(stage != Stage::failed, "gradients after an exception");
        const Stage before = std::exchange(stage, Stage::failed);
        told_to_ranks(call);
        stage = before;
    }
    template <typename Call>
    void change_sums(Call call) {
        norm.reset();
        look_at_sums(call);
    }
    template <typename Call>
    void take_addend(Call call) {
        const bool in_training = stage == Stage::in_pass && pass == Pass::training;
        change_sums([&] {
            if (in_training) agree_on_closing();
            call();
        });
    }

    // Made by the opening, and the same ones until the end; each keeps its state itself. The order is that of
    // construction: what is below may be at what is above until its own end.
    std::unique_ptr<SessionPlan> plan;
    std::unique_ptr<pool::PinnedPool> pool;  // before what may be at its memory until its own end
    SessionRanks ranks;
    std::unique_ptr<Device> device;  // after the end, for whoever still has memory of it; before that machine's
    std::unique_ptr<Machine> machine;
    ModelStore opened;
    std::unique_ptr<SessionWork> work;
    SessionInfo info;
    std::string went_on_from;  // went_on_from_key's value

    // All that follows is the compute thread's. Where it is in a pass or step:
    Stage stage = Stage::ready;
    Pass pass = Pass::training;
    VisitOrder order;
    std::vector<std::string> notes;  // that nobody has taken

    // The sums of gradients.
    std::optional<double> norm;                     // of the sums as they are
    bool sums_lent = false;                         // a client may change them unseen
    std::chrono::nanoseconds adding_over_ranks{0};  // and counting the squares of the sums

    // The update.
    std::chrono::nanoseconds updating{0};
    struct Requested {  // what updates of the step under way are made with
        UpdateRequest request;
        std::vector<GroupValues> groups;  // the request's
        double gradient_norm = 0;         // once it is known
    };
    Requested requested;
    std::optional<SkippedSteps> skipped_steps;  // from the plan on
    std::optional<StepUpdate> step_update;
    std::optional<StepOrder> step_order;

    // What is committed: by which rank up to which generation, and what lies there beside the model.
    CommitBarrier barrier;
    store::ClientState newest;       // what the client gave for the newest step
    store::ClientState newest_user;  // as it was then
    store::ClientState user;
};

}  // namespace penstock::zero
