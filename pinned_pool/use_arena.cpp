#include "pinned_pool/use_arena.h"

#include "aio/words/check.h"

#include <algorithm>
#include <utility>

namespace penstock::pool {

void Gauge::add(std::uint64_t bytes) noexcept {
    const std::uint64_t now = now_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::uint64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
}

UseArena::UseArena(std::string name, std::span<std::byte> memory, Gauge& pool)
    : name_(std::move(name)), memory_(memory), pool_(pool), free_(memory.size()) {
    counts_.bytes = memory_.size();
}

Block* UseArena::take(std::size_t requested_bytes) {
    const std::lock_guard lock(mutex_);
    // What is longer than the use could overflow when rounded up.
    if (requested_bytes > memory_.size() || !free_.fits(whole_granules(requested_bytes))) {
        count_refusal(requested_bytes);
        return nullptr;
    }
    free_.reserve(granted_count_ + 1);
    Block& block = unused_block();  // from here on nothing allocates
    const std::size_t granted = whole_granules(requested_bytes);
    const std::size_t begin = free_.take(granted);
    first_unused_ = block.next_unused;
    block.data = memory_.data() + begin;
    block.bytes = granted;
    block.claims.store(1, std::memory_order_relaxed);
    block.state = BlockState::leased;
    ++granted_count_;
    gauge_.add(granted);
    pool_.add(granted);
    ++counts_.leases;
    counts_.requested_bytes += requested_bytes;
    counts_.requested_granted_bytes += granted;
    counts_.reach_bytes = std::max<std::uint64_t>(counts_.reach_bytes, begin + granted);
    return &block;
}

void UseArena::count_refusal(std::size_t requested_bytes) {
    ++counts_.refused;
    if (requested_bytes <= memory_.size() - gauge_.now()) ++counts_.refused_fragmented;
}

Block& UseArena::unused_block() {
    if (first_unused_ == nullptr) {
        first_unused_ = &blocks_.emplace_back();
        first_unused_->arena = this;
    }
    return *first_unused_;
}

void UseArena::end_lease(Block& block) noexcept {
    const std::lock_guard lock(mutex_);
    const bool last = block.claims.fetch_sub(1, std::memory_order_acq_rel) == 1;
    if (block.state == BlockState::orphaned) return;
    PENSTOCK_CHECK(block.state == BlockState::leased, "{}: a lease of {} bytes ends twice", name_, block.bytes);
    if (last) {
        take_back(block);
        return;
    }
    block.state = BlockState::parked;
    counts_.parked_bytes += block.bytes;
    counts_.peak_parked_bytes = std::max(counts_.peak_parked_bytes, counts_.parked_bytes);
}

void UseArena::end_hold(Block& block) noexcept {
    if (block.claims.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    const std::lock_guard lock(mutex_);
    if (block.state == BlockState::orphaned) return;
    PENSTOCK_CHECK(block.state == BlockState::parked, "{}: the last hold on {} bytes ends before the lease", name_,
                   block.bytes);
    counts_.parked_bytes -= block.bytes;
    take_back(block);
}

// The caller's claim ends last: until then nobody can find the block without one.
void UseArena::orphan(Block& block) noexcept {
    const std::lock_guard lock(mutex_);
    if (block.state != BlockState::orphaned) {
        if (block.state == BlockState::parked) counts_.parked_bytes -= block.bytes;
        block.state = BlockState::orphaned;
        counts_.orphaned_bytes += block.bytes;
    }
    block.claims.fetch_sub(1, std::memory_order_acq_rel);
}

void UseArena::take_back(Block& block) noexcept {
    free_.give_back(static_cast<std::size_t>(block.data - memory_.data()), block.bytes);
    --granted_count_;
    gauge_.subtract(block.bytes);
    pool_.subtract(block.bytes);
    block.state = BlockState::unused;
    block.next_unused = std::exchange(first_unused_, &block);
}

UseFigures UseArena::figures() const {
    const std::lock_guard lock(mutex_);
    UseFigures figures = counts_;
    figures.granted_bytes = gauge_.now();
    figures.peak_bytes = gauge_.peak();
    figures.longest_free_bytes = free_.longest();
    return figures;
}

double UseFigures::fragmentation() const noexcept {
    const std::uint64_t free_bytes = bytes - granted_bytes;
    if (free_bytes == 0) return 0;
    return 1 - static_cast<double>(longest_free_bytes) / static_cast<double>(free_bytes);
}

}  // namespace penstock::pool
