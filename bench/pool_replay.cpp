#include "bench/pool_replay.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

namespace penstock {

namespace {

using Clock = std::chrono::steady_clock;
using Kind = PoolEvent::Kind;

std::uint32_t ns_since(Clock::time_point start) {
    const auto ns = std::chrono::nanoseconds(Clock::now() - start).count();
    return static_cast<std::uint32_t>(std::min<std::int64_t>(ns, std::numeric_limits<std::uint32_t>::max()));
}

// One lease of the trace and what claims it.
struct Out {
    Lease lease;
    Hold hold;
    std::uint64_t requested_bytes = 0;
    std::uint64_t granted_bytes = 0;

    void drop() {
        if (!lease) return;  // it was refused
        hold = lease.hold();
        lease.reset();
    }
    void give_back() noexcept {
        lease.reset();
        hold.reset();
    }
};

std::vector<UseId> uses_of(const PoolTrace& trace, const PinnedPool& pool) {
    std::vector<UseId> uses;
    for (const Use& use : trace.uses) uses.push_back(pool.use(use.name));
    return uses;
}

// The moment of the trace at which one use's free memory is in the worst pieces.
void watch_fragmentation(const UseFigures& figures, ReplayAccount& account) {
    if (figures.fragmentation() <= account.worst_fragmentation) return;
    account.worst_fragmentation = figures.fragmentation();
    account.worst_free_bytes = figures.bytes - figures.granted_bytes;
}

void add_figures(const UseFigures& figures, ReplayAccount& account) {
    account.requested_bytes += figures.requested_bytes;
    account.granted_bytes += figures.requested_granted_bytes;
    account.peak_parked_bytes += figures.peak_parked_bytes;
    account.use_peak_bytes += figures.peak_bytes;
    account.reach_bytes += figures.reach_bytes;
    account.refused += figures.refused;
    account.refused_fragmented += figures.refused_fragmented;
}

// Sums that rise and fall, and how high they came.
struct Level {
    std::uint64_t now = 0;
    std::uint64_t peak = 0;
    void add(std::uint64_t bytes) {
        now += bytes;
        peak = std::max(peak, now);
    }
};

}  // namespace

TraceDemand demand_of(const PoolTrace& trace) {
    TraceDemand demand;
    Level requested, rounded;
    std::unordered_map<std::uint64_t, std::uint64_t> out;  // id -> bytes
    for (const PoolEvent& event : trace.events) {
        if (event.kind == Kind::refused) ++demand.refused;
        if (event.kind == Kind::granted) {
            ++demand.leases;
            demand.requested_bytes += event.bytes;
            demand.power_of_two_bytes += std::bit_ceil(event.bytes);
            requested.add(event.bytes);
            rounded.add(std::bit_ceil(event.bytes));
            out[event.id] = event.bytes;
        }
        if (event.kind == Kind::returned) {
            const std::uint64_t bytes = out.at(event.id);
            requested.now -= bytes;
            rounded.now -= std::bit_ceil(bytes);
        }
    }
    demand.peak_requested_bytes = requested.peak;
    demand.peak_power_of_two_bytes = rounded.peak;
    return demand;
}

Replay::Replay(const PoolTrace& trace) : trace_(trace) {
    std::unordered_map<std::uint64_t, std::uint32_t> place;  // of an id that is out
    std::vector<std::uint32_t> free;
    for (const PoolEvent& event : trace.events) {
        if (event.kind == Kind::granted) {
            if (free.empty()) free.push_back(places_++);
            place[event.id] = free.back();
            free.pop_back();
        }
        place_of_.push_back(event.kind == Kind::refused ? 0 : place.at(event.id));
        if (event.kind == Kind::returned) free.push_back(place_of_.back());
    }
}

Budget Replay::budget() const {
    Budget budget(trace_.budget_bytes, "the budget of the trace");
    for (const Use& use : trace_.uses) budget.add(use);
    return budget;
}

ReplayAccount Replay::account(PinnedPool& pool) const {
    const std::vector<UseId> uses = uses_of(trace_, pool);
    std::vector<Out> out(places_);
    ReplayAccount account;
    Level requested, granted;
    for (std::size_t i = 0; i < trace_.events.size(); ++i) {
        const PoolEvent& event = trace_.events[i];
        Out& one = out[place_of_[i]];
        if (event.kind == Kind::granted) {
            std::optional<Lease> lease = pool.try_acquire(uses[event.use], event.bytes);
            if (!lease) continue;
            one.lease = std::move(*lease);
            one.requested_bytes = event.bytes;
            one.granted_bytes = one.lease.bytes();
            requested.add(one.requested_bytes);
            granted.add(one.granted_bytes);
        } else if (event.kind == Kind::dropped) {
            one.drop();
        } else if (event.kind == Kind::returned) {
            one.give_back();
            requested.now -= std::exchange(one.requested_bytes, 0);
            granted.now -= std::exchange(one.granted_bytes, 0);
        }
        for (const UseId use : uses) watch_fragmentation(pool.figures(use), account);
    }
    account.peak_requested_bytes = requested.peak;
    account.peak_granted_bytes = granted.peak;
    for (const UseId use : uses) add_figures(pool.figures(use), account);
    return account;
}

ReplayTimes Replay::times(PinnedPool& pool) const {
    const std::vector<UseId> uses = uses_of(trace_, pool);
    std::vector<Out> out(places_);
    ReplayTimes times;
    times.grant_ns.reserve(trace_.events.size());
    times.return_ns.reserve(trace_.events.size());
    for (std::size_t i = 0; i < trace_.events.size(); ++i) {
        const PoolEvent& event = trace_.events[i];
        if (event.kind == Kind::refused) continue;
        Out& one = out[place_of_[i]];
        const Clock::time_point start = Clock::now();
        if (event.kind == Kind::granted) {
            std::optional<Lease> lease = pool.try_acquire(uses[event.use], event.bytes);
            times.grant_ns.push_back(ns_since(start));
            if (lease) one.lease = std::move(*lease);
        } else if (event.kind == Kind::dropped) {
            one.drop();
        } else {
            one.give_back();
            times.return_ns.push_back(ns_since(start));
        }
    }
    return times;
}

}  // namespace penstock
