// The open step: a model in training, for whoever computes it. Its weights come to memory when they are asked for, its
// gradients are summed, an update brings it to the next step, and a commit makes the step durable. Knows names, shapes
// and bytes; no modules, no graphs, no torch. Its clients: the engine (C++ units on torch), the Python package, others.
//
//   const ModelSpec model{.units = units, .optimizers = make_adamw({})};
//   const MachineRoom room = MachineRoom::read(options.device);
//   CoreSession session(model, options, room, {{"step", "0"}}, {}, {.weights = &first_weights});
//   for (std::uint64_t step = 1; step <= steps; ++step) {
//       session.begin_pass(Pass::training);
//       for (const Visit& visit : visits) {             // forward and backward, or whatever comes
//           session.visit(visit);                       // blocks until the weights of its units are there
//           … compute reads session.weights({unit, parameter}), and in backward
//           session.add_gradient({unit, parameter}, gradient);
//       }
//       session.end_pass();
//       session.update({.values = {.step = step, .learning_rate = 1e-3}, .clip = 1.0}, state_of_my_client);
//   }
//
// Passes are given from outside. A unit may be visited any number of times and in any order; several passes may come
// before one update, and their gradients add up; a pass may end early. The order of the last pass of a kind is what the
// next one is prefetched by (order/visit_order.h); another order is served by reads that compute waits for, and
// counted.
//
//   state     ready: begin_pass, gradients, update, settle, read_out, write_in, snapshots  → in_pass by begin_pass
//             in_pass: visit, weights, gradients, begin_pass (ends the one before)    → ready by end_pass
//             failed: only destruction. By an exception of storage, of a stuck device, of an update that had begun; an
//             Error that says of itself that nothing has changed leaves the state as it was.
#pragma once

#include "swap/format/manifest.h"
#include "zero_infinity/driver/driver.h"
#include "zero_infinity/gradients/gradient_sums.h"
#include "zero_infinity/order/visit_order.h"
#include "zero_infinity/plan/core_options.h"
#include "zero_infinity/plan/session_plan.h"
#include "zero_infinity/session/session_info.h"
#include "zero_infinity/session/shelf.h"
#include "zero_infinity/session/step_pieces.h"
#include "zero_infinity/weights/read_out.h"
#include "zero_infinity/weights/write_in.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::zero {

// Elements in memory that compute reads or adds to: the device's, where it has its own.
struct ParameterMemory {
    std::byte* data = nullptr;
    PlaneType type = PlaneType::fp32;
    std::uint64_t numel = 0;
};

struct UpdateRequest {
    StepValues values;
    std::span<const GroupValues> groups = {};  // of each parameter group, `others` last; none: as values say
    double clip = 0;                           // largest global norm of the gradient; 0: none
    double loss_scale = 1;                     // the sums are this times the gradient
    // What becomes of a gradient that is not finite: fp16 overflows now and then.
    enum class Overflow : std::uint8_t { refused, skipped } overflow = Overflow::refused;
};

struct UpdateReport {
    double gradient_norm = 0;       // of the gradient, before clipping
    bool updated = false;           // false: it was not finite and Overflow::skipped; nothing but the sums has changed
    bool committed = false;         // durable now; else with a later step, see Durability, or as UpdateOrder says
    bool committed_before = false;  // the step before it is durable
    bool updated_again = false;     // it was updated within, and clipped: it is updated anew, as a deferred one
    std::chrono::nanoseconds update{0};
    std::chrono::nanoseconds commit{0};  // for the last writes and, when it was committed, for the manifest
};

// Of several ranks (SessionSeams::ranks) all make the same calls in the same order: each returns when this rank's part
// is done, and an Error that is not all ranks' alike ends it on all of them.
// One caller at a time, on any thread. Every wait ends by the deadline of the options. What was committed stays
// whatever happens. When a device is stuck the destructor keeps everything that the device may still write into, so
// that the process can end and say why.
class CoreSession {
   public:
    enum class Stage : std::uint8_t { ready, in_pass, failed };

    // Checks the budget, locks the directories; then resumes the newest committed generation, or writes the first
    // weights into a new store and commits generation 0 with `initial_client`. Nothing is created before the budget was
    // checked. Throws Error: usage (also a group that no parameter is in), does_not_fit (with the table of uses),
    // storage, and what events.recovered and seams.weights throw.
    CoreSession(ModelSpec model, const CoreOptions& options, const MachineRoom& room,
                const store::ClientState& initial_client, const SessionEvents& events, const SessionSeams& seams);
    ~CoreSession();

    Stage stage() const noexcept;
    const SessionInfo& info() const noexcept;
    SessionCounters counters() const;
    const ModelLayout& layout() const noexcept;
    UpdateOrder update_order() const noexcept;
    // A client that computes on a stream of its own names it by compute_on(), before each visit or gradient on another.
    Device& device() noexcept;
    PlaneType gradient_type() const noexcept;
    GradientMemory gradient_memory() const noexcept;
    Purpose purpose() const noexcept;
    // The unit whose last update is not made, though the parameter's gradient is to be added to its sums: the
    // parameter's own, or that which it borrows from. Within a pass no gradient is added before a visit has made it.
    std::optional<std::uint32_t> owes_update(ParameterId parameter) const;

    // Replaces what was learned from the last pass of that kind; within such a pass, what it makes from here on.
    void expect(Pass pass, const PassVisits& visits);
    void begin_pass(Pass pass);  // what it is expected to visit first is fetched from now on
    // Compute goes to these units, and to the owners of what they borrow: blocks until it may read their weights; on a
    // device with a stream, until compute that is issued from now on finds them. Those
    // in `held`, which the last visit had, too, and this one has, stay where they are, with their owners. Throws Error:
    // storage; does_not_fit (units that find no room beside those that are held: let go of these, or ask for less at
    // once; nothing has changed).
    void visit(const Visit& visit, std::span<const std::uint32_t> held = {});
    void end_pass();  // compute reads no weights any more. A training pass: adds the sums of borrowed parameters up
    // As it is stored for compute, in the codec's type or UnitSpec::frozen_type; of a borrowed parameter the owner's.
    // Good until a visit that does not hold the unit, for the compute that was issued until then. REQUIRES: the last
    // visit has the unit; or UnitSpec::resident: then at any time, at one address, and update() and write_in() change
    // it.
    ParameterMemory weights(ParameterId parameter) const;
    UnitMemory memory(std::uint32_t unit) const;  // all of the unit's own, as layout().unit(unit).place() says

    // Gradients, summed over passes until the update: each sum has the type of the options, whatever its addends have.
    // A borrowed parameter has a sum of its own, which is added to the owner's at the end of a training pass (at the
    // latest by the norm), in the order of the units that borrow it. What is added between passes to a unit that
    // owes its update waits for all updates. REQUIRES, for all of them: the parameter is trainable; Purpose::training.
    //
    // Adds elements in host memory: float(sum) + float(addend), rounded once to the sum's type, nearest even; the first
    // one is rounded alone. REQUIRES: as many as the parameter has; a device without memory of its own.
    void add_gradient(ParameterId parameter, const GradientView& addend);
    // For clients with kernels of their own: where compute adds to the sum, until another unit's is opened. `fresh`: it
    // holds nothing yet and is to be written whole; from now on it counts as there.
    GradientSums::Open open_gradient(ParameterId parameter);
    // The sum in host memory, at the same address for ever; nothing when no addend has come. REQUIRES, of
    // GradientMemory::one_unit: the unit is not updated yet. Throws Error (usage), and nothing has changed, of
    // GradientMemory::nvme: the sum has no such address. Waits for copies. May be
    // changed in place until the gradients are cleared, but for that of a device with memory of its own within a pass.
    //
    // Of several ranks: the mean over them. The first call behind a training pass adds over the ranks what has come
    // until then and brings it back whole: all of them make it at once. What each changes there counts in its shard,
    // until the next addend comes to the unit.
    std::optional<ParameterMemory> gradient(ParameterId parameter);
    // The same; zeros where no addend has come, which count as there.
    ParameterMemory make_gradient(ParameterId parameter);
    void clear_gradients();
    void clear_gradient(ParameterId parameter);
    // Of all sums as they are, with their loss scale; defined order: gradient_norm.h. Of several ranks that of the
    // mean, and a call of all. REQUIRES: no pass.
    double gradient_norm();

    // Where a client lays aside what it needs again in the other half of a step; null without
    // CoreOptions::activation_bytes. Within a pass or between passes. After an error of its own only destruction
    // follows.
    Shelf* shelf() noexcept;

    // Asked once the gradient was found finite; what the client wants to find again with this step. The norm is that of
    // the gradient, before clipping.
    using ClientStateOf = std::function<store::ClientState(double gradient_norm)>;
    // Whether units may be updated within backward, before there is a norm: UpdateOrder::within. A request that clips
    // wants CoreOptions::clips, and all of the newest step committed, or deferred, and committed then. No gradient may
    // be skipped.
    bool may_begin_step(const UpdateRequest& request) const;
    // The same, and that it pays: of a request that clips not at first and not after two clipped steps in a row
    // (a_run_of_clips), for the next one would most likely be updated again.
    bool is_worth_beginning(const UpdateRequest& request) const;
    // The next training pass, or the one that is under way, is the last one before update() with this same request, and
    // complete() updates units within it: once what was deferred of the step before is updated, by visits of that pass,
    // and committed (order/step_order.h). What fails then ends the session. Throws Error: usage (groups that are not
    // the model's), storage. REQUIRES: no pass but a training one; may_begin_step().
    void begin_step(const UpdateRequest& request);
    // Within that pass: no gradient comes to this unit's parameters any more, also of who borrows them, and compute
    // reads them no more: the unit is updated now; or beside compute from now on, where a device has memory of its own,
    // and host memory the unit's weights: what fails then a later call throws. Waits for the commit of the step before.
    // Those that it is not said
    // of, or said while units of the step before were not visited, are updated by update(). Throws as update() does.
    // REQUIRES: the last visit names it. Of GradientMemory::nvme also without a begun step: where the unit is not
    // updated now, its gradients leave host memory, and not only once another unit's come; nothing is lost where more
    // of them come after all.
    void complete(std::uint32_t unit);
    // One step: unscales, clips, updates, clears the gradients; then, after the steps that the durability says, commits
    // what was updated together with the client's state and user_state(). UpdateOrder::deferred leaves the update of
    // each unit to the next visit to it (or makes it beside compute, ahead of that, as complete() does), and the commit
    // to the last of them, and so does within of a step that is
    // updated again, or, where steps may be, was not begun; what fails there is thrown there, and what is called
    // between passes finishes it first: the next update(), the norm, settle(), read_out(), write_in(). Throws Error:
    // usage (names parameters that no gradient came to, unless their Unused says what then; groups that are not the
    // model's; nothing has changed), non_finite (the gradient, and nothing has changed; or a new value), storage.
    // REQUIRES: no pass, a loss scale above 0.
    UpdateReport update(const UpdateRequest& request, const ClientStateOf& client);
    // Whether the newest step is durable. Does not block. Throws Error (storage).
    bool committed();
    // Commits the newest step out of turn; nothing to do when it is committed. REQUIRES: no pass, not scratch.
    void settle();

    // Committed with every step; what the client gives for the same key goes before. Keys begin with user_prefix: an
    // update or settle() throws Error (usage) for others, before anything has changed.
    store::ClientState& user_state() noexcept;

    // Gives the newest step to the sink, by names (weights/read_out.h); it is committed first, but in scratch. Takes
    // memory for one tile outside the pool. Of several ranks a call of all; but of weights alone each rank's own, from
    // what compute reads, and nothing is committed. REQUIRES: no pass.
    void read_out(const ReadOut& what, WeightSink& sink);

    // Replaces values of parameters, frozen ones, too (weights/write_in.h): durable with the next commit. Memory as
    // read_out(). Throws Error: storage, what the source throws (weights may be changed in part then). REQUIRES: no
    // pass.
    void write_in(const WriteIn& what, WeightSource& source);

    // Copies the newest step into a snapshot in the new directory `path` while training goes on; it is committed first,
    // or in scratch written to the store. Progress, end and outcome: see Driver. REQUIRES: options.snapshots, no pass,
    // no copy is under way.
    void begin_snapshot(const std::string& path);
    SnapshotProgress snapshot_progress() const;
    void finish_snapshot(const std::function<bool(const SnapshotProgress&)>& wanted);
    std::vector<EndedSnapshot> take_snapshots();

    // Gives the store and its directories back. Memory that was handed out stays until the destructor, which alone may
    // follow.
    void end() noexcept;

    // Lines for the log that came up since the last call: what fell back and why, a tile that was read twice, …
    std::vector<std::string> take_notes();
    // For what a client tells the other ranks, between calls of its own: all make the same, at the same place.
    Communicator& ranks() noexcept;

   private:
    void make_owed_update(ParameterId parameter);

    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace penstock::zero
