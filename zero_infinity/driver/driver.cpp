#include "zero_infinity/driver/driver.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "zero_infinity/driver/driver_loop.h"
#include "zero_infinity/plan/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace penstock::zero {
namespace {

using Clock = std::chrono::steady_clock;

SnapshotCopierDeps copier_deps(const DriverDeps& deps, const DriverOptions& options) {
    return {.io = deps.io,
            .store = deps.store,
            .caching = options.caching,
            .job = options.job,
            .memory = options.snapshots ? deps.pool->acquire(deps.pool->use(snapshot_use), snapshot_bytes(*deps.layout))
                                        : pool::Lease()};
}

// Of the units, those that pass through the window.
std::vector<UnitBytes> units_of(const ModelLayout& layout, const WeightMemory& memory) {
    std::vector<UnitBytes> units;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        units.push_back({layout.unit(unit).spec().name, memory.passes_through(unit) ? layout.group_bytes(unit) : 0,
                         memory.resident(unit) != nullptr});
    return units;
}

WindowSizes window_sizes(const DriverDeps& deps, const DriverOptions& options) {
    return {options.host_window_bytes, deps.device->shares_host_memory() ? 0 : options.window.window_bytes};
}

}  // namespace

struct Driver::State {
    // Where the compute thread is in a step.
    enum class Phase : std::uint8_t {
        between,  // passes and updates may begin
        passing,  // compute is at a visit
    };
    // A unit that is being updated.
    struct InHand {
        std::uint32_t unit = 0;
        std::byte* weights = nullptr;  // trainable ones, in host memory
        std::uint32_t next_tile = 0;
        std::uint32_t put_back = 0;  // so many were
        bool fetched = false;        // its weights are not resident in host memory, or pass on to a device
    };

    State(const DriverDeps& given, const DriverOptions& options);

    std::uint64_t send(const Order& order);
    template <typename Reached>
    void wait(std::chrono::nanoseconds& waited, Reached reached);
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
    void take_in_hand(std::uint32_t unit);
    void unit_updated();
    void wait_for_writes();
    void wait_for_weights();
    void compute_after(Ticket there);
    void transfer(const Order& order);
    void renew_device_residents();

    DriverDeps deps;
    const std::chrono::seconds deadline;
    const DriverMemory memory;
    Mailbox mailbox;
    WindowPlan window;

    WaitTimes waits;
    Phase phase = Phase::between;
    Visit visit;                              // where compute is
    std::vector<std::uint32_t> update_order;  // units of the update under way; those before next_in_order are done with
    std::size_t next_in_order = 0;
    std::uint64_t update_tiles = 0;  // of the update under way
    UpdateAt update_at = UpdateAt::arrival;
    std::vector<bool> awaiting;                     // by unit
    std::vector<std::uint64_t> fetched_by_compute;  // by unit: the newest fetch that is as compute reads it
    std::vector<std::uint32_t> stale;               // on the device, where they were updated behind compute
    std::optional<InHand> in_hand;
    TraceStart visit_started, tile_started;
    bool update_open = false;   // its writes may be under way
    bool window_spent = false;  // by updates without a pass: what lies there is not whole
    std::uint64_t begun = 0;    // number of the order that began the update: older progress is of another
    std::uint64_t commits = 0;  // begun
    bool committing = false;
    std::uint64_t transfers = 0, copies = 0;  // begun
    bool device_stuck = false;

    DriverLoop loop;  // its thread starts last and ends first
};

Driver::State::State(const DriverDeps& given, const DriverOptions& options)
    : deps(given),
      deadline(options.deadline),
      memory(*deps.io, *deps.store, *deps.pool, *deps.device, *deps.layout, options.staging_tiles,
             window_sizes(deps, options)),
      mailbox(deps.layout->unit_count(), deps.layout->tiles().size()),
      window(units_of(*deps.layout, memory.weights()), options.window.window_bytes, options.window.depth),
      awaiting(deps.layout->unit_count()),
      fetched_by_compute(deps.layout->unit_count()),
      loop({.io = deps.io,
            .store = deps.store,
            .device = deps.device,
            .layout = deps.layout,
            .memory = &memory,
            .mailbox = &mailbox,
            .trace = deps.trace,
            .deadline = options.deadline},
           copier_deps(deps, options)) {}

std::uint64_t Driver::State::send(const Order& order) {
    const std::uint64_t number = mailbox.send(order);
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
        mailbox.send({.kind = Order::Kind::fetch, .fetch = fetch, .use = use, .after = left});
    }
    deps.io->wake();
}

void Driver::State::send_fetches_of_update(std::span<const Fetch> fetches) {
    for (const Fetch& fetch : fetches)
        mailbox.send({.kind = Order::Kind::fetch, .fetch = fetch, .use = FetchUse::update});
    deps.io->wake();
}

// It lies where compute has read it.
void Driver::State::send_fetch_in_place(std::uint32_t unit) {
    const WindowPlan::Place place = *window.place(unit);
    mailbox.send({.kind = Order::Kind::fetch,
                  .fetch = {place.fetch, unit, place.offset_bytes, window.units()[unit].bytes, true},
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

// Waits until its weights are in host memory.
void Driver::State::take_in_hand(std::uint32_t unit) {
    std::byte* resident = memory.weights().resident(unit);
    PENSTOCK_CHECK(phase == Phase::between || resident != nullptr || is_visited(unit),
                   "unit {} is updated within a pass, but is not visited", unit);
    in_hand = InHand{.unit = unit, .weights = resident};
    window_spent = window_spent || phase == Phase::between;
    const auto found = window.place(unit);
    if (found && found->fetch == fetched_by_compute[unit]) {
        send_fetch_in_place(unit);
    } else if (phase == Phase::between && resident == nullptr) {
        std::vector<Visit> ahead = fetched_by_update();
        std::erase(ahead, Visit{{unit}});
        send_fetches_of_update(window.visit({{unit}}, ahead));
    }
    send({.kind = Order::Kind::await_update, .fetch = {.unit = unit}});
    const auto place = window.place(unit);
    in_hand->fetched = place && (phase == Phase::passing || resident == nullptr);
    if (!in_hand->fetched) return;
    const auto start = Clock::now();
    const TraceStart traced_from = trace_start(deps.trace);
    in_hand->weights = mailbox.wait_to_update({unit, place->fetch});
    traced(traced_from, {.lane = TraceLane::wait_tiles, .unit = unit});
    waits.tiles += Clock::now() - start;
    send({.kind = Order::Kind::begin_unit, .fetch = {.unit = unit}});
}

// Its last tile was put back: compute may read it.
void Driver::State::unit_updated() {
    const InHand done = *std::exchange(in_hand, std::nullopt);
    awaiting[done.unit] = false;
    if (!done.fetched) return;
    send({.kind = Order::Kind::end_unit, .fetch = {.unit = done.unit}});
    if (phase != Phase::passing) return window.end_visit();
    if (update_at == UpdateAt::departure) {
        if (!deps.device->shares_host_memory()) stale.push_back(done.unit);
        return;
    }
    const ArrivedFetch wanted{done.unit, window.place(done.unit)->fetch};
    mailbox.wait_for({&wanted, 1});
    compute_after(mailbox.arrived(done.unit).there);
}

void Driver::State::wait_for_writes() {
    if (!std::exchange(update_open, false)) return;
    wait(waits.commit, [&](const Progress& progress) { return progress.written_tiles == update_tiles; });
}

void Driver::State::wait_for_weights() {
    std::vector<ArrivedFetch> visited;
    for (const std::uint32_t unit : visit.units)
        if (const auto place = window.place(unit); place && !is_to_come(unit)) visited.push_back({unit, place->fetch});
    std::vector<ArrivedFetch> wanted = visited;
    std::erase_if(wanted, [&](const ArrivedFetch& each) { return mailbox.has(each); });
    if (!wanted.empty()) {
        for (const ArrivedFetch& each : wanted) send({.kind = Order::Kind::await, .fetch = {.unit = each.unit}});
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

template <typename Reached>
void Driver::State::wait(std::chrono::nanoseconds& waited, Reached reached) {
    const auto start = Clock::now();
    const TraceStart from = trace_start(deps.trace);
    mailbox.wait([&](const Progress& progress) { return progress.orders_done >= begun && reached(progress); });
    traced(from, {.lane = TraceLane::wait_commit});
    waited += Clock::now() - start;
}

// Of one tile, by itself.
void Driver::State::transfer(const Order& order) {
    PENSTOCK_CHECK(phase == Phase::between && !update_open,
                   "a tile is read or written by itself within a pass or an update");
    begun = send(order);
    const std::uint64_t wanted = ++transfers;
    std::chrono::nanoseconds waited{0};  // of nobody's step
    wait(waited, [&](const Progress& progress) { return progress.transfers == wanted; });
}

// Host memory has new ones.
void Driver::State::renew_device_residents() {
    if (memory.device_residents().copy(deadline)) return;
    device_stuck = true;
    throw Error(ExitCode::internal,
                fmt::format("resident weights are on their way to device '{}' for more than {} s: the device is stuck; "
                            "the last committed step is safe. Run again to resume",
                            deps.device->name(), deadline.count()));
}

Driver::Driver(const DriverDeps& deps, const DriverOptions& options) : state_(std::make_unique<State>(deps, options)) {
    try {
        state_->renew_device_residents();
    } catch (...) {
        if (stuck()) static_cast<void>(state_.release());
        throw;
    }
}

void Driver::stop() noexcept {
    state_->loop.stop();
}

Driver::~Driver() {
    stop();
    if (stuck()) static_cast<void>(state_.release());  // the device may still write into our memory
}

bool Driver::stuck() const noexcept {
    return state_->loop.stuck() || state_->device_stuck;
}

void Driver::visit(const Visit& visit, std::span<const Visit> ahead, std::span<const std::uint32_t> held) {
    State& s = *state_;
    PENSTOCK_CHECK(!s.in_hand, "a visit while unit {} is being updated", s.in_hand->unit);
    if (std::exchange(s.window_spent, false)) s.window.forget();
    for (const std::uint32_t unit : std::exchange(s.stale, {})) s.window.forget(unit);
    s.leave_visit();
    const std::span<const Fetch> fetches = s.window.visit(visit, ahead, held);
    s.phase = State::Phase::passing;
    s.visit = visit;
    s.send_fetches(fetches);
    s.wait_for_weights();
    s.visit_started = trace_start(s.deps.trace);
}

UnitMemory Driver::memory(std::uint32_t unit) const {
    const State& s = *state_;
    PENSTOCK_CHECK((s.phase == State::Phase::passing && s.is_visited(unit)) || s.memory.weights().stays(unit),
                   "memory of unit {}, which is not visited", unit);
    PENSTOCK_CHECK(!s.is_to_come(unit), "memory of unit {}, which awaits its update", unit);
    const auto place = s.window.place(unit);
    return s.memory.weights().unit(unit, place ? place->offset_bytes : 0);
}

void Driver::end_pass() {
    State& s = *state_;
    if (s.phase != State::Phase::passing) return;
    s.leave_visit();
    s.window.end_visit();
    s.visit = {};
    s.phase = State::Phase::between;
}

void Driver::begin_update(std::vector<std::uint32_t> units, ResidentTiles residents, UpdateAt at) {
    State& s = *state_;
    PENSTOCK_CHECK(s.phase == State::Phase::between && !s.update_open,
                   "an update begins within a pass or another update");
    s.window.forget();
    s.window_spent = false;
    s.stale.clear();
    s.update_at = at;
    s.update_order = std::move(units);
    s.next_in_order = 0;
    s.update_tiles = 0;
    for (const std::uint32_t unit : s.update_order) {
        s.awaiting[unit] = true;
        s.update_tiles += s.deps.layout->unit(unit).tile_count();
    }
    s.update_open = true;
    s.begun = s.send({.kind = Order::Kind::begin_update, .units = s.update_order, .residents = residents});
}

bool Driver::awaits_update(std::uint32_t unit) const noexcept {
    return state_->awaiting[unit];
}

std::optional<std::uint32_t> Driver::next_awaiting() noexcept {
    State& s = *state_;
    while (s.next_in_order < s.update_order.size() && !s.awaiting[s.update_order[s.next_in_order]]) ++s.next_in_order;
    return s.next_in_order == s.update_order.size() ? std::nullopt : std::optional(s.update_order[s.next_in_order]);
}

std::optional<StagedTile> Driver::next_tile(std::uint32_t unit) {
    State& s = *state_;
    if (!s.in_hand) {
        PENSTOCK_CHECK(s.awaiting[unit], "tiles of unit {}, which awaits no update", unit);
        s.take_in_hand(unit);
    }
    PENSTOCK_CHECK(s.in_hand->unit == unit, "tiles of unit {} while unit {} is in hand", unit, s.in_hand->unit);
    const UnitLayout& layout = s.deps.layout->unit(unit);
    if (s.in_hand->put_back == layout.tile_count()) {
        s.unit_updated();
        return std::nullopt;
    }
    PENSTOCK_CHECK(s.in_hand->next_tile < layout.tile_count(), "the last tile of unit {} is not put back", unit);
    const UnitTile tile{unit, s.in_hand->next_tile++};
    const std::uint64_t number = s.deps.layout->number(tile);
    const auto start = Clock::now();
    s.tile_started = trace_start(s.deps.trace);
    const StagedStates states = s.mailbox.wait_staged(number);
    s.traced(s.tile_started, {.lane = TraceLane::wait_tiles, .unit = unit, .tile = tile.tile});
    s.tile_started = trace_start(s.deps.trace);
    s.waits.tiles += Clock::now() - start;
    const UnitObjects& objects = s.deps.layout->objects(unit);
    std::byte* weights =
        objects.weights ? s.in_hand->weights + s.deps.layout->offset_bytes({*objects.weights, tile.tile}) : nullptr;
    return StagedTile{tile, number, {weights, states.data, layout.tile_numel(tile.tile)}};
}

void Driver::put_back(const StagedTile& tile) {
    State& s = *state_;
    PENSTOCK_CHECK(s.in_hand && tile.tile == (UnitTile{s.in_hand->unit, s.in_hand->put_back}) &&
                       s.in_hand->put_back < s.in_hand->next_tile,
                   "tile {} is put back, but was not handed out", tile.number);
    ++s.in_hand->put_back;
    s.traced(s.tile_started, {.lane = TraceLane::update, .unit = tile.tile.unit, .tile = tile.tile.tile});
    s.send({.kind = Order::Kind::put_back, .number = tile.number, .weights = tile.view.weights});
}

void Driver::take_back(const std::vector<std::uint32_t>& units) {
    State& s = *state_;
    PENSTOCK_CHECK(s.phase == State::Phase::between && !s.update_open,
                   "tiles are taken back within a pass or an update");
    s.window.forget();
    s.send({.kind = Order::Kind::take_back, .units = units});
}

void Driver::renew_residents() {
    state_->renew_device_residents();
}

void Driver::end_update() {
    PENSTOCK_CHECK(!next_awaiting(), "an update ends, but unit {} awaits it", *next_awaiting());
    state_->wait_for_writes();
}

void Driver::begin_commit(const store::ClientState& client) {
    State& s = *state_;
    PENSTOCK_CHECK(!next_awaiting(), "a commit, but unit {} awaits its update", *next_awaiting());
    PENSTOCK_CHECK(!commits(), "a commit while one is under way");
    s.begun = s.send({.kind = Order::Kind::commit, .client = std::make_shared<const store::ClientState>(client)});
    ++s.commits;
    s.committing = true;
}

bool Driver::commits() const noexcept {
    return state_->committing;
}

bool Driver::commit_ended() {
    state_->mailbox.check();
    return state_->mailbox.progress().commits == state_->commits;
}

void Driver::finish_commit() {
    State& s = *state_;
    if (!s.committing) return;
    s.wait(s.waits.commit, [&](const Progress& progress) { return progress.commits == s.commits; });
    s.committing = s.update_open = false;
}

void Driver::commit(const store::ClientState& client) {
    PENSTOCK_CHECK(state_->phase == State::Phase::between, "a commit within a pass");
    begin_commit(client);
    finish_commit();
}

void Driver::read(store::TileId tile, std::span<std::byte> memory) {
    state_->transfer({.kind = Order::Kind::read, .tile = tile, .memory = memory});
}

void Driver::write(store::TileId tile, std::span<std::byte> memory) {
    State& s = *state_;
    s.window.forget();
    s.transfer({.kind = Order::Kind::write, .tile = tile, .memory = memory});
    if (s.memory.device_residents().has(tile)) s.renew_device_residents();
}

void Driver::begin_snapshot(const std::string& path) {
    PENSTOCK_CHECK(state_->phase == State::Phase::between && !state_->update_open,
                   "a copy of a generation begins within a pass or an update");
    PENSTOCK_CHECK(state_->mailbox.progress().ended_copies == state_->copies, "a copy to {} while another is under way",
                   path);
    ++state_->copies;
    state_->send({.kind = Order::Kind::snapshot, .path = path});
}

SnapshotProgress Driver::snapshot_progress() const {
    const Progress progress = state_->mailbox.progress();
    if (progress.ended_copies == state_->copies) return {};
    SnapshotProgress snapshot = progress.snapshot;
    snapshot.under_way = true;  // from its order on
    return snapshot;
}

void Driver::finish_snapshot(const std::function<bool(const SnapshotProgress&)>& wanted) {
    const auto ended = [&](const Progress& progress) { return progress.ended_copies == state_->copies; };
    bool stopped = false;
    while (!state_->mailbox.wait_for(std::chrono::milliseconds(100), ended)) {
        if (stopped || wanted(snapshot_progress())) continue;
        state_->send({.kind = Order::Kind::end_snapshot});
        stopped = true;
    }
}

std::vector<EndedSnapshot> Driver::take_snapshots() {
    return state_->mailbox.take_snapshots();
}

std::uint64_t Driver::fetched_bytes() const noexcept {
    return state_->window.fetched_bytes();
}

const WaitTimes& Driver::waits() const noexcept {
    return state_->waits;
}

std::vector<std::string> Driver::take_notes() {
    return state_->mailbox.take_notes();
}

}  // namespace penstock::zero
