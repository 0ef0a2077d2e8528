#include "zero_infinity/session/core_session.h"

#include "aio/words/error.h"
#include "zero_infinity/session/core_session_state.h"
#include "zero_infinity/session/rank_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock::zero {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

CoreSession::CoreSession(ModelSpec model, const CoreOptions& options, const MachineRoom& room,
                         const store::ClientState& initial_client, const SessionEvents& events,
                         const SessionSeams& seams)
    : state_(std::make_unique<State>(seams.ranks)) {
    State& s = *state_;
    s.told_to_ranks([&] { s.open(std::move(model), options, room, initial_client, events, seams); });
}

CoreSession::~CoreSession() = default;

const SessionInfo& CoreSession::info() const noexcept {
    return state_->info;
}

SessionCounters CoreSession::counters() const {
    const aio::IoStatistics& io = state_->machine->open.io().statistics();
    WaitTimes waits = state_->work->driver.waits();
    waits.ranks += state_->adding_over_ranks;
    const Lane* lane = state_->ranks.lane();
    return {.read_bytes = io.total_read_bytes(),
            .write_bytes = io.total_write_bytes(),
            .spill_read_bytes = state_->work->spill.read_bytes(),
            .spill_write_bytes = state_->work->spill.write_bytes(),
            .waits = waits,
            .updating = state_->updating,
            .pool_peak_bytes = state_->pool->peak_bytes(),
            .visits = state_->order.counts(),
            .ranks = lane == nullptr ? LaneCounters() : lane->counters()};
}

CoreSession::Stage CoreSession::stage() const noexcept {
    return state_->stage;
}

UpdateOrder CoreSession::update_order() const noexcept {
    return state_->plan->options.update_order;
}

const ModelLayout& CoreSession::layout() const noexcept {
    return state_->plan->layout;
}

Device& CoreSession::device() noexcept {
    return *state_->machine->device;
}

PlaneType CoreSession::gradient_type() const noexcept {
    return state_->work->gradients.type();
}

GradientMemory CoreSession::gradient_memory() const noexcept {
    return state_->plan->options.gradient_memory;
}

Purpose CoreSession::purpose() const noexcept {
    return state_->plan->options.purpose;
}

std::optional<std::uint32_t> CoreSession::owes_update(ParameterId parameter) const {
    const UnitSpec& spec = layout().unit(parameter.unit).spec();
    const std::size_t own = spec.parameters.size();
    const std::uint32_t owner = parameter.index < own ? parameter.unit : spec.borrowed.at(parameter.index - own).owner;
    for (const std::uint32_t unit : {parameter.unit, owner})
        if (state_->step_order->owes(unit)) return unit;
    return std::nullopt;
}

void CoreSession::expect(Pass pass, const PassVisits& visits) {
    state_->expect_pass(pass, visits);
}

void CoreSession::begin_pass(Pass pass) {
    State& s = *state_;
    end_pass();
    s.perform([&] {
        s.pass = pass;
        s.order.begin(pass);
        s.work->driver.visit({}, s.order.ahead());
    });
    s.stage = Stage::in_pass;
}

void CoreSession::visit(const Visit& visit, std::span<const std::uint32_t> held) {
    State& s = *state_;
    PENSTOCK_CHECK(s.stage == Stage::in_pass, "a visit, but no pass has begun, or the session has failed");
    const Visit whole = with_owners(visit, s.plan->model.units);
    const Visit kept = with_owners({{held.begin(), held.end()}}, s.plan->model.units);
    s.order.visit(whole);
    s.stage = Stage::failed;  // but where nothing has changed
    s.told_to_ranks([&] { s.wait_for_updates(whole.units); });
    try {
        s.work->driver.visit(whole, s.order.ahead(), kept.units);
    } catch (const Error& error) {
        if (error.code() != ExitCode::does_not_fit || s.work->driver.failed()) s.tell_ranks(error);
        s.order.take_back();
        s.stage = Stage::in_pass;
        throw;
    }
    s.told_to_ranks([&] { s.step_order->arrive(whole.units); });
    s.stage = Stage::in_pass;
}

void CoreSession::end_pass() {
    State& s = *state_;
    PENSTOCK_CHECK(s.stage != Stage::failed, "the session is used again after an exception");
    if (s.stage == Stage::ready) return;
    s.perform([&] {
        if (s.pass == Pass::training) s.agree_on_closing();
        s.order.end();
        s.work->driver.end_pass();
        if (s.pass != Pass::training) return;
        s.work->gradients.end_pass();
        s.add_borrowed();
        s.end_addends();
    });
}

ParameterMemory CoreSession::weights(ParameterId parameter) const {
    const State& s = *state_;
    const UnitSpec& unit = s.plan->layout.unit(parameter.unit).spec();
    if (parameter.index >= unit.parameters.size()) {
        const BorrowedSpec& borrowed = unit.borrowed.at(parameter.index - unit.parameters.size());
        parameter = {borrowed.owner, borrowed.parameter};
    }
    const UnitMemory memory = s.work->driver.memory(parameter.unit);
    const ParameterPlace& place = s.plan->layout.unit(parameter.unit).place(parameter.index);
    const PlaneType type = s.plan->layout.unit(parameter.unit).weight_type(place.training, s.plan->format);
    std::byte* first = place.training == Training::trainable ? memory.weights : memory.frozen;
    return {first + place.first * bytes_of(type), type, place.numel};
}

UnitMemory CoreSession::memory(std::uint32_t unit) const {
    return state_->work->driver.memory(unit);
}

// Between passes nobody visits the unit.
void CoreSession::make_owed_update(ParameterId parameter) {
    State& s = *state_;
    if (s.stage == Stage::ready && owes_update(parameter)) s.perform([&] { s.step_order->finish(); });
}

void CoreSession::add_gradient(ParameterId parameter, const GradientView& addend) {
    make_owed_update(parameter);
    state_->take_addend([&] { state_->work->gradients.add(parameter, addend); });
}

GradientSums::Open CoreSession::open_gradient(ParameterId parameter) {
    GradientSums::Open open;
    make_owed_update(parameter);
    state_->take_addend([&] { open = state_->work->gradients.open(parameter); });
    return open;
}

std::optional<ParameterMemory> CoreSession::gradient(ParameterId parameter) {
    const GradientSums& gradients = state_->work->gradients;
    if (gradients.reach() == GradientSums::Reach::none) return std::nullopt;
    state_->lay_out_sums();
    if (gradients.is_fresh(parameter)) return std::nullopt;
    return state_->lent_sum(parameter, &GradientSums::sum);
}

ParameterMemory CoreSession::make_gradient(ParameterId parameter) {
    make_owed_update(parameter);
    state_->lay_out_sums();
    return state_->lent_sum(parameter, &GradientSums::make);
}

void CoreSession::clear_gradients() {
    state_->change_sums([&] {
        state_->step_update->take_in();
        state_->work->gradients.clear();
    });
    state_->sums_lent = false;
}

void CoreSession::clear_gradient(ParameterId parameter) {
    state_->change_sums([&] {
        state_->step_update->take_in();
        state_->work->gradients.clear(parameter);
    });
}

double CoreSession::gradient_norm() {
    State& s = *state_;
    PENSTOCK_CHECK(s.stage == Stage::ready, "the norm within a pass, or after an exception");
    if (!s.norm || s.sums_lent) s.perform([&] { s.norm = s.norm_of_gradients(); });
    return *s.norm;
}

Shelf* CoreSession::shelf() noexcept {
    return state_->work->shelf ? &*state_->work->shelf : nullptr;
}

void CoreSession::begin_step(const UpdateRequest& request) {
    State& s = *state_;
    const Stage before = s.stage;
    PENSTOCK_CHECK(
        (before == Stage::ready || (before == Stage::in_pass && s.pass == Pass::training)) && !s.step_order->begun(),
        "a step begins within a pass or step");
    PENSTOCK_CHECK(may_begin_step(request), "step {} cannot be updated before its norm is known", request.values.step);
    s.perform([&] { s.begin_step(request); });
    s.stage = before;
}

void CoreSession::complete(std::uint32_t unit) {
    State& s = *state_;
    const bool leaves = gradient_memory() == GradientMemory::nvme;
    PENSTOCK_CHECK(s.stage == Stage::in_pass && (s.step_order->begun() || leaves),
                   "unit {} is complete, but no step was begun", unit);
    Departure departure{};
    s.perform([&] { departure = s.step_order->depart(unit); });
    s.stage = Stage::in_pass;
    if (departure == Departure::left && leaves) s.change_sums([&] { s.work->gradients.let_leave(unit); });
}

UpdateReport CoreSession::update(const UpdateRequest& request, const ClientStateOf& client) {
    State& s = *state_;
    s.ranks.at(fmt::format("step {}", request.values.step));
    PENSTOCK_CHECK(s.stage == Stage::ready, "an update within a pass, or after an exception");
    PENSTOCK_CHECK(purpose() == Purpose::training, "an update of a model that is kept for forwards alone");
    s.check_user_keys();
    s.perform([&] {
        s.agree_on(request);
        s.step_order->finish();
        s.add_borrowed();
    });
    if (s.step_order->begun()) {
        const UpdateRequest& begun = s.requested.request;
        PENSTOCK_CHECK(begun.values.step == request.values.step && begun.clip == request.clip &&
                           request.overflow == UpdateRequest::Overflow::refused,
                       "an update of step {}, but step {} was begun", request.values.step, begun.values.step);
        s.step_order->drop_idle();
    }
    UpdateReport report;
    report.gradient_norm = gradient_norm() / request.loss_scale;
    if (!s.step_order->begun()) s.step_update->check(request);
    if (!std::isfinite(report.gradient_norm)) {
        if (request.overflow == UpdateRequest::Overflow::skipped) {
            clear_gradients();
            return report;
        }
        if (s.step_order->begun()) s.stage = Stage::failed;
        throw Error(ExitCode::non_finite, non_finite_gradient(request.values.step, s.first_non_finite()));
    }
    s.newest = client(report.gradient_norm);
    report.committed_before = s.step_order->committed();
    report.updated = true;
    s.perform([&] {
        const auto update_start = Clock::now();
        const Ended ended = s.end_step(request, report.gradient_norm);
        const auto commit_start = Clock::now();
        report.update = commit_start - update_start;
        report.updated_again = ended == Ended::again;
        if (ended != Ended::whole) return;
        s.step_order->finish();
        report.committed = s.step_order->committed();
        report.commit = Clock::now() - commit_start;
    });
    return report;
}

bool CoreSession::may_begin_step(const UpdateRequest& request) const {
    return state_->may_know_early(request) && state_->step_order->may_begin(request.clip != 0);
}

bool CoreSession::is_worth_beginning(const UpdateRequest& request) const {
    return state_->may_know_early(request) && state_->step_order->is_worth_beginning(request.clip != 0);
}

bool CoreSession::committed() {
    State& s = *state_;
    return s.step_order->committed() || (s.step_order->committing() && s.work->driver.commit_ended());
}

void CoreSession::settle() {
    PENSTOCK_CHECK(state_->is_durable(), "nothing is committed in scratch");
    state_->settle();
}

store::ClientState& CoreSession::user_state() noexcept {
    return state_->user;
}

void CoreSession::read_out(const ReadOut& what, WeightSink& sink) {
    State& s = *state_;
    if (s.ranks.ranks() > 1 &&
        std::ranges::all_of(what.values, [](ParameterValue value) { return value == ParameterValue::weight; })) {
        std::vector<std::byte> copy;
        return read_out_whole(
            layout(), [&](ParameterId parameter) { return s.in_host_memory(weights(parameter), copy); }, what.wanted,
            sink);
    }
    s.settle();
    const auto read = [&](store::TileId tile, std::span<std::byte> memory) {
        s.perform([&] { s.work->driver.read(tile, memory); });
    };
    const auto gather = [&](std::uint32_t unit, std::span<const std::byte> mine, std::span<std::byte> all) {
        s.perform([&] {
            Lane& lane = *s.ranks.lane();
            lane.wait(lane.post_gather(unit, {mine, all}, Inputs::there));
        });
    };
    const GatherTiles gathers = s.ranks.ranks() > 1 ? GatherTiles(gather) : GatherTiles();
    zero::read_out({.layout = &s.plan->layout, .read = read, .gather = gathers}, what, sink);
}

void CoreSession::write_in(const WriteIn& what, WeightSource& source) {
    State& s = *state_;
    PENSTOCK_CHECK(s.stage == Stage::ready && !s.step_order->begun() && purpose() == Purpose::training,
                   "weights are written within a pass or step, after an exception, or in a store that is only read");
    s.perform([&] { s.step_order->finish(); });
    const auto read = [&](store::TileId tile, std::span<std::byte> memory) {
        s.perform([&] { s.work->driver.read(tile, memory); });
    };
    const auto write = [&](store::TileId tile, std::span<std::byte> memory) {
        s.step_order->changed();
        s.perform([&] {
            s.barrier.before_write(s.next_generation());
            s.work->driver.write(tile, memory);
        });
    };
    // Of several ranks, whichever of them has the values.
    if (s.ranks.ranks() > 1) {
        s.step_order->changed();
        s.perform([&] { s.barrier.before_write(s.next_generation()); });
    }
    zero::write_in({.layout = &s.plan->layout, .read = read, .write = write}, what, source);
    if (s.ranks.ranks() > 1) s.perform([&] { s.work->driver.renew_residents(GatheredResidents::Renew::all); });
}

void CoreSession::begin_snapshot(const std::string& path) {
    State& s = *state_;
    s.settle();
    s.perform([&] {
        const std::string place = place_of_snapshot(path, s.ranks.partition());
        if (s.is_durable()) return s.work->driver.begin_snapshot(place);
        s.barrier.before_write(s.next_generation());
        s.work->driver.write_back();
        const store::ClientState client = s.client_with(s.user);
        s.work->driver.begin_snapshot(place, &client);
    });
}

SnapshotProgress CoreSession::snapshot_progress() const {
    return state_->work->driver.snapshot_progress();
}

void CoreSession::finish_snapshot(const std::function<bool(const SnapshotProgress&)>& wanted) {
    state_->work->driver.finish_snapshot(wanted);
}

std::vector<EndedSnapshot> CoreSession::take_snapshots() {
    return state_->work->driver.take_snapshots();
}

void CoreSession::end() noexcept {
    state_->end();
}

std::vector<std::string> CoreSession::take_notes() {
    std::vector<std::string> notes = std::exchange(state_->notes, {});
    for (std::string& note : state_->work->driver.take_notes()) notes.push_back(std::move(note));
    return notes;
}

Communicator& CoreSession::ranks() noexcept {
    return state_->ranks;
}

}  // namespace penstock::zero
