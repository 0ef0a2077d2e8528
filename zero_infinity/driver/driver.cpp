#include "zero_infinity/driver/driver.h"

#include "zero_infinity/driver/driver_state.h"

namespace penstock::zero {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Driver::Driver(const DriverDeps& deps, const DriverOptions& options) : state_(std::make_unique<State>(deps, options)) {
    try {
        state_->renew_gathered_residents(GatheredResidents::Renew::all);
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

bool Driver::failed() const {
    return state_->mailbox.failed() || stuck();
}

bool Driver::stuck() const noexcept {
    return state_->loop.stuck() || state_->device_stuck;
}

void Driver::visit(const Visit& visit, std::span<const Visit> ahead, std::span<const std::uint32_t> held) {
    State& s = *state_;
    PENSTOCK_CHECK(!s.in_hand, "a visit while unit {} is being updated", s.in_hand->unit());
    s.mailbox.check();  // it may send for nothing, and wait for nothing
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
    s.window_spent = std::exchange(s.updated_in_pass, false) || s.window_spent;
    s.visit = {};
    s.phase = State::Phase::between;
}

void Driver::begin_update(std::vector<std::uint32_t> units, ResidentTiles residents, UpdateAt at,
                          GradientsFrom gradients) {
    State& s = *state_;
    PENSTOCK_CHECK((s.phase == State::Phase::between || at == UpdateAt::departure) && !next_awaiting() && !commits(),
                   "an update begins within a pass, another update or a commit");
    if (s.phase == State::Phase::between) {
        s.window.forget();
        s.window_spent = false;
        s.stale.clear();
    }
    s.update_at = at;
    s.update_order = std::move(units);
    s.next_in_order = 0;
    for (const std::uint32_t unit : s.update_order) s.awaiting[unit] = true;
    s.all_at_once = residents == ResidentTiles::held_back;
    std::vector<std::uint32_t> through_driver;
    for (const std::uint32_t unit : s.update_order)
        if (s.tiles_of(unit) == UnitInHand::Tiles::through_driver) through_driver.push_back(unit);
    if (through_driver.size() < s.update_order.size()) s.wait_for_writes();
    s.update_open = true;
    s.begun =
        s.send(orders::BeginUpdate{.units = std::move(through_driver), .residents = residents, .gradients = gradients});
}

bool Driver::awaits_update(std::uint32_t unit) const noexcept {
    return state_->awaiting[unit];
}

std::optional<std::uint32_t> Driver::next_awaiting() noexcept {
    State& s = *state_;
    while (s.next_in_order < s.update_order.size() && !s.awaiting[s.update_order[s.next_in_order]]) ++s.next_in_order;
    return s.next_in_order == s.update_order.size() ? std::nullopt : std::optional(s.update_order[s.next_in_order]);
}

UnitInHand& Driver::take(std::uint32_t unit) {
    State& s = *state_;
    PENSTOCK_CHECK(!s.in_hand, "unit {} is taken while unit {} is in hand", unit, s.in_hand->unit());
    PENSTOCK_CHECK(s.awaiting[unit], "unit {} is taken, but awaits no update", unit);
    return s.take_in_hand(unit);
}

void Driver::end_unit() {
    PENSTOCK_CHECK(state_->in_hand && state_->in_hand->ended(), "a unit ends, but none is in hand, or not put back");
    state_->unit_updated();
}

UnitInHand Driver::hand_out(std::uint32_t unit) {
    State& s = *state_;
    PENSTOCK_CHECK(s.awaiting[unit] && is_resident(unit), "unit {} is handed out, but awaits no update, or is fetched",
                   unit);
    s.awaiting[unit] = false;
    s.window_spent = s.window_spent || s.phase == State::Phase::between;
    if (s.phase == State::Phase::passing) s.updated_behind(unit);
    s.send(orders::Shut{unit});
    return {s.in_hand_deps(TraceThread::updates),
            {.unit = unit, .tiles = s.tiles_of(unit), .weights = s.memory.weights().resident(unit), .shut = true}};
}

void Driver::end_unit(const UnitInHand& handed_out) {
    PENSTOCK_CHECK(handed_out.ended(), "unit {} ends, but not all of its tiles were put back", handed_out.unit());
    state_->gather_updated(handed_out.unit());
}

void Driver::fail(const Error& error) noexcept {
    try {
        state_->send(orders::Fail{error.code(), error.what()});
    } catch (const Error&) {
        return;  // something else has failed before
    }
}

bool Driver::is_resident(std::uint32_t unit) const noexcept {
    return state_->memory.weights().resident(unit) != nullptr;
}

void Driver::take_back(const std::vector<std::uint32_t>& units) {
    State& s = *state_;
    PENSTOCK_CHECK(s.phase == State::Phase::between && !s.update_open,
                   "tiles are taken back within a pass or an update");
    s.window.forget();
    s.send(orders::TakeBack{units});
}

void Driver::renew_residents(GatheredResidents::Renew what) {
    state_->renew_gathered_residents(what);
}

void Driver::end_update() {
    PENSTOCK_CHECK(!next_awaiting(), "an update ends, but unit {} awaits it", *next_awaiting());
    state_->wait_for_writes();
}

void Driver::begin_commit(const store::ClientState& client) {
    State& s = *state_;
    PENSTOCK_CHECK(!next_awaiting(), "a commit, but unit {} awaits its update", *next_awaiting());
    PENSTOCK_CHECK(!commits(), "a commit while one is under way");
    s.begun = s.send(orders::MakeDurable{std::make_shared<const store::ClientState>(client)});
    ++s.commits;
    s.committing = true;
}

void Driver::write_back() {
    State& s = *state_;
    PENSTOCK_CHECK(!next_awaiting() && !commits(), "tiles are written back, but a unit awaits its update, or a commit");
    s.begun = s.send(orders::WriteBack{});
    ++s.write_backs;
    s.wait(TraceLane::wait_commit, s.waits.commit,
           [&](const Progress& progress) { return progress.written_back == s.write_backs; });
    s.update_open = false;
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
    s.wait(TraceLane::wait_commit, s.waits.commit,
           [&](const Progress& progress) { return progress.commits == s.commits; });
    s.committing = s.update_open = false;
}

void Driver::commit(const store::ClientState& client) {
    PENSTOCK_CHECK(state_->phase == State::Phase::between, "a commit within a pass");
    begin_commit(client);
    finish_commit();
}

void Driver::read(store::TileId tile, std::span<std::byte> memory) {
    state_->transfer(orders::ReadAlone{tile, memory});
}

void Driver::write(store::TileId tile, std::span<std::byte> memory) {
    State& s = *state_;
    s.window.forget();
    s.transfer(orders::WriteAlone{tile, memory});
    if (s.deps.lane == nullptr && s.memory.gathered_residents().has(tile))
        s.renew_gathered_residents(GatheredResidents::Renew::all);
}

store::SpillBlock Driver::allocate_spill(std::uint64_t bytes) {
    State& s = *state_;
    PENSTOCK_CHECK(s.deps.spill != nullptr, "something is spilled, but the driver has no spill");
    const std::uint64_t number = s.send(orders::AllocateSpill{bytes});
    store::SpillBlock block;
    s.mailbox.wait([&](const Progress& progress) {
        block = progress.allocated;
        return progress.orders_done >= number;
    });
    return block;
}

void Driver::spill_out(store::SpillBlock block, std::span<std::byte> memory, std::uint32_t unit) {
    state_->send_spill({.block = block,
                        .way = SpillErrand::Way::out,
                        .memory = memory,
                        .urgency = aio::Urgency::write_back,
                        .unit = unit});
}

void Driver::spill_in(store::SpillBlock block, std::span<std::byte> memory, std::uint32_t unit) {
    state_->send_spill({.block = block,
                        .way = SpillErrand::Way::in,
                        .memory = memory,
                        .urgency = aio::Urgency::prefetch,
                        .unit = unit});
}

void Driver::wait_for_spill(store::SpillBlock block) {
    State& s = *state_;
    const std::uint64_t errands = block.index < s.spill_errands.size() ? s.spill_errands[block.index] : 0;
    if (s.mailbox.has_spilled(block, errands)) return;
    s.send(orders::AwaitSpill{block});
    const auto start = Clock::now();
    const TraceStart from = trace_start(s.deps.trace);
    s.mailbox.wait_for_spill(block, errands);
    s.traced(from, {.lane = TraceLane::wait_spill});
    s.waits.spills += Clock::now() - start;
}

void Driver::begin_snapshot(const std::string& path, const store::ClientState* client) {
    PENSTOCK_CHECK(state_->phase == State::Phase::between && !state_->update_open,
                   "a copy of a generation begins within a pass or an update");
    PENSTOCK_CHECK(state_->mailbox.progress().ended_copies == state_->copies, "a copy to {} while another is under way",
                   path);
    ++state_->copies;
    state_->send(
        orders::Snapshot{path, client == nullptr ? nullptr : std::make_shared<const store::ClientState>(*client)});
    if (state_->in_memory) finish_snapshot([](const SnapshotProgress&) { return true; });
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
        state_->send(orders::EndSnapshot{});
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
