#include "zero_infinity/layout/model_layout.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "pinned_pool/pinned_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace penstock::zero {
namespace {

std::optional<std::uint32_t>& member_for(UnitObjects& objects, const std::string& name) {
    if (name.ends_with(".weights")) return objects.weights;
    if (name.ends_with(".states")) return objects.states;
    return objects.frozen;
}

}  // namespace

ModelLayout::ModelLayout(ModelLayoutSpec spec)
    : purpose_(spec.purpose),
      format_(spec.format),
      residency_(std::move(spec.unit_residency)),
      partition_(spec.partition),
      gathered_(spec.gathered),
      tile_numel_(spec.tile_numel),
      optimizers_(std::move(spec.optimizers)) {
    PENSTOCK_CHECK(format_.moments == optimizers_.moments(), "a format of {} moments for optimizers that keep {}",
                   format_.moments, optimizers_.moments());
    PENSTOCK_CHECK(residency_.empty() || residency_.size() == spec.units.size(), "residency of {} units for {}",
                   residency_.size(), spec.units.size());
    const std::uint32_t state_tiles = spec.residency.states == Tier::host ? UnitResidency::all_tiles : 0;
    residency_.resize(spec.units.size(), {spec.residency.weights, state_tiles});
    units_.reserve(spec.units.size());
    for (UnitSpec& unit : spec.units) units_.emplace_back(std::move(unit), partition_, tile_numel_);
    optimizers_.check_use(units_);
    for (std::uint32_t unit = 0; unit < unit_count(); ++unit) {
        append_objects(units_[unit]);
        pieces_.push_back(optimizer_pieces(units_[unit], optimizers_));
        first_tiles_.push_back(tiles_.size());
        if (purpose_ == Purpose::forwards) continue;
        for (std::uint32_t tile = 0; tile < units_[unit].tile_count(); ++tile) tiles_.push_back({unit, tile});
    }
}

void ModelLayout::append_objects(const UnitLayout& unit) {
    UnitObjects found;
    for (store::ObjectSpec& object : unit.objects(format_)) {
        member_for(found, object.name) = static_cast<std::uint32_t>(objects_.size());
        objects_.push_back(std::move(object));
    }
    if (purpose_ == Purpose::forwards) found.states.reset();
    unit_objects_.push_back(found);
}

std::string ModelLayout::difference(std::span<const store::ObjectSpec> stored) const {
    const auto found = [](std::span<const store::ObjectSpec> in, const std::string& name) {
        return std::find_if(in.begin(), in.end(), [&](const auto& each) { return each.name == name; });
    };
    for (const store::ObjectSpec& here : objects_) {
        const auto there = found(stored, here.name);
        if (there == stored.end()) return fmt::format("'{}' is here and not there", here.name);
        if (there->bytes != here.bytes)
            return fmt::format("'{}' has {} bytes there and {} here", here.name, there->bytes, here.bytes);
        if (there->tile_bytes != here.tile_bytes)
            return fmt::format("'{}' lies in tiles of {} bytes there and of {} here", here.name, there->tile_bytes,
                               here.tile_bytes);
    }
    for (const store::ObjectSpec& there : stored)
        if (found(objects(), there.name) == objects().end())
            return fmt::format("'{}' is there and not here", there.name);
    if (!std::equal(stored.begin(), stored.end(), objects_.begin())) return "its units are in another order";
    return "its units have the sizes of these; shapes, types, what is trained, the optimizer or the codec differ";
}

void ModelLayout::check_stored(const store::Layout& stored) const {
    if (stored.granule_bytes() != pool::granule_bytes)
        throw Error(ExitCode::storage,
                    fmt::format("the file system asks for direct I/O in units of {} bytes, the engine lays "
                                "out memory in units of {}; use another file system",
                                stored.granule_bytes(), pool::granule_bytes));
    const std::vector<store::ObjectSpec>& all = stored.objects();
    for (std::size_t index = 0; index < objects_.size(); ++index) {
        const store::ObjectSpec& wanted = objects_[index];
        if (index < all.size() && all[index] == wanted) continue;
        const bool known =
            std::any_of(all.begin(), all.end(), [&](const auto& each) { return each.name == wanted.name; });
        throw Error(
            ExitCode::storage,
            fmt::format("the store has {} object '{}' of {} bytes in tiles of {}: it was made for another model or "
                        "tile size; use another swap directory",
                        known ? "another" : "no", wanted.name, wanted.bytes, wanted.tile_bytes));
    }
}

std::uint32_t ModelLayout::tile_count(std::uint32_t object) const {
    const store::ObjectSpec& spec = objects_.at(object);
    return static_cast<std::uint32_t>((spec.bytes - 1) / spec.tile_bytes + 1);
}

std::uint64_t ModelLayout::extent_bytes(store::TileId tile) const {
    PENSTOCK_CHECK(tile.tile < tile_count(tile.object), "tile {} of {} in object '{}'", tile.tile,
                   tile_count(tile.object), objects_[tile.object].name);
    const store::ObjectSpec& spec = objects_[tile.object];
    return pool::whole_granules(std::min(spec.tile_bytes, spec.bytes - tile.tile * spec.tile_bytes));
}

// All tiles but the last are whole granules: see UnitLayout::objects().
std::uint64_t ModelLayout::offset_bytes(store::TileId tile) const {
    return tile.tile * objects_.at(tile.object).tile_bytes;
}

std::uint64_t ModelLayout::memory_bytes(std::uint32_t object) const {
    return pool::whole_granules(objects_.at(object).bytes);
}

std::uint64_t ModelLayout::memory_bytes(std::optional<std::uint32_t> object) const {
    return object ? memory_bytes(*object) : 0;
}

WeightGroup ModelLayout::shard(std::uint32_t unit) const {
    const std::uint64_t weights = memory_bytes(objects(unit).weights);
    return {weights, weights + memory_bytes(objects(unit).frozen)};
}

WeightGroup ModelLayout::gathered(std::uint32_t unit) const {
    const UnitLayout& all = units_.at(unit);
    const auto bytes = [&](std::uint64_t numel, Training training) {
        return pool::whole_granules(numel * bytes_of(all.weight_type(training, format_)));
    };
    const std::uint64_t weights = bytes(all.trainable_numel(), Training::trainable);
    return {weights, weights + bytes(all.frozen_numel(), Training::frozen)};
}

std::vector<GroupTile> ModelLayout::shard_tiles(std::uint32_t unit) const {
    std::vector<GroupTile> tiles;
    const auto append = [&](std::optional<std::uint32_t> object, std::uint64_t base_bytes) {
        for (std::uint32_t tile = 0; object && tile < tile_count(*object); ++tile) {
            const store::TileId id{*object, tile};
            tiles.push_back({id, base_bytes + offset_bytes(id), extent_bytes(id)});
        }
    };
    append(objects(unit).weights, 0);
    append(objects(unit).frozen, shard(unit).frozen_offset_bytes);
    return tiles;
}

std::uint64_t ModelLayout::states_bytes(std::uint32_t unit, Tier tier) const {
    if (!objects(unit).states) return 0;
    const std::uint32_t object = *objects(unit).states, in_host = residency_.at(unit).state_tiles;
    const std::uint64_t all = memory_bytes(object);
    const std::uint64_t host = in_host < tile_count(object) ? offset_bytes({object, in_host}) : all;
    return tier == Tier::host ? host : all - host;
}

std::uint64_t ModelLayout::staging_tile_bytes() const {
    std::uint64_t largest = 0;
    for (std::uint32_t unit = 0; unit < unit_count(); ++unit)
        if (states_bytes(unit, Tier::nvme) > 0)
            largest = std::max(largest, extent_bytes({*objects(unit).states, residency_[unit].state_tiles}));
    return largest;
}

bool ModelLayout::all_resident() const {
    for (std::uint32_t unit = 0; unit < unit_count(); ++unit)
        if (weights_tier(unit) == Tier::nvme || states_bytes(unit, Tier::nvme) > 0) return false;
    return true;
}

std::uint64_t ModelLayout::resident_weights_bytes() const {
    std::uint64_t bytes = 0;
    for (std::uint32_t unit = 0; unit < unit_count(); ++unit)
        if (weights_tier(unit) == Tier::host) bytes += shard(unit).bytes;
    return bytes;
}

std::uint64_t ModelLayout::resident_states_bytes() const {
    std::uint64_t bytes = 0;
    for (std::uint32_t unit = 0; unit < unit_count(); ++unit) bytes += states_bytes(unit, Tier::host);
    return bytes;
}

std::uint64_t ModelLayout::largest_extent_bytes() const {
    std::uint64_t largest = 0;
    for (std::uint32_t object = 0; object < objects_.size(); ++object)
        largest = std::max(largest, extent_bytes({object, 0}));
    return largest;
}

}  // namespace penstock::zero
