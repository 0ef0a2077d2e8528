#include "swap/layout.h"

#include "aio/check.h"
#include "aio/error.h"

#include <algorithm>
#include <string_view>

namespace penstock {
namespace {

[[noreturn]] void refuse(const ObjectSpec& spec, std::string_view why) {
    throw Error(ExitCode::usage,
                fmt::format("object '{}' of {} bytes in tiles of {}: {}", spec.name, spec.bytes, spec.tile_bytes, why));
}

// Well-formed UTF-8 (no overlong forms, no surrogates), without control characters.
bool is_clean_utf8(std::string_view text) {
    for (std::size_t i = 0; i < text.size();) {
        const auto lead = static_cast<unsigned char>(text[i]);
        const std::size_t length = lead < 0x80   ? 1
                                   : lead < 0xc2 ? 0
                                   : lead < 0xe0 ? 2
                                   : lead < 0xf0 ? 3
                                   : lead < 0xf5 ? 4
                                                 : 0;
        if (length == 0 || i + length > text.size()) return false;
        std::uint32_t code = length == 1 ? lead : lead & (0x7fU >> length);
        for (std::size_t k = 1; k < length; ++k) {
            const auto next = static_cast<unsigned char>(text[i + k]);
            if ((next & 0xc0) != 0x80) return false;
            code = (code << 6) | (next & 0x3fU);
        }
        if (code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0xd800 && code < 0xe000)) return false;
        if ((length == 3 && code < 0x800) || (length == 4 && (code < 0x10000 || code > 0x10ffff))) return false;
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

Layout::Layout(std::vector<ObjectSpec> objects, std::uint32_t device_count, std::uint64_t granule_bytes)
    : objects_(std::move(objects)), granule_bytes_(granule_bytes), device_bytes_(device_count, 0), first_tiles_{0} {
    PENSTOCK_CHECK(device_count > 0 && device_count <= max_device_count, "{} devices", device_count);
    PENSTOCK_CHECK(
        granule_bytes > 0 && (granule_bytes & (granule_bytes - 1)) == 0 && granule_bytes <= max_granule_bytes,
        "granule {}", granule_bytes);
    if (objects_.size() > max_object_count) {
        throw Error(ExitCode::usage,
                    fmt::format("{} objects; a store holds at most {}", objects_.size(), max_object_count));
    }
    for (const ObjectSpec& spec : objects_) check_spec(spec);
    check_names_are_unique(objects_);
    first_tiles_.reserve(objects_.size() + 1);
    base_offsets_.reserve(objects_.size() * device_count);
    for (std::uint32_t object = 0; object < objects_.size(); ++object) add(object);
}

void Layout::add(std::uint32_t object) {
    const ObjectSpec& spec = objects_[object];
    const std::uint64_t tiles = (spec.bytes - 1) / spec.tile_bytes + 1;
    if (tiles > max_tile_count - first_tiles_.back())
        refuse(spec, "more than 2^24 tiles in the store; use longer tiles");
    // 2^24 tiles, each rounded up by less than 2 MiB: 2^45 bytes on top of 2^60, so nothing here overflows.
    first_tiles_.push_back(first_tiles_.back() + static_cast<std::uint32_t>(tiles));
    for (std::uint32_t device = 0; device < device_count(); ++device) {
        base_offsets_.push_back(device_bytes_[device]);
        device_bytes_[device] += 2 * slot_bytes(object, device);
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

// Tiles of one object on one device are every device_count-th, so all that lie before tile t there number t /
// device_count, and only an object's very last tile can be shorter than the others.
Extent Layout::extent(TileId id, std::uint32_t slot) const {
    PENSTOCK_CHECK(slot < 2, "slot {}", slot);
    const std::uint32_t devices = device_count();
    const std::uint32_t device = tile_index(id) % devices;
    const std::uint64_t base = base_offsets_[std::uint64_t{id.object} * devices + device];
    const std::uint64_t before = (id.tile / devices) * rounded(objects_[id.object].tile_bytes);
    return {.device = device,
            .offset_bytes = base + slot * slot_bytes(id.object, device) + before,
            .bytes = rounded(tile_bytes(id))};
}

std::uint64_t Layout::slot_bytes(std::uint32_t object, std::uint32_t device) const {
    const std::uint32_t devices = device_count();
    const std::uint32_t tiles = tile_count(object);
    const std::uint32_t first = (device + devices - first_tiles_[object] % devices) % devices;  // the first tile there
    if (first >= tiles) return 0;
    const std::uint64_t count = (tiles - 1 - first) / devices + 1;
    const bool holds_last = (tiles - 1) % devices == first % devices;
    const std::uint64_t full = rounded(objects_[object].tile_bytes);
    const std::uint64_t last = holds_last ? rounded(tile_bytes({.object = object, .tile = tiles - 1})) : full;
    return (count - 1) * full + last;
}

}  // namespace penstock
