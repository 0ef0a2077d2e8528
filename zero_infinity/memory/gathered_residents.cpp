#include "zero_infinity/memory/gathered_residents.h"

#include "zero_infinity/plan/memory_plan.h"

namespace penstock::zero {

GatheredResidents::GatheredResidents(const ModelLayout& layout, const Residents& residents, Bringing& bringing,
                                     Device& device, ApartMemory& memory, pool::PinnedPool& pool, Lane* lane)
    : layout_(&layout), residents_(&residents), bringing_(&bringing), device_(&device), groups_(layout.unit_count()) {
    if (!bringing.apart()) return;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        if (layout.stays(unit) && layout.gathered(unit).bytes > 0)
            groups_[unit] = memory.take(resident_weights_use, layout.gathered(unit).bytes);
    if (lane != nullptr) ranks_ = std::make_unique<RankGathering>(layout, pool, device, *lane);
}

bool GatheredResidents::has(store::TileId tile) const {
    for (std::uint32_t unit = 0; unit < groups_.size(); ++unit) {
        const UnitObjects& objects = layout_->objects(unit);
        if (groups_[unit] != nullptr && (objects.weights == tile.object || objects.frozen == tile.object)) return true;
    }
    return false;
}

bool GatheredResidents::updated(std::uint32_t unit, std::chrono::nanoseconds timeout) const {
    if (!ranks_ || groups_[unit] == nullptr) return true;
    return ranks_->begin(unit, Training::trainable, residents_->group(unit), groups_[unit], timeout);
}

bool GatheredResidents::renew(Renew what, std::chrono::nanoseconds timeout) const {
    if (!ranks_) return bring_all(timeout);
    for (std::uint32_t unit = 0; what == Renew::all && unit < groups_.size(); ++unit)
        for (const Training training : {Training::trainable, Training::frozen})
            if (groups_[unit] != nullptr &&
                !ranks_->begin(unit, training, residents_->group(unit), groups_[unit], timeout))
                return false;
    return ranks_->finish(timeout);
}

bool GatheredResidents::bring_all(std::chrono::nanoseconds timeout) const {
    Ticket last;
    const Ticket read = device_->compute_mark();  // what compute reads so far is the old ones
    for (std::uint32_t unit = 0; unit < groups_.size(); ++unit)
        if (groups_[unit] != nullptr) last = bringing_->bring(unit, groups_[unit], residents_->group(unit), read);
    if (!device_->wait(last, timeout)) return false;
    device_->compute_after(last);
    return true;
}

}  // namespace penstock::zero
