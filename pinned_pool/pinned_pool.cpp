#include "pinned_pool/pinned_pool.h"

#include "aio/check.h"
#include "pinned_pool/use_arena.h"

#include <deque>
#include <utility>

namespace penstock {

namespace {

std::size_t round_up(std::size_t bytes) {
    return (bytes + granule_bytes - 1) / granule_bytes * granule_bytes;
}

}  // namespace

struct PinnedPool::State {
    explicit State(const Budget& budget, const PoolOptions& options);

    UseArena& arena(UseId use) {
        PENSTOCK_CHECK(use.index < arenas.size(), "use {} of {}", use.index, arenas.size());
        return arenas[use.index];
    }

    std::uint64_t budget_bytes;
    std::uint64_t arena_bytes;
    Region region;
    std::vector<std::string> notes;
    Gauge gauge;
    std::deque<UseArena> arenas;  // in the order of the budget's uses; never moved
};

PinnedPool::State::State(const Budget& budget, const PoolOptions& options)
    : budget_bytes(budget.limit_bytes()), arena_bytes(budget.used_bytes()) {
    if (arena_bytes > 0) region = Region(arena_bytes, options.touch_threads, options.registration);
    if (!region.note().empty()) notes.push_back(region.note());
    std::size_t begin = 0;
    for (const Use& use : budget.uses()) {
        arenas.emplace_back(use.name, region.data() + begin, use.bytes, gauge);
        begin += use.bytes;
    }
}

PinnedPool::PinnedPool(const Budget& budget, const MachineMemory& machine, PoolOptions options) {
    budget.check(machine);
    state_ = std::make_unique<State>(budget, options);
}

PinnedPool::~PinnedPool() {
    for (const UseArena& arena : state_->arenas) {
        PENSTOCK_CHECK(arena.gauge().now() == 0, "the pool ends while {} bytes of {} are leased", arena.gauge().now(),
                       arena.name());
    }
}

UseId PinnedPool::use(std::string_view name) const {
    std::uint32_t index = 0;
    while (index < state_->arenas.size() && state_->arenas[index].name() != name) ++index;
    PENSTOCK_CHECK(index < state_->arenas.size(), "the budget has no use named {}", name);
    return UseId{index};
}

std::optional<Lease> PinnedPool::try_acquire(UseId use, std::size_t bytes) {
    UseArena& arena = state_->arena(use);
    PENSTOCK_CHECK(bytes > 0, "a lease of no bytes from {}", arena.name());
    if (bytes > arena.bytes()) return std::nullopt;
    const std::size_t granted = round_up(bytes);
    std::byte* data = arena.take(granted);
    if (data == nullptr) return std::nullopt;
    Lease lease;
    lease.arena_ = &arena;
    lease.data_ = data;
    lease.bytes_ = granted;
    return lease;
}

Lease PinnedPool::acquire(UseId use, std::size_t bytes) {
    std::optional<Lease> lease = try_acquire(use, bytes);
    const UseArena& arena = state_->arena(use);
    PENSTOCK_CHECK(lease.has_value(), "{} has no room for {} bytes: {} of {} are in use, the longest free range has {}",
                   arena.name(), bytes, arena.gauge().now(), arena.bytes(), arena.longest_free_bytes());
    return std::move(*lease);
}

std::uint64_t PinnedPool::budget_bytes() const noexcept {
    return state_->budget_bytes;
}
std::uint64_t PinnedPool::arena_bytes() const noexcept {
    return state_->arena_bytes;
}
std::uint64_t PinnedPool::in_use_bytes() const noexcept {
    return state_->gauge.now();
}
std::uint64_t PinnedPool::peak_bytes() const noexcept {
    return state_->gauge.peak();
}
std::uint64_t PinnedPool::in_use_bytes(UseId use) const noexcept {
    return state_->arena(use).gauge().now();
}
std::uint64_t PinnedPool::peak_bytes(UseId use) const noexcept {
    return state_->arena(use).gauge().peak();
}
const std::vector<std::string>& PinnedPool::notes() const noexcept {
    return state_->notes;
}

Lease::Lease(Lease&& other) noexcept
    : arena_(std::exchange(other.arena_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Lease& Lease::operator=(Lease&& other) noexcept {
    if (this == &other) return *this;
    reset();
    arena_ = std::exchange(other.arena_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
}

void Lease::reset() noexcept {
    if (data_ == nullptr) return;
    UseArena* arena = std::exchange(arena_, nullptr);
    std::byte* data = std::exchange(data_, nullptr);
    arena->give_back(data, std::exchange(bytes_, 0));
}

}  // namespace penstock
