// What the compute thread and the driver's thread say to each other. The mutex is never held across I/O or work.
#pragma once

#include "aio/words/error.h"
#include "swap/format/manifest.h"
#include "swap/spill/spill.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/driver/residents.h"
#include "zero_infinity/driver/snapshot_copier.h"
#include "zero_infinity/plan/window_plan.h"
#include "zero_infinity/trace/trace_recorder.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace penstock::zero {

// From compute to the driver. Few per step: one per fetch and one per tile.
struct Order {
    enum class Kind : std::uint8_t {
        fetch,
        await,         // compute waits for a fetch that was made ahead of it
        await_update,  // the same, and for that unit's tiles
        begin_update,
        take_back,   // what the update wrote of these units, which has ended
        begin_unit,  // compute updates it where it lies
        put_back,
        end_unit,    // all its tiles were put back
        write_back,  // what host memory holds back
        commit,      // the same, and all is made durable
        read,        // one tile
        write,       // one tile
        snapshot,
        end_snapshot,
        allocate_spill,
        spill_out,
        spill_in,
        await_spill,  // compute waits for what the block was sent for
        stop
    } kind = Kind::stop;
    Fetch fetch;                                       // of await, await_update, begin_unit, end_unit: its unit
    FetchUse use = FetchUse::compute;                  // of fetch
    Ticket after;                                      // of fetch: when compute has left its place
    std::vector<std::uint32_t> units;                  // of begin_update and take_back
    ResidentTiles residents = ResidentTiles::written;  // of begin_update
    GradientsFrom gradients = GradientsFrom::memory;   // likewise
    std::uint64_t number = 0;                          // of the tile that is put back
    std::byte* weights = nullptr;                      // of put_back: where the tile's lie; null: it has none
    std::shared_ptr<const store::ClientState> client;  // of commit; of snapshot: null: the store's
    std::string path;                                  // of snapshot
    store::TileId tile;                                // of read and write
    std::span<std::byte> memory;                       // of read, write, spill_out and spill_in
    std::uint64_t bytes = 0;                           // of allocate_spill
    store::SpillBlock block;                           // of spill_out, spill_in and await_spill
    aio::Urgency urgency = aio::Urgency::write_back;   // of spill_out and spill_in
    std::uint32_t unit = no_trace_index;               // likewise, for the trace
};

// Why the driver can do no more. Final.
struct DriverFailure {
    ExitCode code = ExitCode::storage;
    std::string message;
};

// From the driver to compute.
struct Progress {
    std::uint64_t orders_done = 0;
    std::uint64_t unwritten_tiles = 0;  // of updates that were begun
    std::uint64_t written_back = 0;     // orders of it that have ended
    std::uint64_t commits = 0;
    std::uint64_t transfers = 0;  // of single tiles
    std::uint64_t ended_copies = 0;
    store::SpillBlock allocated;  // newest
    SnapshotProgress snapshot;
};

struct ArrivedFetch {
    std::uint32_t unit = 0;
    std::uint64_t fetch = 0;
    Ticket there = {};  // when compute may read it; where it reads host memory, from the start
};

// What was brought of a tile that may be updated.
struct StagedStates {
    std::byte* data = nullptr;            // null: the unit has none
    const std::byte* gradient = nullptr;  // null: it was not brought
};

class Mailbox {
   public:
    Mailbox(std::uint32_t units, std::size_t tiles) : arrived_(units), to_update_(units), staged_(tiles) {
        orders_.reserve(64);
    }

    // Compute thread. All but progress() and what is taken throw Error once the driver has failed. send() returns the
    // order's number, counting from 1.
    std::uint64_t send(const Order& order) {
        const std::lock_guard lock(mutex_);
        if (failure_) throw Error(failure_->code, failure_->message);
        orders_.push_back(order);
        return ++sent_;
    }
    // The driver's thread owns this wait: it publishes a failure when an operation fails or is older than its deadline.
    template <typename Reached>
    void wait(Reached reached) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return failure_ || reached(progress_); });
        if (failure_) throw Error(failure_->code, failure_->message);
    }
    // Until the newest fetch of each of these units that has arrived is this one.
    void wait_for(std::span<const ArrivedFetch> wanted) {
        wait([&](const Progress&) {
            return std::all_of(wanted.begin(), wanted.end(),
                               [&](const ArrivedFetch& each) { return arrived_[each.unit].fetch == each.fetch; });
        });
    }
    bool has(const ArrivedFetch& wanted) { return arrived(wanted.unit).fetch == wanted.fetch; }
    ArrivedFetch arrived(std::uint32_t unit) {  // the newest of that unit
        const std::lock_guard lock(mutex_);
        return arrived_[unit];
    }
    // Until that fetch of the unit is there to be updated; returns where its trainable weights lie. Once: the same
    // place may be fetched to be updated again.
    std::byte* wait_to_update(const ArrivedFetch& wanted) {
        std::byte* weights = nullptr;
        wait([&](const Progress&) {
            auto& [fetch, memory] = to_update_[wanted.unit];
            if (fetch != wanted.fetch) return false;
            weights = memory;
            fetch = 0;
            return true;
        });
        return weights;
    }
    // Until the tile's states are there; they are the caller's from then on.
    StagedStates wait_staged(std::uint64_t number) {
        std::optional<StagedStates> staged;
        wait([&](const Progress&) {
            staged = std::exchange(staged_[number], std::nullopt);
            return staged.has_value();
        });
        return *staged;
    }
    // As wait(), for `time` at most; false: it was not reached.
    template <typename Reached>
    bool wait_for(std::chrono::nanoseconds time, Reached reached) {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, time, [&] { return failure_ || reached(progress_); });
        if (failure_) throw Error(failure_->code, failure_->message);
        return reached(progress_);
    }
    bool failed() {
        const std::lock_guard lock(mutex_);
        return failure_.has_value();
    }
    void check() {
        const std::lock_guard lock(mutex_);
        if (failure_) throw Error(failure_->code, failure_->message);
    }
    Progress progress() {
        const std::lock_guard lock(mutex_);
        return progress_;
    }
    bool has_spilled(store::SpillBlock block, std::uint64_t errands) {  // out and in, since the beginning
        const std::lock_guard lock(mutex_);
        return spilled(block) == errands;
    }
    void wait_for_spill(store::SpillBlock block, std::uint64_t errands) {
        wait([&](const Progress&) { return spilled(block) == errands; });
    }
    std::vector<EndedSnapshot> take_snapshots() {
        const std::lock_guard lock(mutex_);
        return std::exchange(ended_snapshots_, {});
    }
    void stop() {
        const std::lock_guard lock(mutex_);
        orders_.push_back({.kind = Order::Kind::stop});
    }
    std::vector<std::string> take_notes() {
        const std::lock_guard lock(mutex_);
        return std::exchange(notes_, {});
    }

    // Driver's thread. `orders` is emptied and filled with what was sent since.
    void take(std::vector<Order>& orders) {
        orders.clear();
        const std::lock_guard lock(mutex_);
        orders.swap(orders_);
    }
    void arrived(const ArrivedFetch& fetch) {
        const std::lock_guard lock(mutex_);
        arrived_[fetch.unit] = fetch;
    }
    void offer(std::uint32_t unit, std::uint64_t fetch, std::byte* weights) {
        const std::lock_guard lock(mutex_);
        to_update_[unit] = {fetch, weights};
    }
    // It is not offered any more. False: compute has taken it.
    bool withdraw(std::uint32_t unit, std::uint64_t fetch) {
        const std::lock_guard lock(mutex_);
        if (to_update_[unit].first != fetch) return false;
        to_update_[unit] = {};
        return true;
    }
    void staged(std::uint64_t number, StagedStates states) {
        const std::lock_guard lock(mutex_);
        staged_[number] = states;
    }
    void given_up(std::uint64_t number) {
        const std::lock_guard lock(mutex_);
        staged_[number].reset();
    }
    void publish(const Progress& progress, const std::optional<DriverFailure>& failure) {
        {
            const std::lock_guard lock(mutex_);
            progress_ = progress;
            if (failure && !failure_) failure_ = failure;
        }
        changed_.notify_one();
    }
    void expect_spill(store::SpillBlock block) {
        const std::lock_guard lock(mutex_);
        if (block.index >= spilled_.size()) spilled_.resize(block.index + 1);
    }
    void spill_ended(store::SpillBlock block) noexcept {  // REQUIRES: expected
        const std::lock_guard lock(mutex_);
        ++spilled_[block.index];
    }
    void add_note(const std::string& note) {
        const std::lock_guard lock(mutex_);
        notes_.push_back(note);
    }
    void add_snapshot(EndedSnapshot copy) {
        const std::lock_guard lock(mutex_);
        ended_snapshots_.push_back(std::move(copy));
    }

   private:
    std::uint64_t spilled(store::SpillBlock block) const {
        return block.index < spilled_.size() ? spilled_[block.index] : 0;
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Order> orders_;
    std::uint64_t sent_ = 0;
    Progress progress_;
    std::vector<ArrivedFetch> arrived_;                            // by unit, the last one
    std::vector<std::pair<std::uint64_t, std::byte*>> to_update_;  // by unit: the fetch that is offered, and where
    std::vector<std::optional<StagedStates>> staged_;              // by tile
    std::vector<std::uint64_t> spilled_;                           // by block: errands that have ended
    std::optional<DriverFailure> failure_;
    std::vector<std::string> notes_;
    std::vector<EndedSnapshot> ended_snapshots_;
};

}  // namespace penstock::zero
