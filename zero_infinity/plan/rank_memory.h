// What a rank of several takes of host memory beside what one alone takes. Pure arithmetic; nothing where there is one.
#pragma once

#include "zero_infinity/codec/codec.h"
#include "zero_infinity/layout/model_layout.h"

#include <cstdint>

namespace penstock::zero {

// The sums over all ranks, of this rank's shard of each unit, each at a granule.
std::uint64_t shard_sums_bytes(const ModelLayout& layout, std::uint32_t unit, PlaneType type);
std::uint64_t shard_sums_bytes(const ModelLayout& layout, PlaneType type);

// A collective goes in pieces of so many bytes of each rank, the same on all: of a whole shard, or less, so that those
// of all ranks have room in `area_bytes`.
std::uint64_t rank_piece_bytes(const ModelLayout& layout, PlaneType type, std::uint64_t area_bytes);

// Where weights that are gathered on their way to a device lie in host memory: of two units at once.
struct GatheringPlaces {
    std::uint32_t count = 0;
    std::uint64_t bytes = 0;  // of each
};
GatheringPlaces gathering_places(const ModelLayout& layout, bool device_has_memory);

}  // namespace penstock::zero
