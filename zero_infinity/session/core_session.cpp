#include "zero_infinity/session/core_session.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "zero_infinity/ranks/commit_barrier.h"
#include "zero_infinity/session/session_parts.h"
#include "zero_infinity/session/step_update.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace penstock::zero {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

// The stages that were reached, each whole. They are given back in reverse; but kept for ever when something is under
// way that does not come back: until the process ends the device may write into them.
struct CoreSession::State {
    explicit State(Communicator* given) : communicator(given != nullptr ? given : &alone), barrier(*communicator) {}
    ~State();
    void end() noexcept;
    bool stuck();
    void restore();
    void expect_pass(Pass pass, const PassVisits& visits);
    void check_user_keys() const;
    void add_borrowed();
    void begin_update(const UpdateRequest& request, double norm);
    void update_unit(std::uint32_t unit);
    void finish_update();
    void begin_commit(const store::ClientState& user_of_step);
    void finish_commit();

    // Runs what may fail halfway: whatever is thrown from within leaves the session failed.
    template <typename Call>
    void perform(Call call) {
        stage = Stage::failed;
        call();
        stage = Stage::ready;
    }
    // In whichever stage: a copy of a device may fail.
    template <typename Call>
    void look_at_sums(Call call) {
        PENSTOCK_CHECK(stage != Stage::failed, "gradients after an exception");
        const Stage before = std::exchange(stage, Stage::failed);
        call();
        stage = before;
    }
    template <typename Call>
    void change_sums(Call call) {
        norm.reset();
        look_at_sums(call);
    }

    LocalCommunicator alone;
    Communicator* communicator;
    CommitBarrier barrier;
    std::unique_ptr<SessionPlan> plan;
    std::unique_ptr<pool::PinnedPool> pool;  // before what may be at its memory until its own end
    std::unique_ptr<Device> device;          // after the end, for whoever still has memory of it; before that machine's
    std::unique_ptr<Machine> machine;
    ModelStore opened;
    std::unique_ptr<SessionWork> work;
    SessionInfo info;
    std::vector<std::string> notes;

    Stage stage = Stage::ready;
    Pass pass = Pass::training;
    VisitOrder order;
    std::optional<double> norm;  // of the sums as they are
    bool sums_lent = false;      // a client may change them unseen
    std::chrono::nanoseconds updating{0};
    store::ClientState newest;       // what the client gave for the newest step
    store::ClientState newest_user;  // as it was then
    bool commits = false;            // once its last unit is updated
    bool committed = true;           // all that there is of it
    store::ClientState user;
    std::string went_on_from;                   // went_on_from_key's value
    std::optional<SkippedSteps> skipped_steps;  // from the plan on
    std::optional<StepUpdate> step_update;
};

CoreSession::State::~State() {
    end();
}

void CoreSession::State::end() noexcept {
    stage = Stage::failed;
    if (!stuck()) {
        work.reset();
        if (machine) device = std::move(machine->device);
        machine.reset();
        return;
    }
    static_cast<void>(work.release());
    static_cast<void>(machine.release());
    static_cast<void>(pool.release());
    static_cast<void>(plan.release());
}

bool CoreSession::State::stuck() {
    if (work) {
        work->driver.stop();  // what hangs may only now become too old
        return work->driver.stuck();
    }
    return machine && machine->open.io().finish_all().has_value();
}

void CoreSession::State::restore() {
    skipped_steps.emplace(plan->layout.units());
    newest = opened.client;
    for (const auto& [key, value] : opened.client)
        if (key.starts_with(user_prefix)) user[key] = value;
    std::erase_if(newest, [](const auto& each) { return each.first.starts_with(user_prefix); });
    if (const auto snapshot = opened.client.find(went_on_from_key); snapshot != opened.client.end())
        went_on_from = snapshot->second;
    if (const auto skipped = opened.client.find(skipped_steps_key); skipped != opened.client.end())
        skipped_steps->read(skipped->second);
}

void CoreSession::State::expect_pass(Pass of, const PassVisits& visits) {
    PassVisits whole;
    for (const Visit& visit : visits) whole.push_back(with_owners(visit, plan->model.units));
    order.expect(of, std::move(whole));
}

// What was added since the last end of a training pass.
void CoreSession::State::add_borrowed() {
    if (work->gradients.add_borrowed()) norm.reset();
}

void CoreSession::State::check_user_keys() const {
    for (const auto& [key, value] : user)
        if (!key.starts_with(user_prefix))
            throw Error(ExitCode::usage, fmt::format("the user's key '{}' does not begin with '{}'", key, user_prefix));
}

void CoreSession::State::begin_update(const UpdateRequest& request, double gradient_norm) {
    step_update->begin(request, gradient_norm);
    newest_user = user;
    commits = plan->options.durability.commits_after(request.values.step);
    committed = false;
    norm.reset();
    sums_lent = false;
    const bool deferred = plan->options.update_order == UpdateOrder::deferred;
    const auto units = step_update->order(deferred ? order.expected(Pass::training) : std::span<const Visit>());
    barrier.before_write();
    work->driver.begin_update(units, commits ? ResidentTiles::written : ResidentTiles::held_back);
    bool any = false;
    for (const std::uint32_t unit : units) {
        if (!plan->layout.unit(unit).spec().resident) break;
        update_unit(unit);
        any = true;
    }
    if (any) work->driver.renew_residents();
}

void CoreSession::State::update_unit(std::uint32_t unit) {
    const auto start = Clock::now();
    step_update->update(unit);
    updating += Clock::now() - start;
    if (work->driver.next_awaiting()) return;
    step_update->end();
    if (commits) begin_commit(newest_user);
}

// All that there is of the newest step: its updates, its writes, its commit. REQUIRES: no pass.
void CoreSession::State::finish_update() {
    while (const auto unit = work->driver.next_awaiting()) update_unit(*unit);
    work->driver.commits() ? finish_commit() : work->driver.end_update();
}

void CoreSession::State::begin_commit(const store::ClientState& user_of_step) {
    store::ClientState client = newest;
    client.insert(user_of_step.begin(), user_of_step.end());
    client[fingerprint_key] = plan->fingerprint;
    if (!skipped_steps->empty()) client[skipped_steps_key] = skipped_steps->text();
    if (!went_on_from.empty()) client[went_on_from_key] = went_on_from;
    barrier.before_write();  // what was held back in host memory is written now
    work->driver.begin_commit(client);
}

void CoreSession::State::finish_commit() {
    work->driver.finish_commit();
    barrier.committed();
    committed = true;
}

CoreSession::CoreSession(ModelSpec model, CoreOptions options, const store::ClientState& initial_client,
                         const SessionEvents& events, const SessionSeams& seams)
    : state_(std::make_unique<State>(seams.communicator)) {
    State& s = *state_;
    // Plan.
    s.plan = std::make_unique<SessionPlan>(std::move(model), std::move(options), s.communicator->partition());
    // Open.
    s.machine = std::make_unique<Machine>(*s.plan, events);
    s.opened = open_store(*s.machine, *s.plan, *s.communicator, seams.weights, initial_client, events);
    s.restore();
    // Build.
    s.pool = make_pool(*s.plan);
    s.machine->device->cut_at_seams_of(*s.pool);
    const std::string unregistered = register_with_ring(s.machine->open.io(), *s.pool);
    s.info = info_of(*s.plan, *s.machine, s.opened);
    s.work = std::make_unique<SessionWork>(*s.plan, *s.machine, s.opened, *s.pool);
    s.step_update.emplace(*s.plan, *s.work, *s.skipped_steps);
    s.expect_pass(Pass::training, s.plan->model.training);
    s.expect_pass(Pass::inference, s.plan->model.inference);
    s.notes = notes_of(*s.plan, *s.machine, s.opened, *s.pool, unregistered);
}

CoreSession::~CoreSession() = default;

const SessionInfo& CoreSession::info() const noexcept {
    return state_->info;
}

SessionCounters CoreSession::counters() const {
    const aio::IoStatistics& io = state_->machine->open.io().statistics();
    return {.read_bytes = io.total_read_bytes(),
            .write_bytes = io.total_write_bytes(),
            .waits = state_->work->driver.waits(),
            .updating = state_->updating,
            .pool_peak_bytes = state_->pool->peak_bytes(),
            .visits = state_->order.counts()};
}

CoreSession::Stage CoreSession::stage() const noexcept {
    return state_->stage;
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
    try {
        s.work->driver.visit(whole, s.order.ahead(), kept.units);
    } catch (const Error& error) {
        if (error.code() != ExitCode::does_not_fit) throw;
        s.order.take_back();
        s.stage = Stage::in_pass;
        throw;
    }
    for (const std::uint32_t unit : whole.units)
        if (s.work->driver.awaits_update(unit)) s.update_unit(unit);
    s.stage = Stage::in_pass;
}

void CoreSession::end_pass() {
    State& s = *state_;
    PENSTOCK_CHECK(s.stage != Stage::failed, "the session is used again after an exception");
    if (s.stage == Stage::ready) return;
    s.perform([&] {
        s.order.end();
        s.work->driver.end_pass();
        if (s.pass == Pass::training) s.add_borrowed();
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

void CoreSession::add_gradient(ParameterId parameter, const GradientView& addend) {
    state_->change_sums([&] { state_->work->gradients.add(parameter, addend); });
}

GradientSums::Open CoreSession::open_gradient(ParameterId parameter) {
    GradientSums::Open open;
    state_->change_sums([&] { open = state_->work->gradients.open(parameter); });
    return open;
}

std::optional<ParameterMemory> CoreSession::gradient(ParameterId parameter) {
    GradientSums& gradients = state_->work->gradients;
    if (gradients.is_fresh(parameter)) return std::nullopt;
    GradientSums::Sum sum;
    state_->change_sums([&] { sum = gradients.sum(parameter); });
    state_->sums_lent = true;
    return ParameterMemory{sum.data, gradients.type(), sum.numel};
}

void CoreSession::clear_gradients() {
    state_->change_sums([&] { state_->work->gradients.clear(); });
    state_->sums_lent = false;
}

void CoreSession::clear_gradient(ParameterId parameter) {
    state_->change_sums([&] { state_->work->gradients.clear(parameter); });
}

double CoreSession::gradient_norm() {
    State& s = *state_;
    PENSTOCK_CHECK(s.stage == Stage::ready, "the norm within a pass, or after an exception");
    if (s.norm && !s.sums_lent) return *s.norm;
    s.perform([&] {
        s.finish_update();
        s.add_borrowed();
        s.norm = s.work->gradients.norm(s.work->workers, *s.communicator);
        s.barrier.joined();
    });
    return *s.norm;
}

UpdateReport CoreSession::update(const UpdateRequest& request, const ClientStateOf& client) {
    State& s = *state_;
    PENSTOCK_CHECK(s.stage == Stage::ready, "an update within a pass, or after an exception");
    s.check_user_keys();
    s.perform([&] {
        s.finish_update();
        s.add_borrowed();
    });
    if (const auto missing = s.work->gradients.first_missing())
        throw Error(ExitCode::usage, fmt::format("no gradient came to {}: the loss does not depend on them. Use them, "
                                                 "freeze them, or say that a step may do without",
                                                 *missing));
    PENSTOCK_CHECK(request.loss_scale > 0, "a loss scale of {}", request.loss_scale);
    s.step_update->check(request);
    UpdateReport report;
    report.gradient_norm = gradient_norm() / request.loss_scale;
    if (!std::isfinite(report.gradient_norm)) {
        if (request.overflow == UpdateRequest::Overflow::skipped) {
            clear_gradients();
            return report;
        }
        throw Error(ExitCode::non_finite,
                    fmt::format("the gradient of step {} is not finite, first in {}; the last committed step "
                                "is untouched",
                                request.values.step, s.work->gradients.first_non_finite().value_or("their sum")));
    }
    s.newest = client(report.gradient_norm);
    report.committed_before = s.committed;
    report.updated = true;
    s.perform([&] {
        const auto update_start = Clock::now();
        s.begin_update(request, report.gradient_norm);
        if (s.plan->options.update_order == UpdateOrder::deferred) return;
        while (const auto unit = s.work->driver.next_awaiting()) s.update_unit(*unit);
        const auto commit_start = Clock::now();
        s.finish_update();
        report.committed = s.committed;
        report.update = commit_start - update_start;
        report.commit = Clock::now() - commit_start;
    });
    return report;
}

bool CoreSession::committed() {
    State& s = *state_;
    if (s.work->driver.commits() && s.work->driver.commit_ended()) s.finish_commit();
    return s.committed;
}

void CoreSession::settle() {
    State& s = *state_;
    PENSTOCK_CHECK(s.stage == Stage::ready, "a commit within a pass, or after an exception");
    PENSTOCK_CHECK(s.plan->options.durability != Durability::scratch, "nothing is committed in scratch");
    s.check_user_keys();
    s.perform([&] { s.finish_update(); });
    if (s.committed) return;
    s.perform([&] {
        s.begin_commit(s.user);
        s.finish_commit();
    });
}

store::ClientState& CoreSession::user_state() noexcept {
    return state_->user;
}

void CoreSession::read_out(const ReadOut& what, WeightSink& sink) {
    settle();
    State& s = *state_;
    const auto read = [&](store::TileId tile, std::span<std::byte> memory) {
        s.perform([&] { s.work->driver.read(tile, memory); });
    };
    zero::read_out({.layout = &s.plan->layout, .read = read}, what, sink);
}

void CoreSession::write_in(const WriteIn& what, WeightSource& source) {
    State& s = *state_;
    PENSTOCK_CHECK(s.stage == Stage::ready, "weights are written within a pass, or after an exception");
    s.perform([&] { s.finish_update(); });
    const auto read = [&](store::TileId tile, std::span<std::byte> memory) {
        s.perform([&] { s.work->driver.read(tile, memory); });
    };
    const auto write = [&](store::TileId tile, std::span<std::byte> memory) {
        s.committed = false;
        s.perform([&] {
            s.barrier.before_write();
            s.work->driver.write(tile, memory);
        });
    };
    zero::write_in({.layout = &s.plan->layout, .read = read, .write = write}, what, source);
}

void CoreSession::begin_snapshot(const std::string& path) {
    settle();
    state_->perform([&] { state_->work->driver.begin_snapshot(path); });
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

}  // namespace penstock::zero
