#include "swap/format/layout.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "swap/format/utf8.h"

#include <algorithm>
#include <numeric>
#include <string_view>

namespace penstock::store {
namespace {

constexpr std::size_t most_base_offsets = std::size_t{4} << 20;

[[noreturn]] void refuse(const ObjectSpec& spec, std::string_view why) {
    throw Error(ExitCode::usage,
                fmt::format("object '{}' of {} bytes in tiles of {}: {}", spec.name, spec.bytes, spec.tile_bytes, why));
}

// Without control characters: U+0000 to U+001F, U+007F to U+009F.
bool is_clean_utf8(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t length = utf8_length(text, i);
        if (length == 0) return false;
        if (length == 1 && (byte(i) < 0x20 || byte(i) == 0x7f)) return false;
        if (length == 2 && byte(i) == 0xc2 && byte(i + 1) < 0xa0) return false;
        i += length;
    }
    return true;
}

void check_spec(const ObjectSpec& spec) {
    if (spec.name.empty() || spec.name.size() > 255) {
        throw Error(ExitCode::usage,
                    fmt::format("the name of an object has {} bytes; 1 to 255 are allowed", spec.name.size()));
    }
    if (!is_clean_utf8(spec.name)) {
        throw Error(ExitCode::usage, "the name of an object is not UTF-8 or has control characters in it");
    }
    if (spec.bytes == 0 || spec.tile_bytes == 0) refuse(spec, "both lengths must be above zero");
    if (spec.bytes > max_device_bytes || spec.tile_bytes > max_device_bytes) refuse(spec, "more than 2^60 bytes");
}

void check_names_are_unique(const std::vector<ObjectSpec>& objects) {
    std::vector<std::string_view> names;
    names.reserve(objects.size());
    for (const ObjectSpec& spec : objects) names.emplace_back(spec.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end())
        throw Error(ExitCode::usage, fmt::format("two objects are named '{}'; names are unique", *twice));
}

}  // namespace

bool Layout::is_possible(const Geometry& geometry) noexcept {
    std::uint64_t round = 0;
    for (const std::uint16_t share : geometry.shares) {
        if (share == 0) return false;
        round += share;
    }
    const std::uint64_t granule = geometry.granule_bytes;
    const bool devices = geometry.device_count() > 0 && geometry.device_count() <= max_device_count;
    const bool slots = geometry.slots == 1 || geometry.slots == 2;
    return devices && slots && round <= max_round_tiles && granule >= 512 && granule <= max_granule_bytes &&
           (granule & (granule - 1)) == 0;
}

Layout::Layout(std::vector<ObjectSpec> objects, Geometry geometry)
    : objects_(std::move(objects)),
      geometry_(std::move(geometry)),
      device_bytes_(geometry_.shares.size(), 0),
      first_tiles_{0} {
    PENSTOCK_CHECK(is_possible(geometry_), "{} devices, {} slots, granule {}", geometry_.shares.size(), geometry_.slots,
                   geometry_.granule_bytes);
    if (objects_.size() > max_object_count) {
        throw Error(ExitCode::usage,
                    fmt::format("{} objects; a store holds at most {}", objects_.size(), max_object_count));
    }
    for (const ObjectSpec& spec : objects_) check_spec(spec);
    check_names_are_unique(objects_);
    order_round();
    first_tiles_.reserve(objects_.size() + 1);
    base_stride_ = static_cast<std::uint32_t>(objects_.size() * device_count() / most_base_offsets + 1);
    base_offsets_.reserve((objects_.size() / base_stride_ + 1) * device_count());
    for (std::uint32_t object = 0; object < objects_.size(); ++object) add(object);
}

// Each device earns its share per tile and the richest pays for the round with the next tile: equal shares give turns,
// and a large share is spread over the round.
void Layout::order_round() {
    const std::uint32_t tiles = std::accumulate(geometry_.shares.begin(), geometry_.shares.end(), 0U);
    std::vector<std::int64_t> credit(device_count(), 0);
    std::vector<std::uint16_t> before(device_count(), 0);
    for (std::uint32_t position = 0; position < tiles; ++position) {
        round_before_.insert(round_before_.end(), before.begin(), before.end());
        for (std::uint32_t device = 0; device < device_count(); ++device) credit[device] += geometry_.shares[device];
        const auto richest = std::max_element(credit.begin(), credit.end()) - credit.begin();
        credit[static_cast<std::size_t>(richest)] -= tiles;
        ++before[static_cast<std::size_t>(richest)];
        round_.push_back(static_cast<std::uint32_t>(richest));
    }
}

void Layout::add(std::uint32_t object) {
    const ObjectSpec& spec = objects_[object];
    const std::uint64_t tiles = (spec.bytes - 1) / spec.tile_bytes + 1;
    if (tiles > max_tile_count - first_tiles_.back())
        refuse(spec, "more than 2^24 tiles in the store; use longer tiles");
    // 2^24 tiles, each rounded up by less than 2 MiB: 2^45 bytes on top of 2^60, so nothing here overflows.
    first_tiles_.push_back(first_tiles_.back() + static_cast<std::uint32_t>(tiles));
    for (std::uint32_t device = 0; device < device_count(); ++device) {
        if (object % base_stride_ == 0) base_offsets_.push_back(device_bytes_[device]);
        device_bytes_[device] += geometry_.slots * slot_bytes(object, device);
        if (device_bytes_[device] > max_device_bytes) refuse(spec, "more than 2^60 bytes on one device");
    }
}

std::uint32_t Layout::tile_count(std::uint32_t object) const {
    PENSTOCK_CHECK(object < objects_.size(), "object {} of {}", object, objects_.size());
    return first_tiles_[object + 1] - first_tiles_[object];
}

std::uint32_t Layout::tile_index(TileId id) const {
    PENSTOCK_CHECK(id.tile < tile_count(id.object), "tile {} of {}", id.tile, tile_count(id.object));
    return first_tiles_[id.object] + id.tile;
}

TileId Layout::tile(std::uint32_t index) const {
    PENSTOCK_CHECK(index < tile_count(), "tile {} of {}", index, tile_count());
    const auto after = std::upper_bound(first_tiles_.begin(), first_tiles_.end(), index);
    const auto object = static_cast<std::uint32_t>(after - first_tiles_.begin() - 1);
    return {.object = object, .tile = index - first_tiles_[object]};
}

std::uint64_t Layout::tile_bytes(TileId id) const {
    const ObjectSpec& spec = objects_[id.object];
    const bool last = id.tile + 1 == tile_count(id.object);
    return last ? spec.bytes - id.tile * spec.tile_bytes : spec.tile_bytes;
}

std::uint64_t Layout::tiles_before(std::uint32_t index, std::uint32_t device) const {
    const auto round = static_cast<std::uint32_t>(round_.size());
    return std::uint64_t{index / round} * geometry_.shares[device] +
           round_before_[std::size_t{index % round} * device_count() + device];
}

// Only an object's very last tile can be shorter than the others.
Extent Layout::extent(TileId id, std::uint32_t slot) const {
    PENSTOCK_CHECK(slot < geometry_.slots, "slot {} of {}", slot, geometry_.slots);
    const std::uint32_t index = tile_index(id);
    const std::uint32_t device = round_[index % round_.size()];
    const std::uint64_t base = base_offset(id.object, device);
    const std::uint64_t before = tiles_before(index, device) - tiles_before(first_tiles_[id.object], device);
    return {
        .device = device,
        .offset_bytes = base + slot * slot_bytes(id.object, device) + before * rounded(objects_[id.object].tile_bytes),
        .bytes = rounded(tile_bytes(id))};
}

std::uint64_t Layout::base_offset(std::uint32_t object, std::uint32_t device) const {
    const std::uint32_t known = object / base_stride_;
    std::uint64_t base = base_offsets_[std::uint64_t{known} * device_count() + device];
    for (std::uint32_t each = known * base_stride_; each < object; ++each)
        base += geometry_.slots * slot_bytes(each, device);
    return base;
}

std::uint64_t Layout::slot_bytes(std::uint32_t object, std::uint32_t device) const {
    const std::uint32_t end = first_tiles_[object + 1];
    const std::uint64_t count = tiles_before(end, device) - tiles_before(first_tiles_[object], device);
    const std::uint64_t full = rounded(objects_[object].tile_bytes);
    if (round_[(end - 1) % round_.size()] != device) return count * full;
    return (count - 1) * full + rounded(tile_bytes({.object = object, .tile = tile_count(object) - 1}));
}

}  // namespace penstock::store
