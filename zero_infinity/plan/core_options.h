// What a core session is told, with every default; without torch, so that a program can read its configuration into it.
#pragma once

#include "aio/backend.h"
#include "aio/file.h"
#include "aio/io.h"
#include "swap/hashing/tile_hashers.h"
#include "swap/store/tensor_store.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/kernels/plane.h"
#include "zero_infinity/plan/memory_plan.h"
#include "zero_infinity/plan/rank_options.h"
#include "zero_infinity/plan/traffic.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::zero {

// Sums in bf16 keep 8 bits: with each further addend they lose up to 1/512 of themselves, and 256 equal ones are the
// most that they grow by. Of up to so many (1.4 %) nothing is said.
inline constexpr std::size_t bf16_addends_max = 8;

class TraceRecorder;

struct CoreOptions {
    // Where and whose.
    std::vector<std::string> swap_directories;  // one per device; the first holds the manifests
    std::string job;                            // names the owner of the directories
    // Purpose::forwards: a directory without a store gets one of weights alone, in one slot, committed once; a store,
    // or a snapshot, is only read, beside other readers. What concerns updates is without effect then.
    Purpose purpose = Purpose::training;
    std::vector<std::uint16_t>
        swap_shares;  // of a new store's tiles, by directory (swap/format/striping.h); empty: equal
    // Directory of a kept snapshot to go on from. What the store has committed stays whole until the snapshot is copied
    // over it and committed. A store that went on from this snapshot before goes on from its own newest generation, so
    // that a start repeated after a stop loses nothing, unless go_back asks for the snapshot again. Empty: the store's
    // own newest generation.
    std::string resume_from;
    bool go_back = false;
    // A store whose first directory is lost, and given up: a new one is made over its further directories.
    std::optional<store::StoreUuid> lost_store;
    // Memory.
    // Hard limit of the pool: weights window, staging, gradients, resident objects; or planned_host_budget.
    std::uint64_t host_budget_bytes = 0;
    std::uint32_t prefetch_depth = 2;     // visits ahead, as far as the budget allows
    std::uint32_t staging_tiles = 4;      // the least; where updates overlap with compute, more as the budget has room
    std::uint64_t tile_numel = 1U << 20;  // memory.tile_elements; part of the store: the same at every resume
    Residency residency;
    // What the budget leaves, and the machine has, keeps further units' weights in host memory, then tiles of their
    // states.
    bool fill_host_budget = false;
    // Of the host budget, for what a client lays aside between forward and backward (CoreSession::shelf()), and what
    // has no room there goes to NVMe; 0: there is no shelf.
    std::uint64_t activation_bytes = 0;
    DeviceOptions device;
    // Safety.
    Durability durability;                                // which steps are committed; a scratch store has one slot
    store::VerifyScope verify = store::VerifyScope::all;  // of what is resumed, before anything is written
    bool snapshots = false;                               // plans memory for begin_snapshot()
    UpdateOrder update_order = UpdateOrder::after_backward;
    // Of UpdateOrder::within. Whether steps may be clipped, which is known after their updates; and of what updates
    // move, the share that every step leaves to the next pass, 0 to 1; none: balanced_share() of the forward part.
    bool clips = false;
    std::optional<double> deferred_share = 0;
    double forward_part = forward_part_recomputed;
    // Arithmetic. These decide bits.
    std::string codec = "split";                // a codec's name (zero_infinity/codec/codec.h)
    PlaneType gradient_type = PlaneType::bf16;  // of sums; beyond bf16_addends_max: fp32
    // one_unit: every step is begun, updates_at_once(), and its last pass completes each unit (but resident ones)
    // before another one's first gradient; no gradients come before that pass.
    GradientMemory gradient_memory = GradientMemory::all_units;
    bool gradients_may_leave = false;  // all_units becomes nvme where the budget or the machine has no room else
    RankOptions ranks;
    // Work.
    unsigned worker_threads = 1;
    // Of the store's tiles: by threads of their own where the driver's would not keep up with the devices
    // (threads/hash_threads.h).
    store::Hashing hashing;
    std::optional<aio::BackendKind> backend;  // none: the fastest that works
    aio::IoLimits io;                         // its deadline is io_deadline
    aio::Caching caching = aio::Caching::direct;
    std::chrono::seconds io_deadline = aio::default_deadline;
    TraceRecorder* trace = nullptr;  // which outlives the session; null: nobody records what happens
    // What is told to users.
    SettingNames names;
    store::SharedRemedies remedies = store::library_remedies();
    store::SharedRemedies snapshot_remedies = store::library_remedies();  // of the one to resume from
};

inline void place_gradients(GradientTier tier, CoreOptions& options) noexcept {
    options.gradient_memory = tier == GradientTier::nvme ? GradientMemory::nvme : GradientMemory::all_units;
    options.gradients_may_leave = tier == GradientTier::automatic;
}

// Whether a gradient has done its service once its unit is updated within backward: none is deferred, or updated again.
inline bool updates_at_once(const CoreOptions& options) noexcept {
    return options.update_order == UpdateOrder::within && !options.clips && options.deferred_share == 0.0;
}

// Why the order of updates does not go with the other options, by their names, and with which it would; empty: it does.
std::string refusal_of_order(const CoreOptions& options);

}  // namespace penstock::zero
