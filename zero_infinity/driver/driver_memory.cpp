#include "zero_infinity/driver/driver_memory.h"

#include "aio/words/check.h"
#include "zero_infinity/plan/memory_plan.h"

#include <algorithm>
#include <utility>

namespace penstock::zero {
namespace {

std::uint64_t window_bytes(const std::optional<WeightSchedule>& one, const std::optional<WeightSchedule>& other) {
    return std::max(one ? one->window_bytes() : 0, other ? other->window_bytes() : 0);
}

pool::Lease lease_unless_empty(pool::PinnedPool& pool, const char* use, std::uint64_t bytes) {
    return bytes == 0 ? pool::Lease() : pool.acquire(pool.use(use), bytes);
}

std::byte* allocate_unless_empty(Device& device, std::uint64_t bytes) {
    return bytes == 0 ? nullptr : device.allocate(bytes, weights_use);
}

}  // namespace

PassMemory::PassMemory(const ModelLayout& layout, const Residents& residents, PassSchedules schedules,
                       std::byte* host_window, std::byte* device_window)
    : layout_(&layout),
      residents_(&residents),
      schedules_(std::move(schedules)),
      host_window_(host_window),
      device_window_(device_window) {}

std::uint32_t PassMemory::visit_count() const noexcept {
    return static_cast<std::uint32_t>(schedules_.host.visits().size());
}

UnitMemory PassMemory::unit(std::uint32_t visit, std::uint32_t unit) const {
    std::byte* group = nullptr;
    if (schedules_.device) {
        group = device(schedules_.device->holder(visit, unit));
    } else if (std::byte* resident = residents_->group(unit)) {
        group = resident;
    } else {
        group = host(schedules_.host.holder(visit, unit));
    }
    return {group, group + layout_->frozen_offset_bytes(unit)};
}

StagingMemory::StagingMemory(const ModelLayout& layout, const Residents& residents, std::byte* data,
                             std::uint32_t buffers)
    : layout_(&layout),
      residents_(&residents),
      data_(data),
      buffers_(buffers),
      buffer_bytes_(layout.staging_tile_bytes()) {
    PENSTOCK_CHECK(buffers > 0, "the update needs at least one staging buffer");
}

StagingMemory::Place StagingMemory::place(std::uint64_t number) const {
    const UnitTile& tile = layout_->tiles()[number];
    const UnitObjects& objects = layout_->objects(tile.unit);
    std::byte* free = data_ + number % buffers_ * buffer_bytes_;
    Place place;
    if (objects.weights) {
        const store::TileId id{*objects.weights, tile.tile};
        const std::uint64_t bytes = layout_->extent_bytes(id);
        std::byte* resident = residents_->group(tile.unit);
        place.weights = {resident != nullptr ? resident + layout_->offset_bytes(id) : free, bytes};
        if (resident == nullptr) free += bytes;
    }
    if (objects.states) {
        const store::TileId id{*objects.states, tile.tile};
        std::byte* resident = residents_->states(id);
        place.states = {resident != nullptr ? resident : free, layout_->extent_bytes(id)};
    }
    return place;
}

StagedTile StagingMemory::tile(std::uint64_t number) const {
    const UnitTile& tile = layout_->tiles()[number];
    const Place where = place(number);
    const std::uint64_t numel = layout_->unit(tile.unit).tile_numel(tile.tile);
    return {tile, number, {where.weights.data(), where.states.data(), numel}};
}

DriverMemory::DriverMemory(aio::Io& io, store::TensorStore& store, pool::PinnedPool& pool, Device& device,
                           const ModelLayout& layout, std::uint32_t staging_tiles, PassSchedules training,
                           PassSchedules inference)
    : residents_(io, store, pool, layout),
      window_(lease_unless_empty(pool, weights_use, window_bytes(training.host, inference.host))),
      buffers_(lease_unless_empty(pool, staging_use, staging_tiles * layout.staging_tile_bytes())),
      device_window_(allocate_unless_empty(device, window_bytes(training.device, inference.device))),
      training_(layout, residents_, std::move(training), window_.data(), device_window_),
      inference_(layout, residents_, std::move(inference), window_.data(), device_window_),
      staging_(layout, residents_, buffers_.data(), staging_tiles) {}

}  // namespace penstock::zero
