#include "swap/blocks/shared_slots.h"

#include "swap/blocks/block_clone.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace penstock::store {
namespace {

constexpr std::uint64_t least_step_bytes = 16ULL << 20;
constexpr std::uint64_t steps = 16;
// For the file system's trees. XFS took 300 KiB for 15,360 tiles of one block, written in a random order.
constexpr std::uint64_t spare_bytes = 2ULL << 20;
constexpr std::uint64_t spare_bytes_of_tile = 128;

}  // namespace

SharedSlots::SharedSlots(const Layout& layout, aio::File& data)
    : layout_(layout), data_(data), shared_(std::size_t{layout.tile_count()} * layout.geometry().slots) {}

std::unique_ptr<SharedSlots> SharedSlots::find(const Layout& layout, aio::File& data) {
    const std::uint64_t bytes = data.bytes();
    const std::uint64_t slots_end = layout.device_bytes(0);
    if (bytes <= slots_end) return nullptr;
    auto found = std::make_unique<SharedSlots>(layout, data);
    found->room_bytes_ = bytes - slots_end;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
    const bool known = for_shared_ranges(
        data, slots_end, [&](std::uint64_t begin, std::uint64_t end) { ranges.emplace_back(begin, end); });
    std::vector<bool> shared(found->shared_.size(), !known);
    for (std::uint32_t index = 0; known && index < layout.tile_count(); ++index) {
        for (std::uint32_t slot = 0; slot < layout.geometry().slots; ++slot) {
            const Extent extent = layout.extent(layout.tile(index), slot);
            const auto past = std::upper_bound(ranges.begin(), ranges.end(), extent.offset_bytes,
                                               [](std::uint64_t at, const auto& range) { return at < range.second; });
            shared[found->place(index, slot)] =
                past != ranges.end() && past->first < extent.offset_bytes + extent.bytes;
        }
    }
    found->count(std::move(shared));
    return found;
}

void SharedSlots::add(std::span<const TileRecord> tiles) {
    std::vector<bool> shared = shared_;
    std::uint64_t bytes = shared_bytes_;
    for (std::uint32_t index = 0; index < tiles.size(); ++index) {
        if (!tiles[index].written || shared[place(index, tiles[index].slot)]) continue;
        shared[place(index, tiles[index].slot)] = true;
        bytes += layout_.extent(layout_.tile(index), 0).bytes;
    }
    const std::uint64_t file = file_bytes(layout_, bytes);
    if (file > layout_.device_bytes(0) + room_bytes_) data_.reserve_past_end(file);
    room_bytes_ = std::max(room_bytes_, file - layout_.device_bytes(0));
    before_ = std::exchange(shared_, {});
    count(std::move(shared));
}

void SharedSlots::take_back() noexcept {
    count(std::move(before_));
    if (shared_bytes_ == 0) cut(0);  // else the next write to a shared slot does it
}

void SharedSlots::write_begins(std::uint32_t tile_index, std::uint32_t slot) noexcept {
    const std::size_t its_place = place(tile_index, slot);
    if (shared_[its_place]) {
        shared_[its_place] = false;
        shared_bytes_ -= layout_.extent(layout_.tile(tile_index), 0).bytes;
    } else if (shared_bytes_ > 0) {
        return;
    }
    if (room_bytes_ > shared_bytes_) cut(shared_bytes_ - std::min(shared_bytes_, step_bytes_));
}

std::uint64_t SharedSlots::file_bytes(const Layout& layout, std::uint64_t bytes) {
    const std::uint64_t spare = spare_bytes + spare_bytes_of_tile * layout.tile_count();
    return layout.device_bytes(0) + bytes + spare / max_granule_bytes * max_granule_bytes;
}

void SharedSlots::count(std::vector<bool> shared) {
    shared_ = std::move(shared);
    shared_bytes_ = 0;
    for (std::uint32_t index = 0; index < layout_.tile_count(); ++index) {
        const std::uint64_t bytes = layout_.extent(layout_.tile(index), 0).bytes;
        for (std::uint32_t slot = 0; slot < layout_.geometry().slots; ++slot)
            if (shared_[place(index, slot)]) shared_bytes_ += bytes;
    }
    step_bytes_ = std::max(least_step_bytes, shared_bytes_ / steps);
}

void SharedSlots::cut(std::uint64_t room_bytes) noexcept {
    int done = 0;
    do {
        done = ::ftruncate(data_.fd(), static_cast<off_t>(layout_.device_bytes(0) + room_bytes));
    } while (done != 0 && errno == EINTR);
    if (done == 0) room_bytes_ = room_bytes;
}

std::size_t SharedSlots::place(std::uint32_t tile_index, std::uint32_t slot) const noexcept {
    return std::size_t{tile_index} * layout_.geometry().slots + slot;
}

}  // namespace penstock::store
