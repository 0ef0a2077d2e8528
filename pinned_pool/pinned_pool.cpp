#include "pinned_pool/pinned_pool.h"

#include "aio/words/check.h"
#include "pinned_pool/ring_ranges.h"
#include "pinned_pool/use_arena.h"

#include <algorithm>
#include <atomic>
#include <deque>

namespace penstock::pool {

namespace {

// Whole huge pages where the limit allows it: what lies in the small pages of a tail is read and written several times
// slower.
std::size_t mapped_bytes(const Budget& budget) {
    const std::uint64_t used = budget.used_bytes();
    const std::uint64_t whole = round_up(used, huge_page_bytes);
    return whole <= budget.limit_bytes() ? whole : used;
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
    std::size_t piece_bytes;
    Region region;
    std::vector<std::string> notes;
    Gauge gauge;
    std::deque<UseArena> arenas;  // in the order of the budget's uses; never moved
    State* kept_before = nullptr;
};

PinnedPool::State::State(const Budget& budget, const PoolOptions& options)
    : budget_bytes(budget.limit_bytes()), arena_bytes(budget.used_bytes()), piece_bytes(options.piece_bytes) {
    if (arena_bytes > 0)
        region = Region(mapped_bytes(budget), options.touch_threads, options.registration, options.huge_pages,
                        options.piece_bytes);
    if (!region.note().empty()) notes.push_back(region.note());
    std::size_t begin = 0;
    for (const Use& use : budget.uses()) {
        arenas.emplace_back(use.name, std::span(region.data() + begin, use.bytes), gauge);
        begin += use.bytes;
    }
}

PinnedPool::PinnedPool(const Budget& budget, const MachineMemory& machine, PoolOptions options) {
    budget.check(machine);
    PENSTOCK_CHECK(options.piece_bytes > 0 && options.piece_bytes % huge_page_bytes == 0, "pieces of {} bytes",
                   options.piece_bytes);
    state_ = std::make_unique<State>(budget, options);
}

PinnedPool::~PinnedPool() {
    std::uint64_t orphaned_bytes = 0;
    for (const UseArena& arena : state_->arenas) {
        const UseFigures figures = arena.figures();
        PENSTOCK_CHECK(figures.granted_bytes == figures.orphaned_bytes,
                       "the pool ends while {} bytes of {} are leased, {} of them parked",
                       figures.granted_bytes - figures.orphaned_bytes, arena.name(), figures.parked_bytes);
        orphaned_bytes += figures.orphaned_bytes;
    }
    if (orphaned_bytes == 0) return;
    // The one place where memory is kept on purpose: a stuck device may write into it, and claims on it may still end.
    // The chain is read by nobody but leak checkers.
    static std::atomic<State*> kept{nullptr};
    State* state = state_.release();
    state->kept_before = kept.exchange(state);
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
    Block* block = arena.take(bytes);
    if (block == nullptr) return std::nullopt;
    Lease lease;
    lease.block_ = block;
    lease.data_ = block->data;
    lease.bytes_ = block->bytes;
    return lease;
}

Lease PinnedPool::acquire(UseId use, std::size_t bytes) {
    std::optional<Lease> lease = try_acquire(use, bytes);
    if (!lease) {
        const UseFigures figures = this->figures(use);
        PENSTOCK_CHECK(false, "{} has no room for {} bytes: {} of {} are in use, the longest free range has {}",
                       state_->arena(use).name(), bytes, figures.granted_bytes, figures.bytes,
                       figures.longest_free_bytes);
    }
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
UseFigures PinnedPool::figures(UseId use) const {
    return state_->arena(use).figures();
}

std::vector<std::span<std::byte>> PinnedPool::ring_ranges() const {
    std::vector<std::span<std::byte>> ranges;
    for (const ArenaRange& range : penstock::pool::ring_ranges(state_->arena_bytes, state_->region.bytes()))
        ranges.emplace_back(state_->region.data() + range.offset_bytes, range.bytes);
    return ranges;
}

// By addresses as numbers: pointers into different mappings must not be compared.
std::size_t PinnedPool::seam_after(const std::byte* data) const noexcept {
    const std::uintptr_t offset =
        reinterpret_cast<std::uintptr_t>(data) - reinterpret_cast<std::uintptr_t>(state_->region.data());
    if (offset >= state_->arena_bytes) return std::numeric_limits<std::size_t>::max();
    return state_->piece_bytes - offset % state_->piece_bytes;
}

bool PinnedPool::registered() const noexcept {
    return state_->region.registered();
}
std::uint64_t PinnedPool::huge_bytes() const noexcept {
    return state_->region.huge_bytes();
}
const std::vector<std::string>& PinnedPool::notes() const noexcept {
    return state_->notes;
}

}  // namespace penstock::pool
