// Tiles on their way between a file and a device's memory through leases of the pool, overlapped.
#pragma once

#include "aio/file.h"
#include "aio/io.h"
#include "pinned_pool/pinned_pool.h"
#include "zero_infinity/device/device.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <span>
#include <vector>

namespace penstock::bench {

enum class Way : std::uint8_t { in, out };  // file -> host -> device, and back
// The whole way, or one link of it alone: then the other link is left out and its bytes are whatever the lease held.
enum class Links : std::uint8_t { both, drive, copy };

// One tile's transfer and what it claims. Idle when it has neither.
struct TileTransfer final : aio::Transfer {
    TileTransfer() noexcept = default;
    ~TileTransfer() override;  // memory that a stuck device still has is orphaned

    pool::Lease lease;
    std::uint64_t tile = 0;
    bool taken = false;
    bool ended = false;

   protected:
    void done() noexcept override { ended = true; }
};

// What a stream works on; all of it outlives the stream. The device may be null with Links::drive.
struct StreamParts {
    aio::Io* io = nullptr;
    pool::PinnedPool* pool = nullptr;
    pool::UseId use;  // whose bytes are a multiple of tile_bytes: as many tiles are on their way at most
    std::span<TileTransfer> transfers;  // as many; they outlive the Io
    zero::Device* device = nullptr;
    const aio::File* file = nullptr;
    std::byte* device_memory = nullptr;  // `bytes` long
    std::uint64_t bytes = 0;             // a multiple of the file's alignment
    std::uint64_t tile_bytes = 0;        // the same; the last tile may be shorter
};

// One direction of tiles, in the order of the file. Never blocks; run() drives it. One thread.
//
// in:  a lease is filled from the file, copied to the device, and dropped as soon as the copy has begun: it is parked
//      until then. out: a lease is filled by the device and dropped when the file has it.
class TransferStream {
   public:
    TransferStream(Way way, Links links, const StreamParts& parts) : way_(way), links_(links), parts_(parts) {}

    bool finished() const noexcept { return finished_tiles_ == tile_count(); }
    // Takes what has ended and starts what can be started. Throws Error (storage, internal).
    void advance();
    // The copy that is awaited next; none when only the drive is working.
    const zero::Ticket* oldest_copy() const noexcept { return copies_.empty() ? nullptr : &copies_.front().ticket; }
    zero::Device* device() const noexcept { return parts_.device; }
    aio::Io& io() const noexcept { return *parts_.io; }

   private:
    struct Copy {
        zero::Ticket ticket;
        std::uint64_t tile;
        pool::Lease lease;  // out: to be written next
        pool::Hold hold;    // in: all that keeps the memory
    };
    std::uint64_t tile_count() const noexcept { return (parts_.bytes + parts_.tile_bytes - 1) / parts_.tile_bytes; }
    std::uint64_t bytes_of(std::uint64_t tile) const noexcept;

    void take_transfers();
    void take_copies();
    void begin_tiles();
    void start_transfer(pool::Lease lease, std::uint64_t tile);
    void start_copy(pool::Lease lease, std::uint64_t tile);

    const Way way_;
    const Links links_;
    const StreamParts parts_;
    std::uint64_t next_tile_ = 0;
    std::uint64_t finished_tiles_ = 0;
    std::deque<Copy> copies_;  // under way, in their order
};

// Runs the streams beside each other until all have finished; returns the seconds. All have the same Io. Throws Error
// (storage, internal) for what failed or has not come back by the Io's deadline; transfers may then still be under way
// until the Io has ended.
double run(std::initializer_list<TransferStream*> streams);

}  // namespace penstock::bench
