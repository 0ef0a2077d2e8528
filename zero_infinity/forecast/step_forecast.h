// How long a step will take: what session and driver decide, replayed in virtual time over what the device and the
// processor were measured to give. Pure: no I/O, clock, thread or torch.
//
// Decided as in a run: what is fetched when and to where (WindowPlan), in which order units are updated
// (update_sequence.h), how many states are in memory at once, what waits for what. Modelled: the NVMe by its rates
// (VirtualDevice), compute by seconds per unit, and that the driver's thread (hash, submission) takes time from compute
// where there is no core for it alone, and so does what serves the device (Contention): work that is dealt out to all
// cores beforehand, as OpenMP's static schedule does it in torch, waits for the core that has the driver; work that is
// taken piece by piece, the update's, loses its share of one core.
#pragma once

#include "zero_infinity/forecast/virtual_device.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/order/step_order.h"
#include "zero_infinity/plan/memory_plan.h"
#include "zero_infinity/plan/traffic.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace penstock::zero {

// What compute takes for one unit in one step, all micro-batches together, while nothing else runs.
struct UnitSeconds {
    double forward = 0;
    double backward = 0;  // with its forward again, where that is not kept
    double update = 0;
    double norm = 0;  // of its gradient
};

struct HostSeconds {
    double driver_per_byte = 0;  // of the driver's thread: hash, submission and completion
    double commit = 0;           // flush and manifest, once nothing is being written; nothing else moves meanwhile
    double rest = 0;             // of a step: tokens, log
    unsigned threads = 1;        // of compute
    unsigned cores = 1;
    Contention contention = {};  // beside what driver_per_byte is
};

// What compute lays aside in one visit of a pass, once it has made it, and takes again before later ones, the last of
// which drops it. Visits are named by their place among those of the pass.
struct LaidItem {
    std::uint64_t turn =
        0;  // by which it is laid aside: what has the lowest is thought to be taken first; one item each
    std::uint64_t bytes = 0;
    std::size_t laid_in = 0;
    std::vector<std::size_t> taken_in;  // at least one, each later than the one before
};

struct LaidAside {
    std::vector<LaidItem> items;     // of one pass, in the order in which they are laid aside
    std::uint64_t budget_bytes = 0;  // of the memory in which they lie; beyond it they go to NVMe (Shelf)
};

// Whose step. In host memory alone: a device with memory of its own is not modelled.
struct StepSetting {
    const ModelLayout* layout = nullptr;
    WindowUse window;                 // MemoryPlan's
    std::uint32_t staging_tiles = 1;  // MemoryPlan's
    PassVisits training;              // with owners; the last visit of a unit is its backward, the others are forward
    StepRules rules;                  // of steps of which none is clipped
    Durability durability;
    std::uint64_t passes = 1;  // before one update, all alike
    // Compute from each visit of `training` to the next, for clients that measured it so: a unit that is visited more
    // than twice (a tied head) takes another time at each. Empty: forward and backward of UnitSeconds.
    std::span<const double> visit_seconds = {};
    std::size_t forward_visits = 0;  // of these the first so many are forward, the others backward
    // Bytes by unit of gradients that leave host memory: each pass writes them in backward, once it has read what the
    // one before wrote, and the update reads them, unless it is made within backward. Empty: none leave.
    std::vector<std::uint64_t> spilled_gradients = {};
    LaidAside laid = {};
    StepWatch steps = {};  // outlives the replay
};

// Of a step among its like, a mean over the steps of one commit. The parts are those of StepReport and WaitTimes, and
// their sum.
struct StepForecast {
    double seconds = 0;
    double forward = 0;  // without updates within it
    double backward = 0;
    double update = 0;
    double commit = 0;
    double wait_weights = 0;
    double wait_tiles = 0;
    double wait_spills = 0;  // for gradients and what was laid aside, or for their memory
    // What each lane is busy for.
    double compute = 0;  // forward, backward, norm
    double updating = 0;
    double reading = 0;
    double writing = 0;
    double driver = 0;
    double lost = 0;  // of compute and updates, to what the NVMe does on their cores (Contention)
    double read_bytes = 0;
    double write_bytes = 0;
};

// `seconds` by unit. REQUIRES: as many as units; the window has room for each visit; visit_seconds are as many as
// visits. Throws Error (does_not_fit): what is laid aside finds no room beside what is in use.
StepForecast forecast_step(const StepSetting& setting, std::span<const UnitSeconds> seconds, const HostSeconds& host,
                           const DeviceRates& rates);

}  // namespace penstock::zero
