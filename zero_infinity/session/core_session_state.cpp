#include "zero_infinity/session/core_session_state.h"

#include "aio/words/error.h"
#include "zero_infinity/plan/update_sequence.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::zero {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

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

// Without those that would stay as they are. Of what host memory holds back the update writes all or nothing, and where
// nobody is left the last one's end is the step's.
std::vector<std::uint32_t> CoreSession::State::units_to_update(std::vector<std::uint32_t> units) const {
    if (plan->layout.has_residents() && plan->options.durability != Durability::every_step) return units;
    std::vector<std::uint32_t> changed = units;
    std::erase_if(changed, [this](std::uint32_t unit) { return step_update->stays(unit); });
    return changed.empty() ? units : changed;
}

void CoreSession::State::begin_update(const UpdateRequest& request, double gradient_norm) {
    const auto units = units_to_update(
        in_order_of_visits(plan->layout, defers() ? order.expected(Pass::training) : std::span<const Visit>()));
    step_update->begin(request, gradient_norm, units);
    newest_user = user;
    commits = plan->options.durability.commits_after(request.values.step);
    committed = false;
    norm.reset();
    sums_lent = false;
    begin_writes(units, UpdateAt::arrival, GradientsFrom::spill);
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
    if (!is_within() && !work->driver.next_awaiting()) end_of_units();
}

void CoreSession::State::end_of_units() {
    step_update->end();
    if (commits) begin_commit(newest_user);
}

void CoreSession::State::begin_writes(const std::vector<std::uint32_t>& units, UpdateAt at, GradientsFrom gradients) {
    barrier.before_write();
    work->driver.begin_update(units, commits ? ResidentTiles::written : ResidentTiles::held_back, at, gradients);
}

// The step that is to be updated, or some units of it.
bool CoreSession::State::defers() const noexcept {
    return step_within ? std::find(plan->deferred.begin(), plan->deferred.end(), true) != plan->deferred.end()
                       : may_defer(plan->options.update_order);
}

// A deferred step is, in the pass that is to come or under way.
bool CoreSession::State::all_is_committed_or_will_be() const noexcept {
    return committed || work->driver.commits() || (commits && work->driver.next_awaiting());
}

void CoreSession::State::begin_step(const UpdateRequest& request) {
    step_update->check(request.groups);
    step_within = {.request = request, .groups = {request.groups.begin(), request.groups.end()}};
    step_within->request.groups = step_within->groups;
    if (may_update_within()) update_within();
}

// Nothing would be waited for.
bool CoreSession::State::may_update_within() const {
    return step_within && !step_within->updates && !work->driver.next_awaiting() &&
           (!work->driver.commits() || work->driver.commit_ended());
}

// From now on, once the step before has ended. REQUIRES: no unit awaits its update.
void CoreSession::State::update_within() {
    if (work->driver.commits()) finish_commit();
    step_within->updates = true;
    const UpdateRequest& request = step_within->request;
    step_update->begin_within(request);
    commits = plan->options.durability.commits_after(request.values.step);
    norm.reset();
    sums_lent = false;
    begin_writes(those_of(in_order_of_leaving(plan->layout, order.expected(Pass::training)), plan->deferred, false),
                 UpdateAt::departure, GradientsFrom::memory);
}

// What its pass has left, but for what is deferred; that and what should have been clipped are left to the next pass.
// True: something should have been.
bool CoreSession::State::finish_step(const UpdateRequest& request, double gradient_norm) {
    committed = false;
    norm.reset();
    sums_lent = false;
    newest_user = user;
    const bool again = step_update->clip(request, gradient_norm) && !step_within->updated.empty();
    while (const auto unit = work->driver.next_awaiting()) update_unit(*unit);
    work->driver.renew_residents();
    const std::vector<std::uint32_t> taken_back = again ? step_within->updated : std::vector<std::uint32_t>();
    if (again) {
        work->driver.end_update();
        work->driver.take_back(taken_back);
    }
    const bool leaves = again || defers();
    step_within.reset();
    if (!leaves) {
        end_of_units();
        return false;
    }
    std::vector<bool> left = plan->deferred;
    for (const std::uint32_t unit : taken_back) left[unit] = true;
    const auto units = those_of(in_order_of_visits(plan->layout, order.expected(Pass::training)), left, true);
    step_update->leave(units, taken_back);
    begin_writes(units, UpdateAt::arrival, GradientsFrom::spill);
    return again;
}

// All that there is of the newest step: its updates, its writes, its commit. REQUIRES: no pass.
void CoreSession::State::finish_update() {
    if (is_within()) return;  // its gradients are not all there
    while (const auto unit = work->driver.next_awaiting()) update_unit(*unit);
    work->driver.commits() ? finish_commit() : work->driver.end_update();
}

// Between passes nobody visits it.
void CoreSession::State::make_update_that_is_owed(std::uint32_t unit) {
    if (stage == Stage::ready && owes_update(unit)) perform([&] { finish_update(); });
}

// The newest step is whole, and durable where steps are.
void CoreSession::State::settle() {
    PENSTOCK_CHECK(stage == Stage::ready, "a step is to be whole within a pass, or after an exception");
    PENSTOCK_CHECK(!step_within, "a commit within step {}", step_within->request.values.step);
    check_user_keys();
    perform([&] { finish_update(); });
    if (committed || !is_durable()) return;
    perform([&] {
        begin_commit(user);
        finish_commit();
    });
}

store::ClientState CoreSession::State::client_with(const store::ClientState& user_of_step) const {
    store::ClientState client = newest;
    client.insert(user_of_step.begin(), user_of_step.end());
    client[fingerprint_key] = plan->fingerprint;
    if (!skipped_steps->empty()) client[skipped_steps_key] = skipped_steps->text();
    if (!went_on_from.empty()) client[went_on_from_key] = went_on_from;
    return client;
}

void CoreSession::State::begin_commit(const store::ClientState& user_of_step) {
    barrier.before_write();  // what was held back in host memory is written now
    work->driver.begin_commit(client_with(user_of_step));
}

void CoreSession::State::finish_commit() {
    work->driver.finish_commit();
    barrier.committed();
    committed = true;
}

double CoreSession::State::norm_of_gradients() {
    finish_update();
    add_borrowed();
    const double found = work->gradients.norm(work->workers, *communicator);
    barrier.joined();
    return found;
}

}  // namespace penstock::zero
