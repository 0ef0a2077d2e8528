#include "zero_infinity/plan/gradient_memory.h"

#include "pinned_pool/pinned_pool.h"

#include <algorithm>

namespace penstock::zero {

std::uint64_t own_gradient_bytes(const UnitLayout& unit, PlaneType type) {
    return pool::whole_granules(unit.trainable_numel() * bytes_of(type));
}

std::uint64_t unit_gradient_bytes(const ModelLayout& layout, std::uint32_t unit, PlaneType type) {
    if (layout.purpose() == Purpose::forwards) return 0;
    std::uint64_t bytes = own_gradient_bytes(layout.unit(unit), type);
    for (const BorrowedSpec& borrowed : layout.unit(unit).spec().borrowed) {
        const ParameterSpec& spec = layout.unit(borrowed.owner).spec().parameters.at(borrowed.parameter);
        if (spec.training == Training::trainable) bytes += pool::whole_granules(spec.numel() * bytes_of(type));
    }
    return bytes;
}

bool may_share_gradients(const ModelLayout& layout, std::uint32_t unit, PlaneType type) {
    const UnitLayout& own = layout.unit(unit);
    return !layout.stays(unit) && unit_gradient_bytes(layout, unit, type) == own_gradient_bytes(own, type);
}

std::vector<bool> shares_gradients(const ModelLayout& layout, PlaneType type, GradientMemory memory) {
    std::vector<bool> shares(layout.unit_count());
    if (memory == GradientMemory::all_units) return shares;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
        const UnitSpec& spec = layout.unit(unit).spec();
        if (memory == GradientMemory::two_units)
            shares[unit] = layout.unit(unit).tile_count() > 0 && !spec.resident && spec.borrowed.empty();
        else
            shares[unit] = may_share_gradients(layout, unit, type);
    }
    if (memory == GradientMemory::two_units)
        for (const UnitLayout& unit : layout.units())
            for (const BorrowedSpec& borrowed : unit.spec().borrowed) shares[borrowed.owner] = false;
    return shares;
}

std::uint64_t gradient_bytes(const ModelLayout& layout, PlaneType type, GradientMemory memory) {
    const std::vector<bool> shares = shares_gradients(layout, type, memory);
    std::uint64_t bytes = 0;
    std::uint64_t largest = 0;
    std::uint64_t sharing = 0;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
        const std::uint64_t own = unit_gradient_bytes(layout, unit, type);
        if (own == 0) continue;
        if (!shares[unit]) {
            bytes += own;
            continue;
        }
        largest = std::max(largest, own);
        ++sharing;
    }
    return bytes + largest * std::min(sharing, gradients_at_once(memory));
}

std::uint64_t gradient_window_bytes(const ModelLayout& layout, PlaneType type) {
    std::uint64_t largest = 0;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        largest = std::max(largest, unit_gradient_bytes(layout, unit, type));
    return std::min(2 * largest, gradient_bytes(layout, type, GradientMemory::all_units));
}

std::uint64_t spilled_gradient_bytes(const ModelLayout& layout, std::uint32_t unit, PlaneType type) {
    return may_share_gradients(layout, unit, type) ? own_gradient_bytes(layout.unit(unit), type) : 0;
}

std::uint64_t spilled_gradient_tile_bytes(const ModelLayout& layout, PlaneType type) {
    std::uint64_t longest = 0;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        if (spilled_gradient_bytes(layout, unit, type) > 0)
            longest = std::max(longest, pool::whole_granules(layout.unit(unit).tile_numel(0) * bytes_of(type)));
    return longest;
}

}  // namespace penstock::zero
