#include "zero_infinity/driver_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

long long whole_seconds(std::chrono::nanoseconds time) {
    return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

}  // namespace

DriverLoop::DriverLoop(const DriverLoopParts& parts) : parts_(parts), notes_passed_(parts.store->notes().size()) {
    orders_.reserve(64);
    thread_ = std::thread([this] { run(); });
}

DriverLoop::~DriverLoop() {
    stop();
}

void DriverLoop::stop() {
    if (!thread_.joinable()) return;
    parts_.mailbox->stop();
    parts_.io->wake();
    thread_.join();
}

void DriverLoop::run() noexcept {
    while (!stopping_) {
        try {
            turn();
        } catch (const Error& error) {
            fail(error.code(), error.what());
        } catch (const std::exception& error) {
            fail(ExitCode::internal, error.what());
        }
        parts_.mailbox->publish(progress_, failure_);
        if (stuck_ || stopping_) break;
        // Device copies end without waking the ring: look again soon. FACTS: a 2 MiB copy takes about 100 µs.
        const bool copying = running_ != nullptr && running_->copying();
        parts_.io->wait(copying ? std::chrono::nanoseconds(std::chrono::microseconds(50)) : std::chrono::seconds(1));
    }
    parts_.keep->stop();
    // Direct I/O in flight cannot be cancelled: its memory stays leased until it is back.
    while (!stuck_ && !drained()) parts_.io->wait(std::chrono::milliseconds(10));
    if (stuck_) parts_.store->abandon();
}

void DriverLoop::turn() {
    parts_.mailbox->take(orders_);
    for (const Order& order : orders_) obey(order);
    progress_.orders_done += orders_.size();
    pump();
    pump_keep();
    pass_on_notes();
    check_deadline();
}

void DriverLoop::obey(const Order& order) {
    switch (order.kind) {
        case Order::Kind::begin:
            running_ = order.pass == Pass::training ? parts_.training : parts_.inference;
            running_->begin();
            progress_.ready_visits = 0;
            break;
        case Order::Kind::leave:
            running_->used(static_cast<std::uint32_t>(order.number));
            break;
        case Order::Kind::begin_update:
            parts_.update->begin(order.residents);
            progress_.ready_tiles = 0;
            break;
        case Order::Kind::put_back:
            parts_.update->put_back(order.number);
            break;
        case Order::Kind::commit:
            commit_wanted_ = order.client;
            break;
        case Order::Kind::keep:
            parts_.keep->begin(order.path);
            break;
        case Order::Kind::end_keep:
            parts_.keep->stop();
            break;
        case Order::Kind::stop:
            stopping_ = true;
            break;
    }
}

void DriverLoop::pump() {
    if (failure_ || stopping_) return;
    if (running_ != nullptr) {
        running_->pump();
        while (progress_.ready_visits < running_->visit_count() && running_->ready(progress_.ready_visits))
            ++progress_.ready_visits;
        fail(running_->error());
    }
    UpdateLane& update = *parts_.update;
    update.pump();
    while (progress_.ready_tiles < update.tile_count() && update.present(progress_.ready_tiles))
        ++progress_.ready_tiles;
    progress_.written_tiles = update.written_count();
    fail(update.error());
    pump_commit();
}

void DriverLoop::pump_commit() {
    if (commit_under_way_ && commit_.idle()) {
        commit_under_way_ = false;
        fail(commit_.error());
        if (!failure_) ++progress_.commits;
    }
    if (commit_wanted_ == nullptr || !parts_.update->finished() || failure_) return;
    if (parts_.update->holds_back()) {
        parts_.update->write_residents();
        parts_.update->pump();
        if (!parts_.update->finished()) return;
    }
    parts_.store->commit(commit_, *std::exchange(commit_wanted_, nullptr));
    commit_under_way_ = true;
}

void DriverLoop::pump_keep() {
    while (auto ended = parts_.keep->take_ended()) {
        parts_.mailbox->add_kept(std::move(*ended));
        ++progress_.ended_copies;
    }
    progress_.keep = parts_.keep->progress();
}

void DriverLoop::pass_on_notes() {
    const std::vector<std::string>& notes = parts_.store->notes();
    for (; notes_passed_ < notes.size(); ++notes_passed_) parts_.mailbox->add_note(notes[notes_passed_]);
}

// Once a second at most: it walks over everything in flight.
void DriverLoop::check_deadline() {
    const auto now = Clock::now();
    if (now < next_check_) return;
    next_check_ = now + std::min<std::chrono::nanoseconds>(std::chrono::seconds(1), parts_.deadline / 2);
    if (const auto late = parts_.io->stuck()) {
        stuck_ = true;
        fail(ExitCode::storage, late->message() +
                                    ": the device is stuck; the last committed step is safe. Check the "
                                    "device (dmesg), then run again to resume");
    }
    if (running_ == nullptr) return;
    if (const auto age = running_->oldest_copy(); age && *age >= parts_.deadline) {
        stuck_ = true;
        fail(ExitCode::internal, fmt::format("a copy of weights to device '{}' has not ended for {} s: the device is "
                                             "stuck; the last committed step is safe. Run again to resume",
                                             parts_.device->name(), whole_seconds(*age)));
    }
}

// Takes in what has come back; true when nothing is under way any more.
bool DriverLoop::drained() noexcept {
    try {
        if (running_ != nullptr) running_->take_in();
        check_deadline();
    } catch (const std::exception&) {
        stuck_ = true;  // the device answers with errors only: its copies may still be under way
    }
    return idle();
}

bool DriverLoop::idle() const noexcept {
    return parts_.update->idle() && parts_.keep->idle() && commit_.idle() && parts_.training->idle() &&
           parts_.inference->idle();
}

void DriverLoop::fail(ExitCode code, const std::string& message) {
    if (!failure_) failure_ = DriverFailure{code, message};
}

void DriverLoop::fail(const std::optional<StoreError>& error) {
    if (error) fail(ExitCode::storage, error->message);
}

}  // namespace penstock
