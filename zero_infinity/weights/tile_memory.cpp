#include "zero_infinity/weights/tile_memory.h"

#include "zero_infinity/optimizer/gradient.h"
#include "zero_infinity/weights/stretches.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <new>

namespace penstock::zero {
namespace {

std::uint64_t widest_weight_bytes(const ModelLayout& layout) {
    std::uint64_t widest = layout.format().weights_bytes();
    for (const UnitLayout& unit : layout.units())
        widest = std::max(widest, bytes_of(unit.weight_type(Training::frozen, layout.format())));
    return widest;
}

std::uint64_t weights_bytes(const ModelLayout& layout) {
    return pool::whole_granules(largest_tile(layout.units()) * widest_weight_bytes(layout));
}

std::uint64_t encoded_bytes(const ModelLayout& layout) {
    return weights_bytes(layout) + pool::whole_granules(layout.format().states_bytes(largest_tile(layout.units())));
}

}  // namespace

TileMemory::TileMemory(const ModelLayout& layout)
    : values_(largest_tile(layout.units())),
      weights_bytes_(weights_bytes(layout)),
      region_(std::make_unique<pool::Region>(encoded_bytes(layout), 1, pool::Registration::none)) {}

// It stays within reach, so that a leak checker does not take it for lost.
void TileMemory::leave(std::unique_ptr<pool::Region> region) noexcept {
    static std::mutex one_at_a_time;
    static auto& left = *new std::vector<std::unique_ptr<pool::Region>>;
    const std::lock_guard lock(one_at_a_time);
    try {
        left.push_back(std::move(region));  // or it stays here
    } catch (const std::bad_alloc&) {
        static_cast<void>(region.release());
    }
}

std::uint64_t TileMemory::bytes_for(const ModelLayout& layout) {
    return encoded_bytes(layout) + largest_tile(layout.units()) * sizeof(float);
}

void encode_frozen(const float* from, PlaneType type, std::byte* to, std::uint64_t count) noexcept {
    if (type != PlaneType::u8) {
        convert({reinterpret_cast<const std::byte*>(from), PlaneType::fp32, count}, type, to);
        return;
    }
    for (std::uint64_t i = 0; i < count; ++i)  // NaN becomes 0
        to[i] = static_cast<std::byte>(from[i] > 0 ? std::lround(std::min(from[i], 255.0F)) : 0);
}

void decode_frozen(const std::byte* from, PlaneType type, float* to, std::uint64_t count) noexcept {
    if (type != PlaneType::u8) {
        convert({from, type, count}, PlaneType::fp32, reinterpret_cast<std::byte*>(to));
        return;
    }
    for (std::uint64_t i = 0; i < count; ++i) to[i] = std::to_integer<std::uint8_t>(from[i]);
}

}  // namespace penstock::zero
