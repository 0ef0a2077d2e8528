#include "zero_infinity/driver/driver_state.h"

#include "aio/words/error.h"
#include "zero_infinity/plan/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::zero {
namespace {

using Clock = std::chrono::steady_clock;

SnapshotCopierDeps copier_deps(const DriverDeps& deps, const DriverMemory& memory, const DriverOptions& options) {
    const bool copies_tiles = options.snapshots && !deps.fill;
    return {.io = deps.io,
            .store = deps.store,
            .residents = deps.fill ? &memory.residents() : nullptr,
            .caching = options.caching,
            .job = options.job,
            .memory = copies_tiles ? deps.pool->acquire(deps.pool->use(snapshot_use), snapshot_bytes(*deps.layout))
                                   : pool::Lease()};
}

// An update needs nothing else of them.
std::vector<bool> units_in_host_memory(const ModelLayout& layout, const DriverOptions& options) {
    std::vector<bool> whole(layout.unit_count());
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
        bool there = layout.weights_tier(unit) == Tier::host;
        for (std::uint32_t index = 0; index < layout.unit(unit).tile_count(); ++index) {
            const UnitTile tile{unit, index};
            const bool gradient_leaves = !options.gradients.empty() && options.gradients[layout.number(tile)];
            there = there && layout.states_tier(tile) == Tier::host && !gradient_leaves;
        }
        whole[unit] = there;
    }
    return whole;
}

}  // namespace

Driver::State::State(const DriverDeps& given, const DriverOptions& options)
    : deps(given),
      in_memory(given.fill),
      deadline(options.deadline),
      memory(*deps.io, *deps.store, *deps.pool, *deps.device, *deps.bringing, *deps.layout,
             {options.staging_tiles, options.gradient_tile_bytes}, {options.window.window_bytes, options.passage_bytes},
             deps.fill, deps.lane),
      in_host_memory(units_in_host_memory(*deps.layout, options)),
      mailbox(deps.layout->unit_count(), deps.layout->tiles().size()),
      window(units_of_window(*deps.layout, deps.bringing->apart()), options.window.window_bytes, options.window.depth),
      fetched_by_compute(deps.layout->unit_count()),
      awaiting(deps.layout->unit_count()),
      loop({.io = deps.io,
            .store = deps.store,
            .device = deps.device,
            .bringing = deps.bringing,
            .layout = deps.layout,
            .memory = &memory,
            .in_memory = in_memory,
            .spill = deps.spill,
            .gradients = options.gradients,
            .mailbox = &mailbox,
            .trace = deps.trace,
            .deadline = options.deadline},
           copier_deps(deps, memory, options)) {
    deps.fill = nullptr;  // what it holds is not needed any more
}

std::uint64_t Driver::State::send(Order order) {
    const std::uint64_t number = mailbox.send(std::move(order));
    deps.io->wake();
    return number;
}

bool Driver::State::is_visited(std::uint32_t unit) const {
    return std::find(visit.units.begin(), visit.units.end(), unit) != visit.units.end();
}

// Their places are those that compute has left by now; on a device it may still be reading there.
void Driver::State::send_fetches(std::span<const Fetch> fetches) {
    if (fetches.empty()) return;
    const Ticket left = deps.device->compute_mark();
    for (const Fetch& fetch : fetches) {
        const FetchUse use = is_to_come(fetch.unit) ? FetchUse::both : FetchUse::compute;
        if (use == FetchUse::compute) fetched_by_compute[fetch.unit] = fetch.number;
        mailbox.send(orders::Bring{fetch, use, left});
    }
    deps.io->wake();
}

void Driver::State::send_fetches_of_update(std::span<const Fetch> fetches) {
    for (const Fetch& fetch : fetches) mailbox.send(orders::Bring{fetch, FetchUse::update});
    deps.io->wake();
}

// It lies where compute has read it.
void Driver::State::send_fetch_in_place(std::uint32_t unit) {
    const WindowPlan::Place place = *window.place(unit);
    mailbox.send(orders::Bring{.fetch = {place.fetch, unit, place.offset_bytes, window.units()[unit].bytes, true},
                               .use = FetchUse::in_place});
    deps.io->wake();
}

// Without a pass: units that await their update and are not in host memory, as visits.
std::vector<Visit> Driver::State::fetched_by_update() const {
    std::vector<Visit> visits;
    for (const std::uint32_t unit : update_order)
        if (awaiting[unit] && memory.weights().resident(unit) == nullptr) visits.push_back({{unit}});
    return visits;
}

UnitInHand::Tiles Driver::State::tiles_of(std::uint32_t unit) const {
    return all_at_once && in_host_memory[unit] ? UnitInHand::Tiles::all_at_once : UnitInHand::Tiles::through_driver;
}

// Waits until its weights are in host memory.
UnitInHand& Driver::State::take_in_hand(std::uint32_t unit) {
    std::byte* weights = memory.weights().resident(unit);
    const bool resident = weights != nullptr;
    PENSTOCK_CHECK(phase == Phase::between || resident || is_visited(unit),
                   "unit {} is updated within a pass, but is not visited", unit);
    window_spent = window_spent || phase == Phase::between;
    const auto found = window.place(unit);
    // A copy that compute did not wait for may still read what is in host memory.
    const bool in_place = found && found->fetch == fetched_by_compute[unit];
    if (in_place) {
        send_fetch_in_place(unit);
    } else if (phase == Phase::between && !resident) {
        std::vector<Visit> ahead = fetched_by_update();
        std::erase(ahead, Visit{{unit}});
        send_fetches_of_update(window.visit({{unit}}, ahead));
    }
    send(orders::AwaitUpdate{unit});
    const auto place = window.place(unit);
    in_hand_fetched = place && (phase == Phase::passing || !resident || in_place);
    if (in_hand_fetched) {
        const auto start = Clock::now();
        const TraceStart traced_from = trace_start(deps.trace);
        // It is compute's from here on, though to the driver it is still on offer until it reads BeginUnit.
        weights = mailbox.wait_to_update({unit, place->fetch});
        traced(traced_from, {.lane = TraceLane::wait_tiles, .unit = unit});
        waits.tiles += Clock::now() - start;
        send(orders::BeginUnit{unit});
    }
    return in_hand.emplace(in_hand_deps(TraceThread::compute),
                           UnitInHand::Unit{.unit = unit, .tiles = tiles_of(unit), .weights = weights, .begun = begun});
}

// Its last tile was put back: compute may read it.
void Driver::State::unit_updated() {
    const std::uint32_t unit = in_hand->unit();
    waits.tiles += in_hand->waited();
    in_hand.reset();
    awaiting[unit] = false;
    if (!in_hand_fetched) return gather_updated(unit);
    send(orders::EndUnit{unit});
    if (phase != Phase::passing) return window.end_visit();
    if (update_at == UpdateAt::departure) return updated_behind(unit);
    const ArrivedFetch wanted{unit, window.place(unit)->fetch};
    fetched_by_compute[unit] = wanted.fetch;  // from now on
    mailbox.wait_for({&wanted, 1});
    compute_after(mailbox.arrived(unit).there);
}

// Behind compute, which is still at the visit: the next one finds it anew.
void Driver::State::updated_behind(std::uint32_t unit) {
    updated_in_pass = true;
    if (deps.bringing->apart()) stale.push_back(unit);
}

void Driver::State::wait_for_writes() {
    if (!std::exchange(update_open, false)) return;
    wait(TraceLane::wait_commit, waits.commit, [&](const Progress& progress) { return progress.unwritten_tiles == 0; });
}

void Driver::State::wait_for_weights() {
    std::vector<ArrivedFetch> visited;
    for (const std::uint32_t unit : visit.units)
        if (const auto place = window.place(unit); place && !is_to_come(unit)) visited.push_back({unit, place->fetch});
    std::vector<ArrivedFetch> wanted = visited;
    std::erase_if(wanted, [&](const ArrivedFetch& each) { return mailbox.has(each); });
    if (!wanted.empty()) {
        for (const ArrivedFetch& each : wanted) send(orders::Await{each.unit});
        const auto start = Clock::now();
        const TraceStart traced_from = trace_start(deps.trace);
        mailbox.wait_for(wanted);
        traced(traced_from, {.lane = TraceLane::wait_weights, .unit = wanted.front().unit});
        waits.weights += Clock::now() - start;
    }
    for (const ArrivedFetch& each : visited) compute_after(mailbox.arrived(each.unit).there);
}

// A stream waits by itself. A thread stands still; whether a copy takes too long is for the driver's thread to say.
void Driver::State::compute_after(Ticket there) {
    const auto start = Clock::now();
    while (deps.device->computes_on_caller() && !deps.device->wait(there, std::chrono::milliseconds(100)))
        mailbox.check();
    waits.weights += Clock::now() - start;
    deps.device->compute_after(there);
}

// Of one tile, by itself.
void Driver::State::transfer(Order order) {
    PENSTOCK_CHECK(phase == Phase::between && !update_open,
                   "a tile is read or written by itself within a pass or an update");
    begun = send(std::move(order));
    const std::uint64_t wanted = ++transfers;
    std::chrono::nanoseconds waited{0};  // of nobody's step
    wait(TraceLane::wait_tiles, waited, [&](const Progress& progress) { return progress.transfers == wanted; });
}

void Driver::State::send_spill(const orders::SendSpill& order) {
    PENSTOCK_CHECK(deps.spill != nullptr, "something is spilled, but the driver has no spill");
    if (order.block.index >= spill_errands.size()) spill_errands.resize(order.block.index + 1);
    ++spill_errands[order.block.index];
    send(order);
}

void Driver::State::gather_updated(std::uint32_t unit) {
    bring_residents([&] { return memory.gathered_residents().updated(unit, deadline); });
}

// Host memory has new ones.
void Driver::State::renew_gathered_residents(GatheredResidents::Renew what) {
    bring_residents([&] { return memory.gathered_residents().renew(what, deadline); });
}

template <typename Bring>
void Driver::State::bring_residents(Bring bring) {
    const auto start = Clock::now();
    const bool answered = bring();
    if (deps.lane != nullptr) waits.ranks += Clock::now() - start;
    if (answered) return;
    device_stuck = true;
    throw Error(ExitCode::internal,
                fmt::format("resident weights are on their way to device '{}' for more than {} s: the device is stuck; "
                            "the last committed step is safe. Run again to resume",
                            deps.device->name(), deadline.count()));
}

}  // namespace penstock::zero
