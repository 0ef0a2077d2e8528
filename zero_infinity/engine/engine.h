// The stage-3 engine: runs a model unit by unit over weights that come and go, and updates it.
//
// The autograd graph is cut at unit boundaries: forward keeps each unit's input; backward calls torch::autograd::grad
// for one unit alone, over the graph saved from forward or after recomputing it. Micro-batches are taken unit by unit
// ("vertical": all micro-batches of a unit before the next), so weights are read once per direction whatever their
// number.
#pragma once

#include "zero_infinity/engine/gradient_paths.h"
#include "zero_infinity/engine/graph_keeper.h"
#include "zero_infinity/engine/model.h"
#include "zero_infinity/engine/reached.h"
#include "zero_infinity/engine/session_options.h"
#include "zero_infinity/engine/tape.h"
#include "zero_infinity/optimizer/optimizer.h"
#include "zero_infinity/session/core_session.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::engine {

struct EngineDeps {
    Model* model = nullptr;
    zero::CoreSession* core = nullptr;         // of the model's specs
    zero::SettingNames names;                  // for notes and errors
    at::Device device = at::Device(at::kCPU);  // where units compute
};

// The client state's key that is the engine's own; those of the session: session_info.h.
inline constexpr const char* generator_key = "penstock.generator";

struct StepReport {
    double loss = 0;           // mean over the micro-batches, of all ranks
    double gradient_norm = 0;  // before clipping
    // Of the units' inputs that forward keeps for backward, of all micro-batches: outside of every budget, unless there
    // is one for them (CoreOptions::activation_bytes). What the caller gave is not counted.
    std::uint64_t activation_bytes = 0;
    std::uint64_t away_bytes = 0;   // of them: went to NVMe, and came back
    std::uint64_t graph_bytes = 0;  // that graphs took which were kept, as they were measured; outside of every budget
    std::size_t given_up = 0;       // graphs of units' calls that found no room: Activations::automatic
    std::chrono::nanoseconds forward{0};   // without updates within it
    std::chrono::nanoseconds backward{0};  // with the last unit's forward and the norm
    std::chrono::nanoseconds update{0};    // also of the step before, where it was made within this one
    std::chrono::nanoseconds commit{0};    // for the last writes and, when it was committed, for the manifest
    bool committed = false;                // durable now; else with a later step, see Durability and UpdateOrder
    bool committed_before = false;         // the step before it is durable
    bool updated_again = false;            // UpdateOrder::within, and the gradient was clipped
    std::uint32_t wish = 0;                // the largest that a rank had (EngineOptions::wish): the same on all of them
};

// What the client wants to find again with this step; called once its loss and norm are known, before the update.
using ClientStateOf = std::function<store::ClientState(const StepReport&)>;

// All calls on one thread, the compute thread; torch's own thread count is the caller's to set, and it changes bits.
// Everything it is given outlives it. After any exception it may only be destroyed (checked).
class Engine {
   public:
    Engine(const EngineDeps& deps, EngineOptions options);

    // One optimizer step over the micro-batches, whose tensors lie where the device computes. When it returns a report
    // that says committed, the step and what `client` gave are durable: after the steps that the durability says,
    // counted by values.step. The loss is the mean of the micro-batches' losses.
    // Throws Error: non_finite (the loss, with the first unit and parameter that hold infinity or NaN, or the first
    // whose gradient or new value is not finite; the last committed step is untouched), usage (what no gradient comes
    // to, by unit and parameter), internal (a unit that does not keep Unit's promises), storage, out_of_memory (with
    // what takes it, by tier). REQUIRES: at least one micro-batch.
    StepReport train_batch(std::span<const Bundle> micro_batches, const zero::StepValues& values,
                           const ClientStateOf& client);

    // Takes the engine's key from the client state of the step to go on from. Before the first step.
    void restore(const store::ClientState& client);
    store::ClientState& user_state() noexcept { return deps_.core->user_state(); }  // CoreSession's

    // Commits the newest step out of turn; nothing to do when it is committed. REQUIRES: not scratch.
    void settle();

    // Forward only, without gradients. The output of the last unit.
    Bundle infer(const Bundle& input);

    std::vector<std::string> take_notes();  // lines for the log that came up since the last call
    // The most of StepReport::activation_bytes and graph_bytes so far.
    std::uint64_t activation_peak_bytes() const noexcept { return activation_peak_bytes_; }

   private:
    void watch_generators(const std::string& before);
    void note_narrow_sums(std::size_t micro_batches);
    void complete(std::uint32_t unit);
    StepReport step(std::span<const Bundle> micro_batches, const zero::StepValues& values, const ClientStateOf& client);
    std::optional<std::string> first_non_finite_weight();
    void forward_and_backward(std::span<const Bundle> micro_batches, std::uint64_t step, StepReport& report);
    [[noreturn]] void refuse_loss(double loss, std::uint64_t step);
    void forward(std::uint32_t unit, std::size_t count);
    Bundle first_run(const Call& call);
    Bundle run_again(std::uint32_t unit, const SavedActivations& saved) const;
    double backward(std::uint32_t unit, std::size_t count);
    std::vector<at::Tensor> differentiate(std::uint32_t unit, SavedActivations& saved, Bundle& upstream,
                                          std::size_t count, std::vector<at::Tensor>& losses);
    void add_gradients(std::uint32_t unit, std::span<const at::Tensor> gradients);
    [[noreturn]] void refuse_memory(const c10::Error& error) const;
    void visit_units(const std::function<void(std::uint32_t unit)>& visit);
    void bind(std::uint32_t unit);
    void release(std::uint32_t unit) noexcept;

    // Constant after construction.
    EngineDeps deps_;
    EngineOptions options_;
    std::vector<std::uint32_t> complete_at_;  // [unit]: where backward gives it its last gradient

    // What a step keeps from forward to backward, and what backward is at.
    Tape tape_;
    GraphKeeper keeper_;
    std::vector<Bundle> upstream_;  // [micro-batch]: gradients of the boundary that backward is at
    Reached reached_;
    bool step_begun_ = false;  // CoreSession's: its units are updated within backward
    std::uint32_t bound_ = 0;  // the unit that compute is at, or was at last

    // From step to step.
    GradientPaths paths_;
    std::string generator_;  // torch's default generators after the newest step; empty: no unit has drawn from them
    std::uint64_t activation_peak_bytes_ = 0;
    std::vector<std::string> notes_;
    bool narrow_sums_noted_ = false;
    bool busy_ = false;  // within a call; still so after an exception
};

}  // namespace penstock::engine
