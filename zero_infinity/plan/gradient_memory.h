// How much memory gradients take, of whom and where. Pure.
#pragma once

#include "zero_infinity/kernels/plane.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/plan/memory_plan.h"

#include <cstdint>
#include <vector>

namespace penstock::zero {

// Bytes that the budget's use gradients_use must have.
std::uint64_t gradient_bytes(const ModelLayout& layout, PlaneType type, GradientMemory memory);
// The least that a device with memory of its own gives for gradients on their way to the host: two windows of the
// largest unit, or, where that is less, what all units take: then all stay there until host memory is looked at.
std::uint64_t gradient_window_bytes(const ModelLayout& layout, PlaneType type);

// Of GradientMemory::nvme. What a unit's gradients take there, and in each of their ways; 0: they stay in host memory.
std::uint64_t spilled_gradient_bytes(const ModelLayout& layout, std::uint32_t unit, PlaneType type);
std::uint64_t spilled_gradient_tile_bytes(const ModelLayout& layout, PlaneType type);  // of the longest tile

std::uint64_t own_gradient_bytes(const UnitLayout& unit, PlaneType type);  // of its own parameters, on all ranks
// The same, and behind it what it borrows.
std::uint64_t unit_gradient_bytes(const ModelLayout& layout, std::uint32_t unit, PlaneType type);
// Whether its memory may be another unit's between its uses. Not that of units which hand theirs on later than the next
// unit's come: what is lent to an owner, or updated after all passes.
bool may_share_gradients(const ModelLayout& layout, std::uint32_t unit, PlaneType type);
// By unit: the same, with that memory. Of two_units: whose sums a pass makes whole before it ends; not what is lent to
// an owner or comes to it, nor what is visited at no time of its own.
std::vector<bool> shares_gradients(const ModelLayout& layout, PlaneType type, GradientMemory memory);
// So many of those units have theirs in host memory.
constexpr std::uint64_t gradients_at_once(GradientMemory memory) noexcept {
    return memory == GradientMemory::one_unit ? 1 : 2;  // one is computed while the other is on its way
}

}  // namespace penstock::zero
