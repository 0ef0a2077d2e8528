// Where each tile of each object lies: pure arithmetic on integers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::store {

// A named range of bytes that is stored and moved in tiles of `tile_bytes` (the last one is shorter).
struct ObjectSpec {
    std::string name;              // unique in its store, 1 to 255 bytes of UTF-8 without control characters
    std::uint64_t bytes = 0;       // > 0
    std::uint64_t tile_bytes = 0;  // > 0
    bool operator==(const ObjectSpec&) const = default;
};

struct TileId {
    std::uint32_t object = 0;
    std::uint32_t tile = 0;
    bool operator==(const TileId&) const = default;
};

// How a store lies on its devices. Part of its format: the same for its whole life.
struct Geometry {
    // Of each device: its tiles in a round of sum(shares) tiles, in proportion to its bandwidth
    // (swap/format/striping.h).
    std::vector<std::uint16_t> shares = {1};
    std::uint32_t slots = 2;  // places of a tile: 2, or 1 where no generation follows another
    std::uint64_t granule_bytes = 4096;

    std::uint32_t device_count() const noexcept { return static_cast<std::uint32_t>(shares.size()); }
    bool operator==(const Geometry&) const = default;
};

// One slot of one tile. `bytes` is what is transferred: the tile's length rounded up to the extent granule.
struct Extent {
    std::uint32_t device = 0;
    std::uint64_t offset_bytes = 0;
    std::uint64_t bytes = 0;
};

// Limits of one store. They bound the manifest (below 1 GiB) and what a hostile one can make its reader allocate.
inline constexpr std::uint32_t max_device_count = 64;
inline constexpr std::uint32_t max_round_tiles = 256;  // sum of the shares
inline constexpr std::uint32_t max_object_count = 1U << 20;
inline constexpr std::uint32_t max_tile_count = 1U << 24;       // with tiles of 4 MiB: 64 TiB of objects
inline constexpr std::uint64_t max_device_bytes = 1ULL << 60;   // sums and offsets never overflow
inline constexpr std::uint64_t max_granule_bytes = 2ULL << 20;  // memory is aligned to 2 MiB, not more

// Deterministic in its arguments, so it is not stored. Tiles, counted over all objects, go to the devices in rounds: in
// each a device has as many as its share, spread as evenly as can be. On one device extents lie one after the other in
// the order (object, slot, tile), so that reading an object is sequential.
class Layout {
   public:
    // Throws Error (usage) on an empty, repeated or too large object, or on more than the limits above.
    // REQUIRES: is_possible(geometry).
    Layout(std::vector<ObjectSpec> objects, Geometry geometry);

    // 1 to max_device_count devices, no share of 0, their sum at most max_round_tiles, 1 or 2 slots, the granule a
    // power of two from 512 to max_granule_bytes.
    static bool is_possible(const Geometry& geometry) noexcept;

    const std::vector<ObjectSpec>& objects() const noexcept { return objects_; }
    const Geometry& geometry() const noexcept { return geometry_; }
    std::uint64_t granule_bytes() const noexcept { return geometry_.granule_bytes; }
    std::uint32_t device_count() const noexcept { return static_cast<std::uint32_t>(device_bytes_.size()); }
    std::uint64_t device_bytes(std::uint32_t device) const { return device_bytes_.at(device); }

    std::uint32_t tile_count(std::uint32_t object) const;
    std::uint32_t tile_count() const noexcept { return first_tiles_.back(); }  // of all objects
    std::uint32_t tile_index(TileId id) const;                                 // dense, over all objects in order
    TileId tile(std::uint32_t index) const;                                    // the inverse
    std::uint64_t tile_bytes(TileId id) const;                                 // logical length
    Extent extent(TileId id, std::uint32_t slot) const;                        // REQUIRES: slot < geometry().slots

   private:
    void add(std::uint32_t object);
    void order_round();
    std::uint64_t tiles_before(std::uint32_t index, std::uint32_t device) const;  // on that device, of all objects
    std::uint64_t slot_bytes(std::uint32_t object, std::uint32_t device) const;
    std::uint64_t base_offset(std::uint32_t object, std::uint32_t device) const;
    std::uint64_t rounded(std::uint64_t bytes) const noexcept {
        return (bytes + granule_bytes() - 1) & ~(granule_bytes() - 1);
    }

    std::vector<ObjectSpec> objects_;
    Geometry geometry_;
    std::vector<std::uint32_t> round_;  // the device of each tile of a round
    std::vector<std::uint16_t>
        round_before_;  // tiles of a round before position p on a device, by p * devices + device
    std::vector<std::uint64_t> device_bytes_;
    std::vector<std::uint32_t> first_tiles_;  // of each object, and the count of all at the end
    // Of slot 0, by object / stride * device_count + device, of the first of each `stride` objects: 32 MiB at most. The
    // others are counted on from there.
    std::vector<std::uint64_t> base_offsets_;
    std::uint32_t base_stride_ = 1;
};

}  // namespace penstock::store
