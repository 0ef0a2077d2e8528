#include "zero_infinity/driver/driver_loop.h"

#include "aio/words/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

namespace penstock::zero {
namespace {

using Clock = std::chrono::steady_clock;

WeightStreamerDeps streamer_deps(const DriverLoopDeps& deps) {
    return {.store = deps.store,
            .device = deps.device,
            .bringing = deps.bringing,
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

// What is done with each kind of order: a kind without a case does not compile.
template <typename... Each>
struct Cases : Each... {
    using Each::operator()...;
};
template <typename... Each>
Cases(Each...) -> Cases<Each...>;

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
        stopping_ = stopping_ || is<orders::Stop>(order);  // before what it came behind
        if (const auto* end = std::get_if<orders::Fail>(&order)) fail(end->code, end->message);  // likewise
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
    if (failure_) return true;  // what it would wait for may never come
    const Order& next = to_obey_.front();
    if (is<orders::BeginUpdate>(next)) return weights_.fetched();
    const bool alone = is<orders::ReadAlone>(next) || is<orders::WriteAlone>(next) || is<orders::TakeBack>(next);
    return !alone || weights_.idle();
}

void DriverLoop::obey(const Order& order) {
    using namespace orders;
    const Cases each{
        [&](const Bring& of) { weights_.fetch(of.fetch, of.use, of.after); },
        [&](const Await& of) { weights_.await(of.unit); },
        [&](const BeginUpdate& of) { update_.begin(of.units, of.residents, of.gradients); },
        [&](const AwaitUpdate& of) {
            weights_.await(of.unit);
            update_.demand(of.unit);
        },
        [&](const BeginUnit& of) { weights_.updating(of.unit); },
        [&](const PutBack& of) { update_.put_back(of.number, of.weights); },
        [&](const EndUnit& of) { weights_.updated(of.unit); },
        [&](const Shut& of) {
            weights_.shut(of.unit);
            shutting_.push_back(of.unit);
        },
        [&](const Open& of) { weights_.open(of.unit); },
        [&](const TakeBack& of) { update_.take_back(of.units); },
        [&](const WriteBack&) { write_back_wanted_ = true; },
        [&](const MakeDurable& of) { commit_wanted_ = of.client; },
        [&](const Snapshot& of) { snapshots_.begin(of.path, of.client.get()); },
        [&](const EndSnapshot&) { snapshots_.stop(); },
        [&](const ReadAlone& of) { read_tile(of); },
        [&](const WriteAlone& of) { write_tile(of); },
        [&](const AllocateSpill& of) { progress_.allocated = spills_.spill().allocate(of.bytes); },
        [&](const SendSpill& of) { send_spill(of); },
        [&](const AwaitSpill& of) { spills_.await(of.block); },
        [](const Fail&) {},  // turn() has seen it
        [](const Stop&) {},
    };
    std::visit(each, order);
}

void DriverLoop::pump() {
    if (failure_ || stopping_) {
        weights_.take_in();
        return;
    }
    weights_.pump();
    fail(weights_.error());
    std::erase_if(shutting_, [&](std::uint32_t unit) { return !weights_.has(unit) && deps_.mailbox->shut(unit); });
    update_.pump();
    progress_.unwritten_tiles = update_.unwritten_count();
    fail(update_.error());
    fail(spills_.error());
    pump_commit();
    pump_transfer();
}

// A commit waits for what the update still writes, then for what was held back in host memory, which is an update of
// its own to the pipeline. Called again and again until all of it is written: what is wanted stays wanted meanwhile.
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

// Resident bytes are as new as the store's, or newer.
void DriverLoop::read_tile(const orders::ReadAlone& order) {
    if (failure_) return;
    const std::byte* resident = deps_.memory->residents().tile(order.tile);
    if (resident == nullptr && !deps_.in_memory) {
        deps_.store->read(transfer_, order.tile, order.memory, aio::Urgency::demand);
        transfer_under_way_ = true;
        return;
    }
    if (resident != nullptr) std::copy_n(resident, order.memory.size(), order.memory.data());
    ++progress_.transfers;
}

void DriverLoop::write_tile(const orders::WriteAlone& order) {
    if (failure_) return;
    std::byte* resident = deps_.memory->residents().tile(order.tile);
    if (resident != nullptr) std::copy_n(order.memory.data(), order.memory.size(), resident);
    if (!deps_.in_memory) {
        deps_.store->write(transfer_, order.tile, order.memory, aio::Urgency::demand);
        transfer_under_way_ = true;
        return;
    }
    ++progress_.transfers;
}

void DriverLoop::pump_transfer() {
    if (!transfer_under_way_ || !transfer_.idle()) return;
    transfer_under_way_ = false;
    fail(transfer_.error());
    if (!failure_) ++progress_.transfers;
}

void DriverLoop::send_spill(const orders::SendSpill& order) {
    deps_.mailbox->expect_spill(order.block);
    spills_.send(order.block, {.way = order.way,
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
