// What a session says of itself, and takes from outside in the place of its own.
#pragma once

#include "aio/backend.h"
#include "swap/directory/file_hold.h"
#include "swap/directory/store_directory.h"
#include "swap/format/manifest.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/driver/driver.h"
#include "zero_infinity/order/step_order.h"
#include "zero_infinity/order/visit_order.h"
#include "zero_infinity/plan/traffic.h"
#include "zero_infinity/session/session_ranks.h"
#include "zero_infinity/weights/weight_source.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace penstock::zero {

// The client state's keys that are the session's own, and how those of the user begin.
inline constexpr const char* fingerprint_key = "penstock.model";
inline constexpr const char* went_on_from_key = "penstock.went_on_from";  // the snapshot, if the run began from one
inline constexpr const char* skipped_steps_key = "penstock.skipped_steps";
inline constexpr const char* set_key = "penstock.set";  // of several ranks: which of whose stores it is (rank_set.h)
inline constexpr const char* set_epoch_key = "penstock.epoch";
inline constexpr const char* set_rank_key = "penstock.rank";
inline constexpr const char* user_prefix = "user.";

// What a session tells while it is built, on the caller's thread. Any may be empty.
struct SessionEvents {
    // What the run is to go on from, the newest committed client state of the store or snapshot in `directory`, before
    // anything else is done with the store; throws Error to refuse the resume.
    std::function<void(const store::ClientState&, const std::string& directory)> recovered;
    // While a new store is written, or the one that is there verified.
    std::function<void(const char* what, std::uint64_t done_bytes, std::uint64_t total_bytes)> progress;
    store::WaitNotice waiting;  // for what an earlier user of the store had under way
    // The device is open; nothing was done with a store yet. May throw.
    std::function<void(const Device&)> device_opened;
};

// What a session takes from outside in the place of its own. Each may be null; all outlive it.
struct SessionSeams {
    WeightSource* weights = nullptr;  // of a new store; needed until it is open
    RankWays ranks = {};
    // The way to the devices of the store with this first directory; called once, in the constructor.
    std::function<aio::ChosenBackend(const store::StoreDirectory&)> backend = {};
    StepWatch steps = {};  // outlives the session
};

// What stays as it is while the session lives.
struct SessionInfo {
    bool resumed = false;              // false: freshly initialised
    store::ClientState client;         // of the newest committed generation when the session began
    store::StoreUuid store;            // that its snapshots name as their origin
    std::string io;                    // "io_uring, direct"
    std::uint32_t prefetch_depth = 0;  // what the budget allowed
    std::uint64_t pool_budget_bytes = 0;
    std::uint64_t device_bytes = 0;  // of the device's own memory
    std::string memory_table;        // one line per use, and the limit
    StepBytes step_bytes;
    double planned_bytes = 0;  // step_bytes.mean() of this session's durability
    // The formula's bytes per trainable parameter and step, before what the turn from forward to backward saves.
    Traffic nominal_traffic;
};

// What has been counted since the session began.
struct SessionCounters {
    std::uint64_t read_bytes = 0;
    std::uint64_t write_bytes = 0;
    std::uint64_t spill_read_bytes = 0;   // of them: what was spilled came back
    std::uint64_t spill_write_bytes = 0;  // of them
    WaitTimes waits;
    std::chrono::nanoseconds updating{0};  // compute updated units, or waited for their tiles
    std::uint64_t pool_peak_bytes = 0;
    OrderCounts visits;
    LaneCounters ranks;  // 0 where there is one
    // The engine's: the largest of StepReport's.
    std::uint64_t activation_peak_bytes = 0;
};

}  // namespace penstock::zero
