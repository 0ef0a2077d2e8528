#include "zero_infinity/driver/device_residents.h"

#include "zero_infinity/plan/memory_plan.h"

namespace penstock::zero {

DeviceResidents::DeviceResidents(const ModelLayout& layout, const Residents& residents, Device& device)
    : layout_(&layout), residents_(&residents), device_(&device), groups_(layout.unit_count()) {
    if (device.shares_host_memory()) return;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        if (layout.unit(unit).spec().resident && layout.group_bytes(unit) > 0)
            groups_[unit] = device.allocate(pool::whole_granules(layout.group_bytes(unit)), resident_weights_use);
}

bool DeviceResidents::has(store::TileId tile) const {
    for (std::uint32_t unit = 0; unit < groups_.size(); ++unit) {
        const UnitObjects& objects = layout_->objects(unit);
        if (groups_[unit] != nullptr && (objects.weights == tile.object || objects.frozen == tile.object)) return true;
    }
    return false;
}

bool DeviceResidents::copy(std::chrono::nanoseconds timeout) const {
    Ticket last;
    const Ticket read = device_->compute_mark();  // what compute reads so far is the old ones
    for (std::uint32_t unit = 0; unit < groups_.size(); ++unit)
        if (groups_[unit] != nullptr)
            last = device_->copy_in(groups_[unit], residents_->group(unit), layout_->group_bytes(unit), read);
    if (!device_->wait(last, timeout)) return false;
    device_->compute_after(last);
    return true;
}

}  // namespace penstock::zero
