// What a driver holds on the compute thread, and what its calls are made of: fetches, the unit in hand, waits.
#pragma once

#include "aio/words/check.h"
#include "zero_infinity/driver/driver.h"
#include "zero_infinity/driver/driver_loop.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace penstock::zero {

struct Driver::State {
    // Where the compute thread is in a step.
    enum class Phase : std::uint8_t {
        between,  // passes and updates may begin
        passing,  // compute is at a visit
    };

    State(const DriverDeps& given, const DriverOptions& options);

    std::uint64_t send(Order order);
    template <typename Reached>
    void wait(TraceLane lane, std::chrono::nanoseconds& waited, Reached reached);
    void traced(const TraceStart& start, const TraceSpan& span) noexcept {
        trace_end(deps.trace, TraceThread::compute, start, span);
    }
    void leave_visit() noexcept {
        if (!visit.units.empty()) traced(visit_started, {.lane = TraceLane::compute, .unit = visit.units.front()});
    }
    bool is_visited(std::uint32_t unit) const;
    void send_fetches(std::span<const Fetch> fetches);
    void send_fetches_of_update(std::span<const Fetch> fetches);
    void send_fetch_in_place(std::uint32_t unit);
    bool is_to_come(std::uint32_t unit) const { return awaiting[unit] && update_at == UpdateAt::arrival; }
    std::vector<Visit> fetched_by_update() const;
    UnitInHand::Tiles tiles_of(std::uint32_t unit) const;  // in the update under way
    UnitInHand& take_in_hand(std::uint32_t unit);
    UnitInHandDeps in_hand_deps(TraceThread thread) {
        return {deps.layout, &memory.staging(), &mailbox, deps.io, deps.trace, thread};
    }
    void unit_updated();
    void updated_behind(std::uint32_t unit);
    void wait_for_writes();
    void wait_for_weights();
    void compute_after(Ticket there);
    void transfer(Order order);
    void send_spill(const orders::SendSpill& order);
    void gather_updated(std::uint32_t unit);
    void renew_gathered_residents(GatheredResidents::Renew what);
    template <typename Bring>
    void bring_residents(Bring bring);

    // Constant after construction. Both threads read these.
    DriverDeps deps;
    const bool in_memory;  // the store has no tiles
    const std::chrono::seconds deadline;
    const DriverMemory memory;
    const std::vector<bool> in_host_memory;  // by unit: its weights, states and gradients, whole

    // Both threads', under a lock of its own.
    Mailbox mailbox;

    // All that follows but the loop is the compute thread's. What is fetched:
    WindowPlan window;
    std::vector<std::uint64_t> fetched_by_compute;  // by unit: the newest fetch that is as compute reads it
    std::vector<std::uint32_t> stale;               // on the device, where they were updated behind compute
    bool window_spent = false;     // by updates: what lies there is not as compute's next pass wants it
    bool updated_in_pass = false;  // units of it, where they lie

    // Where compute is.
    Phase phase = Phase::between;
    Visit visit;
    WaitTimes waits;
    TraceStart visit_started;

    // The update under way.
    std::vector<std::uint32_t> update_order;  // its units; those before next_in_order are done with
    std::size_t next_in_order = 0;
    UpdateAt update_at = UpdateAt::arrival;
    std::vector<bool> awaiting;  // by unit
    bool all_at_once = false;    // tiles of units that are in host memory: none is written
    std::optional<UnitInHand> in_hand;
    bool in_hand_fetched = false;  // its weights are not resident in host memory, or pass on to a device
    bool update_open = false;      // updates' writes may be under way

    // What was sent for, to be compared with Progress, which counts what has ended.
    std::uint64_t begun = 0;  // number of the order that began what is waited for: older progress is of another
    std::uint64_t write_backs = 0;
    std::uint64_t commits = 0;
    bool committing = false;
    std::uint64_t transfers = 0, copies = 0;
    std::vector<std::uint64_t> spill_errands;  // by block
    bool device_stuck = false;

    // The driver's thread.
    DriverLoop loop;  // starts last and ends first
};

template <typename Reached>
void Driver::State::wait(TraceLane lane, std::chrono::nanoseconds& waited, Reached reached) {
    const auto start = std::chrono::steady_clock::now();
    const TraceStart from = trace_start(deps.trace);
    mailbox.wait([&](const Progress& progress) { return progress.orders_done >= begun && reached(progress); });
    traced(from, {.lane = lane});
    waited += std::chrono::steady_clock::now() - start;
}

}  // namespace penstock::zero
