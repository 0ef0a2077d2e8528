// A lease and its holds: both are claims on a block, which its arena counts.
#include "aio/words/check.h"
#include "pinned_pool/pinned_pool.h"
#include "pinned_pool/use_arena.h"

#include <utility>

namespace penstock::pool {

Hold::Hold(Hold&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}

Hold& Hold::operator=(Hold&& other) noexcept {
    if (this == &other) return *this;
    reset();
    block_ = std::exchange(other.block_, nullptr);
    return *this;
}

Hold Hold::hold() const noexcept {
    PENSTOCK_CHECK(block_ != nullptr, "a hold of an empty hold");
    block_->claims.fetch_add(1, std::memory_order_relaxed);  // ours keeps it from being the first
    return Hold(block_);
}

void Hold::reset() noexcept {
    if (block_ == nullptr) return;
    Block& block = *std::exchange(block_, nullptr);
    block.arena->end_hold(block);
}

void Hold::orphan() noexcept {
    if (block_ == nullptr) return;
    Block& block = *std::exchange(block_, nullptr);
    block.arena->orphan(block);
}

Lease::Lease(Lease&& other) noexcept
    : block_(std::exchange(other.block_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Lease& Lease::operator=(Lease&& other) noexcept {
    if (this == &other) return *this;
    reset();
    block_ = std::exchange(other.block_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
}

Hold Lease::hold() const noexcept {
    PENSTOCK_CHECK(block_ != nullptr, "a hold of an empty lease");
    block_->claims.fetch_add(1, std::memory_order_relaxed);
    return Hold(block_);
}

void Lease::reset() noexcept {
    if (block_ == nullptr) return;
    Block& block = *std::exchange(block_, nullptr);
    data_ = nullptr;
    bytes_ = 0;
    block.arena->end_lease(block);
}

void Lease::orphan() noexcept {
    if (block_ == nullptr) return;
    Block& block = *std::exchange(block_, nullptr);
    data_ = nullptr;
    bytes_ = 0;
    block.arena->orphan(block);
}

}  // namespace penstock::pool
