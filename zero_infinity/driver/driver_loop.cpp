#include "zero_infinity/driver/driver_loop.h"

#include "aio/words/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace penstock::zero {
namespace {

using Clock = std::chrono::steady_clock;

WeightStreamerDeps streamer_deps(const DriverLoopDeps& deps) {
    return {.store = deps.store,
            .device = deps.device,
            .layout = deps.layout,
            .memory = &deps.memory->weights(),
            .trace = deps.trace,
            .arrived =
                [mailbox = deps.mailbox](const Fetch& fetch, Ticket there) {
                    mailbox->arrived({fetch.unit, fetch.number, there});
                },
            .offer = [mailbox = deps.mailbox](
                         const Fetch& fetch, std::byte* weights) { mailbox->offer(fetch.unit, fetch.number, weights); },
            .withdraw = [mailbox =
                             deps.mailbox](const Fetch& fetch) { return mailbox->withdraw(fetch.unit, fetch.number); }};
}

// What is resident was never fetched.
UpdatePipelineDeps pipeline_deps(const DriverLoopDeps& deps, SpillLane& spills, WeightStreamer& weights) {
    return {.store = deps.store,
            .layout = deps.layout,
            .memory = &deps.memory->staging(),
            .spills = &spills,
            .gradients = deps.gradients,
            .trace = deps.trace,
            .staged =
                [mailbox = deps.mailbox](std::uint64_t number, std::byte* states, const std::byte* gradient) {
                    mailbox->staged(number, {states, gradient});
                },
            .given_up = [mailbox = deps.mailbox](std::uint64_t number) { mailbox->given_up(number); },
            .weights_written =
                [memory = &deps.memory->weights(), &weights](std::uint32_t unit) {
                    if (memory->resident(unit) == nullptr) weights.written(unit);
                }};
}

long long whole_seconds(std::chrono::nanoseconds time) {
    return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

}  // namespace

DriverLoop::DriverLoop(const DriverLoopDeps& deps, SnapshotCopierDeps snapshots)
    : deps_(deps),
      spills_(deps.spill, deps.trace),
      weights_(streamer_deps(deps)),
      update_(pipeline_deps(deps, spills_, weights_)),
      snapshots_(std::move(snapshots)),
      notes_passed_(deps.store->notes().size()) {
    orders_.reserve(64);
    for_compute_.mailbox = deps_.mailbox;
    thread_ = std::thread([this] { run(); });
}

DriverLoop::~DriverLoop() {
    stop();
}

void DriverLoop::stop() {
    if (!thread_.joinable()) return;
    deps_.mailbox->stop();
    deps_.io->wake();
    thread_.join();
}

void DriverLoop::run() noexcept {
    while (!stopping_ && !stuck_) {
        try {
            turn();
        } catch (const Error& error) {
            fail(error.code(), error.what());
        } catch (const std::exception& error) {
            fail(ExitCode::internal, error.what());
        }
        deps_.mailbox->publish(progress_, failure_);
        if (stuck_ || stopping_) break;
        // Device copies end without waking the ring: look again soon. FACTS: a 2 MiB copy takes about 100 µs.
        advance(weights_.copying() ? std::chrono::nanoseconds(std::chrono::microseconds(50)) : std::chrono::seconds(1));
    }
    snapshots_.stop();
    spills_.stop();
    // Direct I/O in flight cannot be cancelled: its memory stays leased until it is back.
    while (!stuck_ && !drained()) advance(std::chrono::milliseconds(10));
    if (stuck_) deps_.store->abandon();
}

void DriverLoop::turn() {
    deps_.mailbox->take(orders_);
    for (Order& order : orders_) {
        stopping_ = stopping_ || order.kind == Order::Kind::stop;  // before what it came behind
        to_obey_.push_back(std::move(order));
    }
    if (stopping_) return;
    do {
        obey_orders();
        pump();
    } while (may_obey());  // what an order waited for may have ended
    pump_snapshot();
    pass_on_notes();
    check_copies();
}

void DriverLoop::obey_orders() {
    while (may_obey()) {
        const Order order = std::move(to_obey_.front());
        to_obey_.pop_front();
        ++progress_.orders_done;
        obey(order);
    }
}

// A pass may end before all that was fetched for it has come: nobody else touches those tiles meanwhile.
bool DriverLoop::may_obey() const {
    if (to_obey_.empty()) return false;
    const Order::Kind kind = to_obey_.front().kind;
    if (failure_) return true;
    if (kind == Order::Kind::begin_update) return weights_.fetched();
    const bool alone = kind == Order::Kind::read || kind == Order::Kind::write || kind == Order::Kind::take_back;
    return !alone || weights_.idle();
}

void DriverLoop::obey(const Order& order) {
    switch (order.kind) {
        case Order::Kind::fetch:
            weights_.fetch(order.fetch, order.use, order.after);
            break;
        case Order::Kind::await:
            weights_.await(order.fetch.unit);
            break;
        case Order::Kind::await_update:
            weights_.await(order.fetch.unit);
            update_.demand(order.fetch.unit);
            break;
        case Order::Kind::begin_update:
            update_.begin(order.units, order.residents, order.gradients);
            break;
        case Order::Kind::take_back:
            update_.take_back(order.units);
            break;
        case Order::Kind::begin_unit:
            weights_.updating(order.fetch.unit);
            break;
        case Order::Kind::end_unit:
            weights_.updated(order.fetch.unit);
            break;
        case Order::Kind::put_back:
            update_.put_back(order.number, order.weights);
            break;
        case Order::Kind::write_back:
            write_back_wanted_ = true;
            break;
        case Order::Kind::commit:
            commit_wanted_ = order.client;
            break;
        case Order::Kind::read:
        case Order::Kind::write:
            if (!failure_) begin_transfer(order);
            break;
        case Order::Kind::snapshot:
            snapshots_.begin(order.path, order.client.get());
            break;
        case Order::Kind::end_snapshot:
            snapshots_.stop();
            break;
        case Order::Kind::allocate_spill:
            progress_.allocated = spills_.spill().allocate(order.bytes);
            break;
        case Order::Kind::spill_out:
        case Order::Kind::spill_in:
            send_spill(order);
            break;
        case Order::Kind::await_spill:
            spills_.await(order.block);
            break;
        case Order::Kind::stop:
            break;
    }
}

void DriverLoop::pump() {
    if (failure_ || stopping_) {
        weights_.take_in();
        return;
    }
    weights_.pump();
    fail(weights_.error());
    update_.pump();
    progress_.unwritten_tiles = update_.unwritten_count();
    fail(update_.error());
    fail(spills_.error());
    pump_commit();
    pump_transfer();
}

void DriverLoop::pump_commit() {
    if (commit_under_way_ && commit_.idle()) {
        commit_under_way_ = false;
        trace_end(deps_.trace, TraceThread::driver, commit_started_, {.lane = TraceLane::commit});
        fail(commit_.error());
        if (!failure_) ++progress_.commits;
    }
    if ((commit_wanted_ == nullptr && !write_back_wanted_) || !update_.finished() || failure_) return;
    if (update_.holds_back() && !deps_.in_memory) {
        update_.write_residents();
        update_.pump();
        if (!update_.finished()) return;
    }
    if (std::exchange(write_back_wanted_, false)) ++progress_.written_back;
    if (commit_wanted_ == nullptr) return;
    commit_started_ = trace_start(deps_.trace);
    deps_.store->commit(commit_, *std::exchange(commit_wanted_, nullptr));  // which copies what it needs
    commit_under_way_ = true;
}

// What host memory holds is newer than the store, or as new.
void DriverLoop::begin_transfer(const Order& order) {
    std::byte* resident = deps_.memory->residents().tile(order.tile);
    if (order.kind == Order::Kind::read && resident != nullptr) {
        std::copy_n(resident, order.memory.size(), order.memory.data());
        ++progress_.transfers;
        return;
    }
    if (resident != nullptr) std::copy_n(order.memory.data(), order.memory.size(), resident);
    if (deps_.in_memory) {
        ++progress_.transfers;
        return;
    }
    if (order.kind == Order::Kind::read)
        deps_.store->read(transfer_, order.tile, order.memory, aio::Urgency::demand);
    else
        deps_.store->write(transfer_, order.tile, order.memory, aio::Urgency::demand);
    transfer_under_way_ = true;
}

void DriverLoop::pump_transfer() {
    if (!transfer_under_way_ || !transfer_.idle()) return;
    transfer_under_way_ = false;
    fail(transfer_.error());
    if (!failure_) ++progress_.transfers;
}

void DriverLoop::send_spill(const Order& order) {
    deps_.mailbox->expect_spill(order.block);
    spills_.send(order.block,
                 {.way = order.kind == Order::Kind::spill_out ? SpillErrand::Way::out : SpillErrand::Way::in,
                  .memory = order.memory,
                  .urgency = order.urgency,
                  .listener = &for_compute_,
                  .unit = order.unit});
}

void DriverLoop::pump_snapshot() {
    while (auto ended = snapshots_.take_ended()) {
        deps_.mailbox->add_snapshot(std::move(*ended));
        ++progress_.ended_copies;
    }
    progress_.snapshot = snapshots_.progress();
}

void DriverLoop::pass_on_notes() {
    const std::vector<std::string>& notes = deps_.store->notes();
    for (; notes_passed_ < notes.size(); ++notes_passed_) deps_.mailbox->add_note(notes[notes_passed_]);
    if (deps_.spill == nullptr) return;
    const std::vector<std::string>& of_spill = deps_.spill->notes();
    for (; spill_notes_passed_ < of_spill.size(); ++spill_notes_passed_)
        deps_.mailbox->add_note(of_spill[spill_notes_passed_]);
}

void DriverLoop::advance(std::chrono::nanoseconds timeout) {
    const auto late = deps_.io->advance(timeout);
    if (!late) return;
    stuck_ = true;
    fail(ExitCode::storage, late->message() +
                                ": the device is stuck; the last committed step is safe. Check the "
                                "device (dmesg), then run again to resume");
    deps_.mailbox->publish(progress_, failure_);
}

// Once a second at most: it walks over all copies under way.
void DriverLoop::check_copies() {
    const auto now = Clock::now();
    if (now < next_check_) return;
    next_check_ = now + std::min<std::chrono::nanoseconds>(std::chrono::seconds(1), deps_.deadline / 2);
    if (const auto age = weights_.oldest_copy(); age && *age >= deps_.deadline) {
        stuck_ = true;
        fail(ExitCode::internal,
             fmt::format("a copy of weights to or from device '{}', or the compute before it, has not ended for {} "
                         "s: the device is stuck; the last committed step is safe. Run again to "
                         "resume",
                         deps_.device->name(), whole_seconds(*age)));
    }
}

// Takes in what has come back; true when nothing is under way any more.
bool DriverLoop::drained() noexcept {
    try {
        weights_.take_in();
        check_copies();
    } catch (const std::exception&) {
        stuck_ = true;  // the device answers with errors only: its copies may still be under way
    }
    return idle();
}

bool DriverLoop::idle() const noexcept {
    return update_.idle() && spills_.idle() && snapshots_.idle() && commit_.idle() && transfer_.idle() &&
           weights_.quiet();
}

void DriverLoop::fail(ExitCode code, const std::string& message) {
    if (!failure_) failure_ = DriverFailure{code, message};
}

void DriverLoop::fail(const std::optional<store::StoreError>& error) {
    if (error) fail(ExitCode::storage, error->message);
}

}  // namespace penstock::zero
