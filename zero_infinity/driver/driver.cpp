#include "zero_infinity/driver/driver.h"

#include "aio/words/check.h"
#include "zero_infinity/driver/driver_loop.h"
#include "zero_infinity/plan/memory_plan.h"

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

}  // namespace

struct Driver::State {
    // Where the compute thread is in a step.
    enum class Phase : std::uint8_t {
        between,   // passes and updates may begin; windows and staging are free
        passing,   // weights of a window of visits are in memory
        updating,  // tiles are staged; ends with end_update() or commit()
    };

    State(const DriverDeps& given, const DriverOptions& options, PassSchedules training, PassSchedules inference);

    const PassMemory& weights() const { return pass == Pass::training ? memory.training() : memory.inference(); }
    std::uint64_t send(const Order& order);
    template <typename Reached>
    void wait(std::chrono::nanoseconds& waited, Reached reached);

    DriverDeps deps;
    const DriverMemory memory;
    Mailbox mailbox;

    WaitTimes waits;
    Phase phase = Phase::between;
    Pass pass = Pass::training;
    std::uint32_t visit = 0;      // to be entered or left next
    std::uint64_t next_tile = 0;  // to be handed out
    std::uint64_t put_back = 0;   // so many were
    std::uint64_t begun = 0;      // number of the order that began the pass or update: older progress is of another
    std::uint64_t commits = 0;
    std::uint64_t reads = 0;
    std::uint64_t copies = 0;  // begun

    DriverLoop loop;  // its thread starts last and ends first
};

Driver::State::State(const DriverDeps& given, const DriverOptions& options, PassSchedules training,
                     PassSchedules inference)
    : deps(given),
      memory(*deps.io, *deps.store, *deps.pool, *deps.device, *deps.layout, options.staging_tiles, std::move(training),
             std::move(inference)),
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

template <typename Reached>
void Driver::State::wait(std::chrono::nanoseconds& waited, Reached reached) {
    const auto start = Clock::now();
    mailbox.wait([&](const Progress& progress) { return progress.orders_done >= begun && reached(progress); });
    waited += Clock::now() - start;
}

Driver::Driver(const DriverDeps& deps, const DriverOptions& options, PassSchedules training, PassSchedules inference)
    : state_(std::make_unique<State>(deps, options, std::move(training), std::move(inference))) {}

void Driver::stop() noexcept {
    state_->loop.stop();
}

Driver::~Driver() {
    stop();
    if (state_->loop.stuck()) static_cast<void>(state_.release());  // the device may still write into our memory
}

bool Driver::stuck() const noexcept {
    return state_->loop.stuck();
}

void Driver::begin(Pass pass) {
    PENSTOCK_CHECK(state_->phase == State::Phase::between, "a pass begins within a pass or before an update's commit");
    state_->pass = pass;
    state_->visit = 0;
    if (state_->weights().visit_count() > 0) state_->phase = State::Phase::passing;
    state_->begun = state_->send({.kind = Order::Kind::begin, .pass = pass});
}

void Driver::unshard(std::uint32_t visit) {
    PENSTOCK_CHECK(state_->phase == State::Phase::passing && visit == state_->visit,
                   "visit {} is unsharded, {} is next, or no pass has begun", visit, state_->visit);
    state_->wait(state_->waits.weights, [&](const Progress& progress) { return progress.ready_visits > visit; });
}

UnitMemory Driver::memory(std::uint32_t visit, std::uint32_t unit) const {
    PENSTOCK_CHECK(state_->phase == State::Phase::passing && visit == state_->visit,
                   "memory of visit {} is asked for, {} was unsharded", visit, state_->visit);
    return state_->weights().unit(visit, unit);
}

void Driver::reshard(std::uint32_t visit) {
    PENSTOCK_CHECK(state_->phase == State::Phase::passing && visit == state_->visit,
                   "visit {} is resharded, {} was unsharded", visit, state_->visit);
    state_->deps.device->compute_done();
    ++state_->visit;
    if (state_->visit == state_->weights().visit_count()) state_->phase = State::Phase::between;
    state_->send({.kind = Order::Kind::reshard, .number = visit});
}

void Driver::begin_update(ResidentTiles residents) {
    PENSTOCK_CHECK(state_->phase == State::Phase::between, "an update begins within a pass or another update");
    state_->phase = State::Phase::updating;
    state_->next_tile = state_->put_back = 0;
    state_->begun = state_->send({.kind = Order::Kind::begin_update, .residents = residents});
}

std::optional<StagedTile> Driver::next_tile() {
    PENSTOCK_CHECK(state_->phase == State::Phase::updating, "a tile is asked for, but no update has begun");
    if (state_->next_tile == state_->memory.staging().tile_count()) return std::nullopt;
    const std::uint64_t number = state_->next_tile++;
    state_->wait(state_->waits.tiles, [&](const Progress& progress) { return progress.ready_tiles > number; });
    return state_->memory.staging().tile(number);
}

void Driver::put_back(const StagedTile& tile) {
    PENSTOCK_CHECK(tile.number == state_->put_back && tile.number < state_->next_tile,
                   "tile {} is put back, {} is next", tile.number, state_->put_back);
    ++state_->put_back;
    state_->send({.kind = Order::Kind::put_back, .number = tile.number});
}

void Driver::end_update() {
    const std::uint64_t count = state_->memory.staging().tile_count();
    PENSTOCK_CHECK(state_->phase == State::Phase::updating && state_->put_back == count,
                   "an update ends after {} of {} tiles, or none has begun", state_->put_back, count);
    state_->wait(state_->waits.commit, [&](const Progress& progress) { return progress.written_tiles == count; });
    state_->phase = State::Phase::between;
}

void Driver::commit(const store::ClientState& client) {
    PENSTOCK_CHECK(state_->phase != State::Phase::passing, "a commit at visit {} of a pass", state_->visit);
    PENSTOCK_CHECK(state_->phase == State::Phase::between || state_->put_back == state_->memory.staging().tile_count(),
                   "a commit after {} of {} tiles", state_->put_back, state_->memory.staging().tile_count());
    state_->begun = state_->send({.kind = Order::Kind::commit, .client = &client});
    const std::uint64_t wanted = ++state_->commits;
    state_->wait(state_->waits.commit, [&](const Progress& progress) { return progress.commits == wanted; });
    state_->phase = State::Phase::between;
}

void Driver::read(store::TileId tile, std::span<std::byte> memory) {
    PENSTOCK_CHECK(state_->phase == State::Phase::between, "a tile is read out within a pass or an update");
    state_->begun = state_->send({.kind = Order::Kind::read, .tile = tile, .memory = memory});
    const std::uint64_t wanted = ++state_->reads;
    std::chrono::nanoseconds waited{0};  // of nobody's step
    state_->wait(waited, [&](const Progress& progress) { return progress.reads == wanted; });
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

const WaitTimes& Driver::waits() const noexcept {
    return state_->waits;
}

std::vector<std::string> Driver::take_notes() {
    return state_->mailbox.take_notes();
}

}  // namespace penstock::zero
