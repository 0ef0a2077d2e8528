#include "zero_infinity/memory/driver_memory.h"

#include "aio/words/check.h"
#include "zero_infinity/plan/memory_plan.h"

namespace penstock::zero {
namespace {

pool::Lease lease_unless_empty(pool::PinnedPool& pool, const char* use, std::uint64_t bytes) {
    return bytes == 0 ? pool::Lease() : pool.acquire(pool.use(use), bytes);
}

std::optional<WeightMemory::Apart> apart_memory(const Bringing& bringing, const GatheredResidents& residents,
                                                ApartMemory& memory, std::uint64_t window_bytes) {
    if (!bringing.apart()) return std::nullopt;
    return WeightMemory::Apart{&residents, window_bytes == 0 ? nullptr : memory.take(weights_use, window_bytes)};
}

}  // namespace

WeightMemory::WeightMemory(const ModelLayout& layout, const Residents& residents, std::span<std::byte> arrivals,
                           std::optional<Apart> apart)
    : layout_(&layout), residents_(&residents), arrivals_(arrivals), apart_(apart) {}

bool WeightMemory::passes_through(std::uint32_t unit) const noexcept {
    return layout_->gathered(unit).bytes > 0 && at(unit) == nullptr;
}

std::byte* WeightMemory::window(std::uint64_t offset_bytes) const noexcept {
    return (apart_ ? apart_->window : arrivals_.data()) + offset_bytes;
}

UnitMemory WeightMemory::unit(std::uint32_t unit, std::uint64_t offset_bytes) const {
    std::byte* group = passes_through(unit) ? window(offset_bytes) : at(unit);
    return {group, group + layout_->gathered(unit).frozen_offset_bytes};
}

StagingMemory::StagingMemory(const ModelLayout& layout, const Residents& residents, std::byte* data, StagingSlots slots)
    : layout_(&layout), residents_(&residents), data_(data), slots_(slots), slot_bytes_(slots.bytes(layout)) {
    PENSTOCK_CHECK(slots.count > 0, "the update needs at least one slot");
}

std::span<std::byte> StagingMemory::gradient(std::uint32_t slot) const {
    return {data_ + (slot + 1) * slot_bytes_ - slots_.gradient_bytes, slots_.gradient_bytes};  // behind the states
}

std::span<std::byte> StagingMemory::states(std::uint64_t number, std::uint32_t slot) const {
    const UnitTile& tile = layout_->tiles()[number];
    const UnitObjects& objects = layout_->objects(tile.unit);
    if (!objects.states) return {};
    const store::TileId id{*objects.states, tile.tile};
    std::byte* resident = residents_->tile(id);
    return {resident != nullptr ? resident : data_ + slot * slot_bytes_, layout_->extent_bytes(id)};
}

std::byte* StagingMemory::resident_weights(std::uint64_t number) const {
    const UnitTile& tile = layout_->tiles()[number];
    const UnitObjects& objects = layout_->objects(tile.unit);
    return objects.weights ? residents_->tile({*objects.weights, tile.tile}) : nullptr;
}

DriverMemory::DriverMemory(aio::Io& io, store::TensorStore& store, pool::PinnedPool& pool, Device& device,
                           Bringing& bringing, const ModelLayout& layout, StagingSlots slots, WindowSizes windows,
                           const FillResidents& fill, Lane* lane)
    : residents_(io, store, pool, layout, fill),
      apart_memory_(pool, device),
      gathered_residents_(layout, residents_, bringing, device, apart_memory_, pool, lane),
      arrivals_(lease_unless_empty(pool, weights_use, bringing.apart() ? windows.passage_bytes : windows.window_bytes)),
      buffers_(lease_unless_empty(pool, staging_use, slots.count * slots.bytes(layout))),
      weights_(layout, residents_, arrivals_.span(),
               apart_memory(bringing, gathered_residents_, apart_memory_, windows.window_bytes)),
      staging_(layout, residents_, buffers_.data(), slots) {}

}  // namespace penstock::zero
