#include "zero_infinity/session/core_session_state.h"

#include "aio/words/byte_count.h"
#include "aio/words/error.h"
#include "aio/words/host_name.h"
#include "zero_infinity/optimizer/gradient.h"
#include "zero_infinity/ranks/agreement.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::zero {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

CoreSession::State::~State() {
    end();
}

void CoreSession::State::open(ModelSpec model, const CoreOptions& options, const MachineRoom& room,
                              const store::ClientState& initial_client, const SessionEvents& events,
                              const SessionSeams& seams) {
    // Plan.
    plan = std::make_unique<SessionPlan>(std::move(model), options, room_of_rank(ranks, room), ranks.partition());
    agree_on_plan(ranks, *plan);
    check_nodes(ranks, RankRoom::read(plan->memory.budget.used_bytes(), room.host), options.names.host_budget);
    // Open.
    machine = std::make_unique<Machine>(*plan, events, seams);
    check_disks(ranks, *machine, *plan);
    opened = open_store(*machine, *plan, ranks, seams, initial_client, events);
    restore();
    // Build.
    pool = make_pool(*plan);
    if (ranks.ranks() > 1) ranks.open_lane(plan->layout, plan->rank_piece_bytes(), *pool);
    machine->device->cut_at_seams_of(*pool);
    const std::string unregistered = register_with_ring(machine->open.io(), *pool, room.host.lockable_bytes);
    info = info_of(*plan, *machine, opened);
    work = std::make_unique<SessionWork>(*plan, *machine, opened, *pool, ranks.lane());
    opened.fill = nullptr;  // which has done its work, and holds a snapshot
    step_update.emplace(*plan, *work, *skipped_steps);
    step_order.emplace(plan->layout, plan->rules, watched(seams.steps, *this));
    expect_pass(Pass::training, plan->model.training);
    expect_pass(Pass::inference, plan->model.inference);
    notes = notes_of(*plan, *machine, opened, *pool, unregistered);
    if (ranks.ranks() > 1 && plan->options.update_order != options.update_order)
        notes.push_back(fmt::format("{} \"{}\" is \"{}\" with {} ranks: the bits are the same",
                                    options.names.update_order, word_of(options.update_order),
                                    word_of(plan->options.update_order), ranks.ranks()));
    if (plan->room.sharing > 1 && options.host_budget_bytes != planned_host_budget)
        notes.push_back(fmt::format("{} is {} for the {} ranks of this machine: {} of each", options.names.host_budget,
                                    bytes_text(options.host_budget_bytes), plan->room.sharing,
                                    memory_text(plan->options.host_budget_bytes)));
}

void CoreSession::State::end() noexcept {
    if (work && work->beside) work->beside->stop();  // while what its thread may wait for still ends by itself
    ranks.end(std::exchange(stage, Stage::failed) == Stage::ready);  // nothing is at the memory of its calls any more
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
    barrier.committed(opened.store->generation().value_or(0));  // scratch: no commit follows
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

void CoreSession::State::end_addends() {
    if (ranks.lane() == nullptr) return;
    work->gradients.await_addends();
    norm.reset();
    if (plan->options.ranks.sum_order == SumOrder::ranks_first) add_over_ranks();
}

// Rank 0's: what others visit otherwise comes late, or as nothing.
void CoreSession::State::agree_on_closing() {
    GradientSums& gradients = work->gradients;
    if (!gradients.closes() || gradients.is_closing()) return;
    const std::vector<ClosingTurn> own = gradients.closing_behind(order.made());
    std::vector<ClosingTurn> of_all(own.size() * ranks.ranks());
    ranks.all_gather("the order of units", std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(of_all)));
    gradients.begin_closing(std::span(of_all).first(own.size()));
}

void CoreSession::State::add_over_ranks() {
    if (work->gradients.reach() >= GradientSums::Reach::all) return;
    const auto start = Clock::now();
    agree_on_closing();
    work->gradients.reduce(ranks);
    adding_over_ranks += Clock::now() - start;
}

// Those of one rank are.
void CoreSession::State::lay_out_sums() {
    if (ranks.lane() == nullptr || work->gradients.reach() == GradientSums::Reach::laid_out) return;
    change_sums([&] {
        work->gradients.add_borrowed();
        if (work->gradients.reach() == GradientSums::Reach::own) add_over_ranks();
        work->gradients.lay_out(ranks);
    });
}

ParameterMemory CoreSession::State::lent_sum(ParameterId parameter,
                                             GradientSums::Sum (GradientSums::*sum_of)(ParameterId)) {
    GradientSums& gradients = work->gradients;
    if (gradients.leaves(parameter.unit))
        throw Error(
            ExitCode::usage,
            fmt::format("the gradient of unit '{}' stays at no address, because it is on NVMe between its uses: "
                        "keep gradients in host memory",
                        plan->layout.unit(parameter.unit).spec().name));
    GradientSums::Sum sum;
    change_sums([&] {
        step_update->take_in();
        sum = (gradients.*sum_of)(parameter);
    });
    sums_lent = true;
    return {sum.data, gradients.type(), sum.numel};
}

void CoreSession::State::check_user_keys() const {
    for (const auto& [key, value] : user)
        if (!key.starts_with(user_prefix))
            throw Error(ExitCode::usage, fmt::format("the user's key '{}' does not begin with '{}'", key, user_prefix));
}

void CoreSession::State::request_step(const UpdateRequest& request, double gradient_norm) {
    requested = {request, {request.groups.begin(), request.groups.end()}, gradient_norm};
    requested.request.groups = requested.groups;
}

// A schedule that follows a rank's own loss or clock would give parts of one tensor rates of their own.
void CoreSession::State::agree_on(const UpdateRequest& request) {
    if (ranks.ranks() == 1) return;
    AgreedValues own{.host = aio::host_name(),
                     .values = {{"the step", fmt::format("{}", request.values.step)},
                                {"the clip", fmt::format("{}", request.clip)},
                                {"the loss scale", fmt::format("{}", request.loss_scale)},
                                {"the learning rate", fmt::format("{}", request.values.learning_rate)}}};
    for (std::size_t index = 0; index < request.groups.size(); ++index) {
        const GroupValues& group = request.groups[index];
        const std::string of = fmt::format("of parameter group {} (the last one is of all others)", index + 1);
        own.values.push_back({"the learning rate " + of, fmt::format("{}", group.learning_rate)});
        if (group.optimizer != nullptr) own.values.push_back({"the options " + of, group.optimizer->options()});
    }
    agree(ranks, own, "the values of an update");
}

void CoreSession::State::begin_step(const UpdateRequest& request) {
    step_update->check(request.groups);
    request_step(request, 0);
    step_order->begin(plan->options.durability.commits_after(request.values.step));
}

Ended CoreSession::State::end_step(const UpdateRequest& request, double gradient_norm) {
    newest_user = user;
    step_order->note_clip(clip_factor(gradient_norm, request.clip) != 1);
    if (step_order->begun()) {
        forget_norm();
        return step_order->end_begun(step_update->clip(request, gradient_norm));
    }
    request_step(request, gradient_norm);
    return step_order->end(plan->options.durability.commits_after(request.values.step), units_to_update());
}

// By unit: without those that would stay as they are. Of what host memory holds back the update writes all or nothing.
std::vector<bool> CoreSession::State::units_to_update() const {
    std::vector<bool> changed(plan->layout.unit_count(), true);
    if (plan->layout.has_residents() && plan->options.durability != Durability::every_step) return changed;
    for (std::uint32_t unit = 0; unit < plan->layout.unit_count(); ++unit) changed[unit] = !step_update->stays(unit);
    return changed;
}

void CoreSession::State::begin(const BegunUpdate& update) {
    switch (update.of) {
        case BegunUpdate::Of::step:
            step_update->begin(requested.request, requested.gradient_norm, update.units);
            break;
        case BegunUpdate::Of::within:
            step_update->begin_within(requested.request);
            break;
        case BegunUpdate::Of::rest:
            step_update->leave(update.units, update.again);
            break;
    }
    forget_norm();
    barrier.before_write(next_generation());
    work->driver.begin_update(update.units, update.commits ? ResidentTiles::written : ResidentTiles::held_back,
                              update.at(),
                              update.of == BegunUpdate::Of::within ? GradientsFrom::memory : GradientsFrom::spill);
    step_update->begun(update.units);
}

void CoreSession::State::update(std::uint32_t unit) {
    const auto start = Clock::now();
    step_update->update(unit);
    updating += Clock::now() - start;
}

void CoreSession::State::wait_for_updates(std::span<const std::uint32_t> units) {
    const auto start = Clock::now();
    const TraceStart from = trace_start(plan->options.trace);
    if (!step_update->wait_for(units)) return;
    trace_end(plan->options.trace, TraceThread::compute, from, {.lane = TraceLane::wait_tiles, .unit = units.front()});
    updating += Clock::now() - start;
}

void CoreSession::State::wait_for_updates() {
    const auto start = Clock::now();
    step_update->take_in();
    updating += Clock::now() - start;
}

void CoreSession::State::begin_commit() {
    barrier.before_write(next_generation());  // what was held back in host memory is written now
    work->driver.begin_commit(client_with(newest_user));
}

void CoreSession::State::finish_commit() {
    work->driver.finish_commit();
    barrier.committed(next_generation());
}

// The newest step is whole, and durable where steps are.
void CoreSession::State::settle() {
    PENSTOCK_CHECK(stage == Stage::ready, "a step is to be whole within a pass, or after an exception");
    PENSTOCK_CHECK(!step_order->begun(), "a commit within step {}", requested.request.values.step);
    check_user_keys();
    perform([&] { step_order->finish(); });
    if (step_order->committed() || !is_durable()) return;
    newest_user = user;
    perform([&] { step_order->commit(); });
}

store::ClientState CoreSession::State::client_with(const store::ClientState& user_of_step) const {
    store::ClientState client = newest;
    client.insert(user_of_step.begin(), user_of_step.end());
    client[fingerprint_key] = plan->fingerprint;
    if (!skipped_steps->empty()) client[skipped_steps_key] = skipped_steps->text();
    if (!went_on_from.empty()) client[went_on_from_key] = went_on_from;
    if (opened.mark) opened.mark->write(client);
    return client;
}

const std::byte* CoreSession::State::in_host_memory(const ParameterMemory& memory, std::vector<std::byte>& copy) {
    PENSTOCK_CHECK(stage == Stage::ready, "weights are read out within a pass, or after an exception");
    Device& from = *machine->device;
    if (from.shares_host_memory()) return memory.data;
    copy.resize(memory.numel * bytes_of(memory.type));
    perform([&] {
        if (from.wait(from.copy_out(copy.data(), memory.data, copy.size()), plan->options.io_deadline)) return;
        static_cast<void>(new auto(std::move(copy)));  // the device may still write there
        throw Error(ExitCode::internal, fmt::format("device {} has not copied weights to host memory in {} s",
                                                    from.name(), plan->options.io_deadline.count()));
    });
    return copy.data();
}

double CoreSession::State::norm_of_gradients() {
    step_order->finish();
    wait_for_updates();
    add_borrowed();
    if (ranks.lane() != nullptr) add_over_ranks();
    const auto start = Clock::now();
    const double of_all = work->gradients.norm(work->workers, ranks, barrier);
    if (ranks.lane() != nullptr) adding_over_ranks += Clock::now() - start;
    return of_all;
}

// Of all ranks, each of which has looked at its shard.
std::string CoreSession::State::first_non_finite() {
    constexpr std::uint64_t none = ~std::uint64_t{0};
    const auto own = work->gradients.first_non_finite();
    std::uint64_t first = own ? std::uint64_t{own->unit} << 32 | own->index : none;
    if (ranks.ranks() > 1) first = std::ranges::min(gathered(ranks, "what is not finite", first));
    if (first == none) return "their sum";
    return work->gradients.name_of(
        {static_cast<std::uint32_t>(first >> 32), static_cast<std::uint32_t>(first & 0xffffffff)});
}

}  // namespace penstock::zero
