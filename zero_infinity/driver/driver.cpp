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

// What an update fetches, in its order: what there is to train that is not in host memory.
std::vector<Visit> fetched_by_update(const ModelLayout& layout, const WeightMemory& memory) {
    std::vector<Visit> visits;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        if (layout.unit(unit).tile_count() > 0 && memory.resident(unit) == nullptr) visits.push_back({{unit}});
    return visits;
}

WindowSizes window_sizes(const DriverDeps& deps, const DriverOptions& options) {
    return {options.host_window_bytes, deps.device->shares_host_memory() ? 0 : options.window.window_bytes};
}

}  // namespace

struct Driver::State {
    // Where the compute thread is in a step.
    enum class Phase : std::uint8_t {
        between,   // passes and updates may begin; windows and staging are free
        passing,   // compute is at a visit
        updating,  // tiles are staged; ends with end_update() or commit()
    };

    State(const DriverDeps& given, const DriverOptions& options);

    std::uint64_t send(const Order& order);
    template <typename Reached>
    void wait(std::chrono::nanoseconds& waited, Reached reached);
    bool is_visited(std::uint32_t unit) const;
    void send_fetches(std::span<const Fetch> fetches);
    void fetch_for_update(const Visit& visit);
    std::byte* weights_to_update(std::uint32_t unit);
    void end_update();
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
    Visit visit;  // where compute is
    const std::vector<Visit> update_fetches;
    std::span<const Visit> update_fetches_ahead;
    std::byte* updated_weights = nullptr;  // of the unit that is being updated
    std::uint64_t next_tile = 0;           // to be handed out
    std::uint64_t put_back = 0;            // so many were
    std::uint64_t begun = 0;               // number of the order that began the update: older progress is of another
    std::uint64_t commits = 0;
    std::uint64_t transfers = 0;
    std::uint64_t copies = 0;  // begun
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
      update_fetches(fetched_by_update(*deps.layout, memory.weights())),
      loop({.io = deps.io,
            .store = deps.store,
            .device = deps.device,
            .layout = deps.layout,
            .memory = &memory,
            .mailbox = &mailbox,
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
    for (const Fetch& fetch : fetches) mailbox.send({.kind = Order::Kind::fetch, .fetch = fetch, .after = left});
    deps.io->wake();
}

void Driver::State::fetch_for_update(const Visit& to) {
    for (const Fetch& fetch : window.visit(to, update_fetches_ahead))
        mailbox.send({.kind = Order::Kind::fetch_for_update, .fetch = fetch});
    deps.io->wake();
}

// Where the unit's trainable weights lie in host memory, once they are there.
std::byte* Driver::State::weights_to_update(std::uint32_t unit) {
    if (std::byte* resident = memory.weights().resident(unit)) return resident;
    update_fetches_ahead = update_fetches_ahead.subspan(1);
    fetch_for_update({{unit}});
    send({.kind = Order::Kind::await, .fetch = {.unit = unit}});
    const auto start = Clock::now();
    std::byte* weights = mailbox.wait_to_update({unit, window.place(unit)->fetch});
    waits.tiles += Clock::now() - start;
    return weights;
}

// What lies in the window was left behind by the update, where it was in the window at all.
void Driver::State::end_update() {
    window.end_visit();
    window.forget();
    phase = Phase::between;
    renew_device_residents();
}

void Driver::State::wait_for_weights() {
    std::vector<ArrivedFetch> visited;
    for (const std::uint32_t unit : visit.units)
        if (const auto place = window.place(unit)) visited.push_back({unit, place->fetch});
    std::vector<ArrivedFetch> wanted = visited;
    std::erase_if(wanted, [&](const ArrivedFetch& each) { return mailbox.has(each); });
    if (!wanted.empty()) {
        for (const ArrivedFetch& each : wanted) send({.kind = Order::Kind::await, .fetch = {.unit = each.unit}});
        const auto start = Clock::now();
        mailbox.wait_for(wanted);
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
    mailbox.wait([&](const Progress& progress) { return progress.orders_done >= begun && reached(progress); });
    waited += Clock::now() - start;
}

// Of one tile, by itself.
void Driver::State::transfer(const Order& order) {
    PENSTOCK_CHECK(phase == Phase::between, "a tile is read or written by itself within a pass or an update");
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
    PENSTOCK_CHECK(s.phase != State::Phase::updating, "a visit before the update's commit");
    const std::span<const Fetch> fetches = s.window.visit(visit, ahead, held);
    s.phase = State::Phase::passing;
    s.visit = visit;
    s.send_fetches(fetches);
    s.wait_for_weights();
}

UnitMemory Driver::memory(std::uint32_t unit) const {
    const State& s = *state_;
    PENSTOCK_CHECK((s.phase == State::Phase::passing && s.is_visited(unit)) || s.memory.weights().stays(unit),
                   "memory of unit {}, which is not visited", unit);
    const auto place = s.window.place(unit);
    return s.memory.weights().unit(unit, place ? place->offset_bytes : 0);
}

void Driver::end_pass() {
    State& s = *state_;
    if (s.phase != State::Phase::passing) return;
    s.window.end_visit();
    s.visit = {};
    s.phase = State::Phase::between;
}

void Driver::begin_update(ResidentTiles residents) {
    PENSTOCK_CHECK(state_->phase == State::Phase::between, "an update begins within a pass or another update");
    state_->window.forget();
    state_->phase = State::Phase::updating;
    state_->next_tile = state_->put_back = 0;
    state_->begun = state_->send({.kind = Order::Kind::begin_update, .residents = residents});
    state_->update_fetches_ahead = state_->update_fetches;
    state_->fetch_for_update({});
}

std::optional<StagedTile> Driver::next_tile() {
    PENSTOCK_CHECK(state_->phase == State::Phase::updating, "a tile is asked for, but no update has begun");
    State& s = *state_;
    const std::span<const UnitTile> tiles = s.deps.layout->tiles();
    if (s.next_tile == tiles.size()) return std::nullopt;
    const std::uint64_t number = s.next_tile++;
    const UnitTile tile = tiles[number];
    if (tile.tile == 0) s.updated_weights = s.weights_to_update(tile.unit);
    const auto start = Clock::now();
    const StagedStates states = s.mailbox.wait_staged(number);
    s.waits.tiles += Clock::now() - start;
    const UnitObjects& objects = s.deps.layout->objects(tile.unit);
    std::byte* weights =
        objects.weights ? s.updated_weights + s.deps.layout->offset_bytes({*objects.weights, tile.tile}) : nullptr;
    return StagedTile{tile, number, {weights, states.data, s.deps.layout->unit(tile.unit).tile_numel(tile.tile)}};
}

void Driver::put_back(const StagedTile& tile) {
    PENSTOCK_CHECK(tile.number == state_->put_back && tile.number < state_->next_tile,
                   "tile {} is put back, {} is next", tile.number, state_->put_back);
    ++state_->put_back;
    state_->send({.kind = Order::Kind::put_back, .number = tile.number, .weights = tile.view.weights});
}

void Driver::end_update() {
    const std::uint64_t count = state_->deps.layout->tiles().size();
    PENSTOCK_CHECK(state_->phase == State::Phase::updating && state_->put_back == count,
                   "an update ends after {} of {} tiles, or none has begun", state_->put_back, count);
    state_->wait(state_->waits.commit, [&](const Progress& progress) { return progress.written_tiles == count; });
    state_->end_update();
}

void Driver::commit(const store::ClientState& client) {
    PENSTOCK_CHECK(state_->phase != State::Phase::passing, "a commit within a pass");
    const std::uint64_t count = state_->deps.layout->tiles().size();
    PENSTOCK_CHECK(state_->phase == State::Phase::between || state_->put_back == count, "a commit after {} of {} tiles",
                   state_->put_back, count);
    state_->begun = state_->send({.kind = Order::Kind::commit, .client = &client});
    const std::uint64_t wanted = ++state_->commits;
    state_->wait(state_->waits.commit, [&](const Progress& progress) { return progress.commits == wanted; });
    if (state_->phase == State::Phase::updating) state_->end_update();
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
    PENSTOCK_CHECK(state_->phase == State::Phase::between, "a copy of a generation begins within a pass or an update");
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
