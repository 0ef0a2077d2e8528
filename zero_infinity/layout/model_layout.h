// Where everything of a model lies: its units in objects of the store, in tiles, in groups of weights in memory. Pure:
// decided before a directory is opened, and made once; whoever moves or updates the model asks it.
#pragma once

#include "swap/format/layout.h"
#include "zero_infinity/codec/codec.h"
#include "zero_infinity/layout/parameter_groups.h"
#include "zero_infinity/layout/tier.h"
#include "zero_infinity/layout/unit.h"
#include "zero_infinity/optimizer/optimizer_piece.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::zero {

// What of a unit host memory keeps. Its weights are read by compute as one; each tile of its states is updated by
// itself.
struct UnitResidency {
    static constexpr std::uint32_t all_tiles = std::numeric_limits<std::uint32_t>::max();

    Tier weights = Tier::nvme;
    std::uint32_t state_tiles = 0;  // the first so many; more than there are: all
};

// What a model is kept for.
enum class Purpose : std::uint8_t {
    training,
    forwards,  // weights alone: whatever else the store has is neither in memory nor moved, and nothing is updated
};

// What compute has of a unit's weights between its visits, where shards are gathered.
enum class Gathered : std::uint8_t {
    for_visits,  // nothing: they come for each (ZeRO stage 3)
    for_good,    // all of them, in one place; host memory has the shards (stages 0 to 2)
};

// What decides a layout. The first four are the store's format: the same at every resume.
struct ModelLayoutSpec {
    std::vector<UnitSpec> units;
    StateFormat format;
    ParameterGroups optimizers;
    std::uint64_t tile_numel = 0;
    Partition partition;
    Residency residency;
    std::vector<UnitResidency> unit_residency;  // by unit, where they differ (host_room.h); empty: all as above
    Purpose purpose = Purpose::training;
    Gathered gathered = Gathered::for_visits;  // of several ranks
};

// The objects that hold a unit: indices into ModelLayout::objects(), and of a store that was created with them. Absent
// where the unit has no such bytes, and states in Purpose::forwards.
struct UnitObjects {
    std::optional<std::uint32_t> weights;
    std::optional<std::uint32_t> states;
    std::optional<std::uint32_t> frozen;
};

// A tile of a unit's trainable shard: one of its weights and one of its states.
struct UnitTile {
    std::uint32_t unit = 0;
    std::uint32_t tile = 0;
    bool operator==(const UnitTile&) const = default;
};

// A unit's weights in memory: trainable ones, then frozen ones, each from a granule on.
struct WeightGroup {
    std::uint64_t frozen_offset_bytes = 0;
    std::uint64_t bytes = 0;  // whole granules
};

// One tile of a shard's group: which one, and where in the group it lies.
struct GroupTile {
    store::TileId tile;
    std::uint64_t offset_bytes = 0;
    std::uint64_t bytes = 0;  // of its extent
};

// A value that nobody changes; any thread may read it. Bytes are those of this rank's shards, but for what is gathered.
class ModelLayout {
   public:
    // Throws Error (usage): as UnitLayout, and a parameter group that is without effect. REQUIRES: as UnitLayout; the
    // format keeps as many moments as the optimizers.
    explicit ModelLayout(ModelLayoutSpec spec);

    Purpose purpose() const noexcept { return purpose_; }
    const StateFormat& format() const noexcept { return format_; }
    // Compute finds its weights in the same place at all times.
    bool stays(std::uint32_t unit) const {
        return units_.at(unit).spec().resident || (partition_.ranks > 1 && gathered_ == Gathered::for_good);
    }
    const UnitResidency& residency(std::uint32_t unit) const { return residency_.at(unit); }
    Tier weights_tier(std::uint32_t unit) const { return stays(unit) ? Tier::host : residency_.at(unit).weights; }
    Tier states_tier(UnitTile tile) const {
        return tile.tile < residency_.at(tile.unit).state_tiles ? Tier::host : Tier::nvme;
    }
    std::uint64_t states_bytes(std::uint32_t unit, Tier tier) const;  // of its tiles there
    bool has_residents() const { return resident_bytes() > 0; }
    bool all_resident() const;  // host memory keeps every tile
    Partition partition() const noexcept { return partition_; }
    std::uint64_t tile_numel() const noexcept { return tile_numel_; }  // of all but the last tile of a shard

    std::uint32_t unit_count() const noexcept { return static_cast<std::uint32_t>(units_.size()); }
    const UnitLayout& unit(std::uint32_t unit) const { return units_.at(unit); }
    std::span<const UnitLayout> units() const noexcept { return units_; }

    // What an update goes through: units in order, tiles in order; nothing in Purpose::forwards.
    std::span<const UnitTile> tiles() const noexcept { return tiles_; }
    std::uint64_t number(UnitTile tile) const {
        return first_tiles_.at(tile.unit) + tile.tile;
    }  // its place among them
    // Who updates a unit's shard, and a tile of it. The optimizers live as long as the layout.
    std::span<const OptimizerPiece> pieces(std::uint32_t unit) const { return pieces_.at(unit); }
    TilePieces pieces(UnitTile tile) const { return {pieces_.at(tile.unit), tile.tile * tile_numel_}; }

    // What the store holds: units in order, each with its weights, states and frozen weights.
    std::span<const store::ObjectSpec> objects() const noexcept { return objects_; }
    const UnitObjects& objects(std::uint32_t unit) const { return unit_objects_.at(unit); }
    // How a store of another fingerprint differs, in words: "'head.weights' has 4096 bytes there and 2048 here", or
    // that objects do not show it.
    std::string difference(std::span<const store::ObjectSpec> stored) const;
    // Throws Error (storage) unless a store has all of them where this layout has them: it was made for another model.
    void check_stored(const store::Layout& stored) const;

    // An object's tiles in memory: extents of whole granules, one after the other without gaps.
    std::uint32_t tile_count(std::uint32_t object) const;
    std::uint64_t extent_bytes(store::TileId tile) const;
    std::uint64_t offset_bytes(store::TileId tile) const;
    std::uint64_t memory_bytes(std::uint32_t object) const;                 // of all of them
    std::uint64_t memory_bytes(std::optional<std::uint32_t> object) const;  // 0 for none

    // A unit's weights in memory. Its shard: as they are stored, moved and updated, in tiles.
    WeightGroup shard(std::uint32_t unit) const;
    std::vector<GroupTile> shard_tiles(std::uint32_t unit) const;
    // Gathered: as compute reads them, the trainable range of all shards and the frozen one. The same where there is
    // one rank.
    WeightGroup gathered(std::uint32_t unit) const;

    // Memory that the residency and the largest tiles ask for.
    std::uint64_t staging_tile_bytes() const;      // of one tile's states; 0 where all are resident
    std::uint64_t resident_weights_bytes() const;  // 0 where no unit's weights are resident
    std::uint64_t resident_states_bytes() const;   // 0 where no unit's states are resident
    std::uint64_t resident_bytes() const { return resident_weights_bytes() + resident_states_bytes(); }
    std::uint64_t largest_extent_bytes() const;

   private:
    void append_objects(const UnitLayout& unit);

    Purpose purpose_;
    StateFormat format_;
    std::vector<UnitResidency> residency_;  // by unit
    Partition partition_;
    Gathered gathered_;
    std::uint64_t tile_numel_;
    ParameterGroups optimizers_;  // keeps alive what the pieces point at
    std::vector<UnitLayout> units_;
    std::vector<UnitTile> tiles_;
    std::vector<std::uint64_t> first_tiles_;           // by unit
    std::vector<std::vector<OptimizerPiece>> pieces_;  // by unit
    std::vector<store::ObjectSpec> objects_;
    std::vector<UnitObjects> unit_objects_;
};

}  // namespace penstock::zero
