#include "zero_infinity/driver.h"

#include "aio/check.h"
#include "zero_infinity/driver_loop.h"
#include "zero_infinity/residents.h"
#include "zero_infinity/unit_store.h"

#include <algorithm>

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t window_bytes(const std::optional<WeightSchedule>& one, const std::optional<WeightSchedule>& other) {
    return std::max(one ? one->window_bytes() : 0, other ? other->window_bytes() : 0);
}

Lease lease_unless_empty(PinnedPool& pool, const char* use, std::uint64_t bytes) {
    return bytes == 0 ? Lease() : pool.acquire(pool.use(use), bytes);
}

}  // namespace

struct Driver::State {
    // Where the compute thread is in a step.
    enum class Phase : std::uint8_t {
        between,   // passes and updates may begin; windows and staging are free
        passing,   // weights of a window of visits are in memory
        updating,  // tiles are staged; ends with end_update() or commit()
    };

    State(const DriverParts& given, const DriverOptions& options, PassSchedules training, PassSchedules inference);

    WeightLane& lane() { return pass == Pass::training ? *training_lane : *inference_lane; }
    std::uint64_t send(const Order& order);
    template <typename Reached>
    void wait(std::chrono::nanoseconds& waited, Reached reached);

    DriverParts parts;
    std::vector<UnitObjects> objects;
    Residents residents;
    Lease window;
    Lease staging;
    std::byte* device_window = nullptr;
    std::unique_ptr<WeightLane> training_lane;
    std::unique_ptr<WeightLane> inference_lane;
    std::unique_ptr<UpdateLane> update_lane;
    std::unique_ptr<KeepLane> keep_lane;
    Mailbox mailbox;

    WaitTimes waits;
    Phase phase = Phase::between;
    Pass pass = Pass::training;
    std::uint32_t visit = 0;      // to be entered or left next
    std::uint64_t next_tile = 0;  // to be handed out
    std::uint64_t put_back = 0;   // so many were
    std::uint64_t begun = 0;      // number of the order that began the pass or update: older progress is of another
    std::uint64_t commits = 0;
    std::uint64_t copies = 0;  // begun

    std::unique_ptr<DriverLoop> loop;  // built last, ended first
};

Driver::State::State(const DriverParts& given, const DriverOptions& options, PassSchedules training,
                     PassSchedules inference)
    : parts(given),
      objects(find_objects(*given.store, *given.units, options.format)),
      residents(*given.io, *given.store, *given.pool, *given.units, objects, options.format, options.residency,
                options.deadline) {
    window = lease_unless_empty(*parts.pool, weights_use, window_bytes(training.host, inference.host));
    const std::uint64_t slot = slot_bytes(*parts.units, options.format, options.residency);
    staging = lease_unless_empty(*parts.pool, staging_use, options.staging_tiles * slot);
    if (const std::uint64_t bytes = window_bytes(training.device, inference.device); bytes > 0)
        device_window = parts.device->allocate(bytes, weights_use);
    const WeightLaneParts weights{.store = parts.store,
                                  .device = parts.device,
                                  .residents = &residents,
                                  .units = parts.units,
                                  .objects = &objects,
                                  .format = options.format,
                                  .host_window = window.data(),
                                  .device_window = device_window};
    training_lane = std::make_unique<WeightLane>(weights, std::move(training));
    inference_lane = std::make_unique<WeightLane>(weights, std::move(inference));
    update_lane = std::make_unique<UpdateLane>(UpdateLaneParts{.store = parts.store,
                                                               .residents = &residents,
                                                               .units = parts.units,
                                                               .objects = &objects,
                                                               .format = options.format,
                                                               .residency = options.residency,
                                                               .staging = staging.data(),
                                                               .slots = options.staging_tiles});
    const std::uint64_t copying = options.keeping ? keep_bytes(*parts.units, options.format) : 0;
    keep_lane = std::make_unique<KeepLane>(KeepLaneParts{.io = parts.io,
                                                         .store = parts.store,
                                                         .caching = options.caching,
                                                         .job = options.job,
                                                         .memory = lease_unless_empty(*parts.pool, keep_use, copying)});
    loop = std::make_unique<DriverLoop>(DriverLoopParts{.io = parts.io,
                                                        .store = parts.store,
                                                        .device = parts.device,
                                                        .training = training_lane.get(),
                                                        .inference = inference_lane.get(),
                                                        .update = update_lane.get(),
                                                        .keep = keep_lane.get(),
                                                        .mailbox = &mailbox,
                                                        .deadline = options.deadline});
}

std::uint64_t Driver::State::send(const Order& order) {
    const std::uint64_t number = mailbox.send(order);
    parts.io->wake();
    return number;
}

template <typename Reached>
void Driver::State::wait(std::chrono::nanoseconds& waited, Reached reached) {
    const auto start = Clock::now();
    mailbox.wait([&](const Progress& progress) { return progress.orders_done >= begun && reached(progress); });
    waited += Clock::now() - start;
}

Driver::Driver(const DriverParts& parts, const DriverOptions& options, PassSchedules training, PassSchedules inference)
    : state_(std::make_unique<State>(parts, options, std::move(training), std::move(inference))) {}

void Driver::stop() noexcept {
    state_->loop->stop();
}

Driver::~Driver() {
    stop();
    if (state_->loop->stuck()) static_cast<void>(state_.release());  // the device may still write into our memory
}

bool Driver::stuck() const noexcept {
    return state_->loop->stuck();
}

void Driver::begin(Pass pass) {
    PENSTOCK_CHECK(state_->phase == State::Phase::between, "a pass begins within a pass or before an update's commit");
    state_->pass = pass;
    state_->visit = 0;
    if (state_->lane().visit_count() > 0) state_->phase = State::Phase::passing;
    state_->begun = state_->send({.kind = Order::Kind::begin, .pass = pass});
}

void Driver::enter(std::uint32_t visit) {
    PENSTOCK_CHECK(state_->phase == State::Phase::passing && visit == state_->visit,
                   "visit {} is entered, {} is next, or no pass has begun", visit, state_->visit);
    state_->wait(state_->waits.weights, [&](const Progress& progress) { return progress.ready_visits > visit; });
}

UnitMemory Driver::memory(std::uint32_t visit, std::uint32_t unit) const {
    PENSTOCK_CHECK(state_->phase == State::Phase::passing && visit == state_->visit,
                   "memory of visit {} is asked for, {} was entered", visit, state_->visit);
    return state_->lane().memory(visit, unit);
}

void Driver::leave(std::uint32_t visit) {
    PENSTOCK_CHECK(state_->phase == State::Phase::passing && visit == state_->visit, "visit {} is left, {} was entered",
                   visit, state_->visit);
    state_->parts.device->compute_done();
    ++state_->visit;
    if (state_->visit == state_->lane().visit_count()) state_->phase = State::Phase::between;
    state_->send({.kind = Order::Kind::leave, .number = visit});
}

void Driver::begin_update(ResidentParts residents) {
    PENSTOCK_CHECK(state_->phase == State::Phase::between, "an update begins within a pass or another update");
    state_->phase = State::Phase::updating;
    state_->next_tile = state_->put_back = 0;
    state_->begun = state_->send({.kind = Order::Kind::begin_update, .residents = residents});
}

std::optional<StagedTile> Driver::next_tile() {
    PENSTOCK_CHECK(state_->phase == State::Phase::updating, "a tile is asked for, but no update has begun");
    if (state_->next_tile == state_->update_lane->tile_count()) return std::nullopt;
    const std::uint64_t number = state_->next_tile++;
    state_->wait(state_->waits.tiles, [&](const Progress& progress) { return progress.ready_tiles > number; });
    return state_->update_lane->staged(number);
}

void Driver::put_back(const StagedTile& tile) {
    PENSTOCK_CHECK(tile.number == state_->put_back && tile.number < state_->next_tile,
                   "tile {} is put back, {} is next", tile.number, state_->put_back);
    ++state_->put_back;
    state_->send({.kind = Order::Kind::put_back, .number = tile.number});
}

void Driver::end_update() {
    const std::uint64_t count = state_->update_lane->tile_count();
    PENSTOCK_CHECK(state_->phase == State::Phase::updating && state_->put_back == count,
                   "an update ends after {} of {} tiles, or none has begun", state_->put_back, count);
    state_->wait(state_->waits.commit, [&](const Progress& progress) { return progress.written_tiles == count; });
    state_->phase = State::Phase::between;
}

void Driver::commit(const ClientState& client) {
    PENSTOCK_CHECK(state_->phase != State::Phase::passing, "a commit at visit {} of a pass", state_->visit);
    PENSTOCK_CHECK(state_->phase == State::Phase::between || state_->put_back == state_->update_lane->tile_count(),
                   "a commit after {} of {} tiles", state_->put_back, state_->update_lane->tile_count());
    state_->begun = state_->send({.kind = Order::Kind::commit, .client = &client});
    const std::uint64_t wanted = ++state_->commits;
    state_->wait(state_->waits.commit, [&](const Progress& progress) { return progress.commits == wanted; });
    state_->phase = State::Phase::between;
}

void Driver::keep(const std::string& path) {
    PENSTOCK_CHECK(state_->phase == State::Phase::between, "a copy of a generation begins within a pass or an update");
    PENSTOCK_CHECK(state_->mailbox.progress().ended_copies == state_->copies, "a copy to {} while another is under way",
                   path);
    ++state_->copies;
    state_->send({.kind = Order::Kind::keep, .path = path});
}

KeepProgress Driver::keep_progress() const {
    const Progress progress = state_->mailbox.progress();
    if (progress.ended_copies == state_->copies) return {};
    KeepProgress keep = progress.keep;
    keep.under_way = true;  // from its order on
    return keep;
}

void Driver::finish_keep(const std::function<bool(const KeepProgress&)>& wanted) {
    const auto ended = [&](const Progress& progress) { return progress.ended_copies == state_->copies; };
    bool stopped = false;
    while (!state_->mailbox.wait_for(std::chrono::milliseconds(100), ended)) {
        if (stopped || wanted(keep_progress())) continue;
        state_->send({.kind = Order::Kind::end_keep});
        stopped = true;
    }
}

std::vector<KeptCopy> Driver::take_kept() {
    return state_->mailbox.take_kept();
}

const WaitTimes& Driver::waits() const noexcept {
    return state_->waits;
}

std::vector<std::string> Driver::take_notes() {
    return state_->mailbox.take_notes();
}

}  // namespace penstock
