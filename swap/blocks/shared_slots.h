// The slots of a store whose blocks kept snapshots have, too, and the room that is set aside for them. A write to such
// a slot takes new blocks, so that what was reserved at the store's creation is not enough for it: a disk that others
// fill up meanwhile would end a training. The room is the end of `data`, past the last slot, reserved before blocks are
// shared; it is cut off piece by piece ahead of the writes that need it.
#pragma once

#include "aio/file.h"
#include "swap/format/layout.h"
#include "swap/format/manifest.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace penstock::store {

// Of a store on one device. On the store's thread. Layout and file outlive it.
class SharedSlots {
   public:
    // No slot is shared.
    SharedSlots(const Layout& layout, aio::File& data);
    // As the file system says, of an earlier life's; all of them where it says nothing. Null where no room is set
    // aside.
    static std::unique_ptr<SharedSlots> find(const Layout& layout, aio::File& data);

    // Sets room aside for the slots that `tiles` name, before their blocks are shared. Throws Error as
    // File::reserve_past_end(): then all is as it was.
    void add(std::span<const TileRecord> tiles);
    // The slots of the last add() are not shared after all.
    void take_back() noexcept;

    // Gives room back for a slot that is shared no more once that write is done. What cannot be given back stays.
    void write_begins(std::uint32_t tile_index, std::uint32_t slot) noexcept;

    std::uint64_t shared_bytes() const noexcept { return shared_bytes_; }
    std::uint64_t room_bytes() const noexcept { return room_bytes_; }

    // Of `data` with room for `bytes` of shared slots: what the file system notes about new blocks takes some, too.
    static std::uint64_t file_bytes(const Layout& layout, std::uint64_t bytes);

   private:
    void count(std::vector<bool> shared);
    void cut(std::uint64_t room_bytes) noexcept;
    std::size_t place(std::uint32_t tile_index, std::uint32_t slot) const noexcept;

    const Layout& layout_;
    aio::File& data_;
    std::vector<bool> shared_;  // by place()
    std::vector<bool> before_;  // the last add()
    std::uint64_t shared_bytes_ = 0;
    std::uint64_t room_bytes_ = 0;
    std::uint64_t step_bytes_ = 0;  // of what is cut off at once: direct I/O of the file pauses for it
};

}  // namespace penstock::store
