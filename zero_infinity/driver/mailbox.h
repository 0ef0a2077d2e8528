// What the compute thread and the driver's thread say to each other; and a thread that updates units beside compute,
// which is one of compute's here. The mutex is never held across I/O or work.
#pragma once

#include "aio/words/error.h"
#include "swap/spill/spill.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/driver/order.h"
#include "zero_infinity/driver/snapshot_copier.h"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::zero {

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

// Between two threads, of which each calls its own half. send(), check() and all that waits throw Error once the driver
// has failed.
class Mailbox {
   public:
    Mailbox(std::uint32_t units, std::size_t tiles);

    // Compute thread.
    std::uint64_t send(Order order);  // its number, counting from 1
    void stop();                      // sends orders::Stop, whatever has failed
    // The driver's thread owns these waits: it publishes a failure when an operation fails or is older than its
    // deadline.
    template <typename Reached>
    void wait(Reached reached);
    // For `time` at most; false: it was not reached.
    template <typename Reached>
    bool wait_for(std::chrono::nanoseconds time, Reached reached);
    // Until the newest fetch of each of these units that has arrived is this one.
    void wait_for(std::span<const ArrivedFetch> wanted);
    bool has(const ArrivedFetch& wanted);
    ArrivedFetch arrived(std::uint32_t unit);  // the newest of that unit
    // Until that fetch of the unit is offered; it is the caller's from then on, once: the same place may be fetched to
    // be updated again. Returns where its trainable weights lie.
    std::byte* wait_to_update(const ArrivedFetch& wanted);
    void wait_shut(std::uint32_t unit);  // until no fetch reads the unit's weights, which was sent orders::Shut
    // Until the tile's states are there; they are the caller's from then on.
    StagedStates wait_staged(std::uint64_t number);
    bool has_spilled(store::SpillBlock block, std::uint64_t errands);  // out and in, since the beginning
    void wait_for_spill(store::SpillBlock block, std::uint64_t errands);
    bool failed();
    void check();
    Progress progress();
    std::vector<EndedSnapshot> take_snapshots();
    std::vector<std::string> take_notes();

    // Driver's thread. `orders` is emptied and filled with what was sent since.
    void take(std::vector<Order>& orders);
    void arrived(const ArrivedFetch& fetch);
    void offer(std::uint32_t unit, std::uint64_t fetch, std::byte* weights);
    // It is not offered any more. False: compute has taken it.
    bool withdraw(std::uint32_t unit, std::uint64_t fetch);
    bool shut(std::uint32_t unit);  // true
    void staged(std::uint64_t number, StagedStates states);
    void given_up(std::uint64_t number);
    void publish(const Progress& progress, const std::optional<DriverFailure>& failure);
    void expect_spill(store::SpillBlock block);
    void spill_ended(store::SpillBlock block) noexcept;  // REQUIRES: expected
    void add_note(const std::string& note);
    void add_snapshot(EndedSnapshot copy);

   private:
    struct Offer {
        std::uint64_t fetch = 0;  // 0: nothing is offered
        std::byte* weights = nullptr;
    };

    std::uint64_t spilled(store::SpillBlock block) const;  // REQUIRES: mutex_ is held
    void throw_failure() const;                            // if there is one. REQUIRES: mutex_ is held

    std::mutex mutex_;  // over all that follows

    // Compute puts in, the driver takes out.
    std::vector<Order> orders_;
    std::uint64_t sent_ = 0;

    // The driver writes, compute reads.
    std::condition_variable changed_;  // told by publish(): what is written between is seen no sooner
    Progress progress_;
    std::optional<DriverFailure> failure_;
    std::vector<ArrivedFetch> arrived_;   // by unit, the last one
    std::vector<std::uint64_t> spilled_;  // by block: errands that have ended

    // The driver puts in, and takes out again what it needs for another; compute takes out. Whoever comes first has it.
    std::vector<Offer> offers_;                        // by unit, the last one
    std::vector<bool> shut_;                           // by unit
    std::vector<std::optional<StagedStates>> staged_;  // by tile

    // The driver puts in, compute takes out.
    std::vector<std::string> notes_;
    std::vector<EndedSnapshot> ended_snapshots_;
};

template <typename Reached>
void Mailbox::wait(Reached reached) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failure_ || reached(progress_); });
    throw_failure();
}

template <typename Reached>
bool Mailbox::wait_for(std::chrono::nanoseconds time, Reached reached) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, time, [&] { return failure_ || reached(progress_); });
    throw_failure();
    return reached(progress_);
}

}  // namespace penstock::zero
