#include "zero_infinity/driver/mailbox.h"

#include <algorithm>
#include <utility>

namespace penstock::zero {

Mailbox::Mailbox(std::uint32_t units, std::size_t tiles)
    : arrived_(units), offers_(units), shut_(units), staged_(tiles) {
    orders_.reserve(64);
}

std::uint64_t Mailbox::send(Order order) {
    const std::lock_guard lock(mutex_);
    throw_failure();
    orders_.push_back(std::move(order));
    return ++sent_;
}

void Mailbox::stop() {
    const std::lock_guard lock(mutex_);
    orders_.push_back(orders::Stop{});
}

void Mailbox::wait_for(std::span<const ArrivedFetch> wanted) {
    wait([&](const Progress&) {
        return std::all_of(wanted.begin(), wanted.end(),
                           [&](const ArrivedFetch& each) { return arrived_[each.unit].fetch == each.fetch; });
    });
}

bool Mailbox::has(const ArrivedFetch& wanted) {
    return arrived(wanted.unit).fetch == wanted.fetch;
}

ArrivedFetch Mailbox::arrived(std::uint32_t unit) {
    const std::lock_guard lock(mutex_);
    return arrived_[unit];
}

// Taken within the wait, under its lock: between a look and a taking the driver might withdraw it.
std::byte* Mailbox::wait_to_update(const ArrivedFetch& wanted) {
    std::byte* weights = nullptr;
    wait([&](const Progress&) {
        if (offers_[wanted.unit].fetch != wanted.fetch) return false;
        weights = std::exchange(offers_[wanted.unit], {}).weights;
        return true;
    });
    return weights;
}

void Mailbox::wait_shut(std::uint32_t unit) {
    wait([&](const Progress&) {
        if (!shut_[unit]) return false;
        shut_[unit] = false;
        return true;
    });
}

StagedStates Mailbox::wait_staged(std::uint64_t number) {
    std::optional<StagedStates> staged;
    wait([&](const Progress&) {
        staged = std::exchange(staged_[number], std::nullopt);
        return staged.has_value();
    });
    return *staged;
}

bool Mailbox::has_spilled(store::SpillBlock block, std::uint64_t errands) {
    const std::lock_guard lock(mutex_);
    return spilled(block) == errands;
}

void Mailbox::wait_for_spill(store::SpillBlock block, std::uint64_t errands) {
    wait([&](const Progress&) { return spilled(block) == errands; });
}

bool Mailbox::failed() {
    const std::lock_guard lock(mutex_);
    return failure_.has_value();
}

void Mailbox::check() {
    const std::lock_guard lock(mutex_);
    throw_failure();
}

Progress Mailbox::progress() {
    const std::lock_guard lock(mutex_);
    return progress_;
}

std::vector<EndedSnapshot> Mailbox::take_snapshots() {
    const std::lock_guard lock(mutex_);
    return std::exchange(ended_snapshots_, {});
}

std::vector<std::string> Mailbox::take_notes() {
    const std::lock_guard lock(mutex_);
    return std::exchange(notes_, {});
}

void Mailbox::take(std::vector<Order>& orders) {
    orders.clear();
    const std::lock_guard lock(mutex_);
    orders.swap(orders_);
}

void Mailbox::arrived(const ArrivedFetch& fetch) {
    const std::lock_guard lock(mutex_);
    arrived_[fetch.unit] = fetch;
}

void Mailbox::offer(std::uint32_t unit, std::uint64_t fetch, std::byte* weights) {
    const std::lock_guard lock(mutex_);
    offers_[unit] = {fetch, weights};
}

// The driver may not go by what it remembers: compute takes an offer long before its order that says so is read.
bool Mailbox::withdraw(std::uint32_t unit, std::uint64_t fetch) {
    const std::lock_guard lock(mutex_);
    if (offers_[unit].fetch != fetch) return false;
    offers_[unit] = {};
    return true;
}

bool Mailbox::shut(std::uint32_t unit) {
    const std::lock_guard lock(mutex_);
    return shut_[unit] = true;
}

void Mailbox::staged(std::uint64_t number, StagedStates states) {
    const std::lock_guard lock(mutex_);
    staged_[number] = states;
}

void Mailbox::given_up(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    staged_[number].reset();
}

void Mailbox::publish(const Progress& progress, const std::optional<DriverFailure>& failure) {
    {
        const std::lock_guard lock(mutex_);
        progress_ = progress;
        if (failure && !failure_) failure_ = failure;
    }
    changed_.notify_all();  // compute, and an update beside it
}

void Mailbox::expect_spill(store::SpillBlock block) {
    const std::lock_guard lock(mutex_);
    if (block.index >= spilled_.size()) spilled_.resize(block.index + 1);
}

void Mailbox::spill_ended(store::SpillBlock block) noexcept {
    const std::lock_guard lock(mutex_);
    ++spilled_[block.index];
}

void Mailbox::add_note(const std::string& note) {
    const std::lock_guard lock(mutex_);
    notes_.push_back(note);
}

void Mailbox::add_snapshot(EndedSnapshot copy) {
    const std::lock_guard lock(mutex_);
    ended_snapshots_.push_back(std::move(copy));
}

std::uint64_t Mailbox::spilled(store::SpillBlock block) const {
    return block.index < spilled_.size() ? spilled_[block.index] : 0;
}

void Mailbox::throw_failure() const {
    if (failure_) throw Error(failure_->code, failure_->message);
}

}  // namespace penstock::zero
