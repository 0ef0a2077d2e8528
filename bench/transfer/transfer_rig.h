// What `penstock-bench transfer` measures with: pool, device, two files that nobody else sees, and a pattern that shows
// every byte that went astray.
#pragma once

#include "aio/words/io_error.h"
#include "bench/transfer/transfer_stream.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace penstock::bench {

struct TransferOptions {
    std::string directory;
    std::uint64_t bytes = 256ULL << 20;     // in each direction; a multiple of tile_bytes or with a shorter last tile
    std::uint64_t tile_bytes = 4ULL << 20;  // a multiple of granule_bytes
    std::uint32_t tiles_on_their_way = 4;   // in each direction: leases of the pool
    zero::DeviceKind device = zero::DeviceKind::emulated;
    std::chrono::microseconds copy_delay{0};  // of the emulated device, for tests
};

// One thread. Set-up throws Error: usage, does_not_fit, storage, out_of_memory. After an Error of a run it may only be
// destroyed.
class TransferRig {
   public:
    explicit TransferRig(const TransferOptions& options);

    bool has_device_memory() const noexcept { return !device_->shares_host_memory(); }
    const char* device_name() const noexcept { return device_->name(); }
    const pool::PinnedPool& pool() const noexcept { return pool_; }
    const aio::File& file() const noexcept { return in_file_; }
    const char* backend_name() const noexcept { return io_.backend_name(); }
    const std::vector<std::string>& notes() const noexcept { return notes_; }

    // A fresh stream over all bytes of its direction. REQUIRES: has_device_memory() unless `links` is drive.
    TransferStream stream(Way way, Links links);

    // The source of a direction gets the pattern of `seed`; then what arrived is compared with it: false when a byte
    // differs. `in` begins in its file and arrives in device memory, `out` the other way round. Not overlapped.
    void prepare(Way way, std::uint64_t seed);
    bool arrived(Way way, std::uint64_t seed);

   private:
    StreamParts parts(Way way);
    void write_file(const aio::File& file, std::uint64_t seed);
    bool file_holds(const aio::File& file, std::uint64_t seed);
    void fill_device(std::byte* memory, std::uint64_t seed);
    bool device_holds(const std::byte* memory, std::uint64_t seed);
    void move_tile(aio::IoKind kind, const aio::File& file, std::uint64_t offset_bytes, std::uint64_t bytes);
    void await(zero::Ticket ticket);

    // Built in this order and destroyed in reverse: the Io decides what is lost before leases and pool go.
    const TransferOptions options_;
    pool::PinnedPool pool_;
    std::unique_ptr<zero::Device> device_;
    std::byte* in_memory_ = nullptr;
    std::byte* out_memory_ = nullptr;
    aio::File in_file_;
    aio::File out_file_;
    std::vector<TileTransfer> in_transfers_;
    std::vector<TileTransfer> out_transfers_;
    TileTransfer own_;  // of what is not overlapped
    aio::ChosenBackend chosen_;
    aio::Io io_;
    std::vector<std::string> notes_;
};

}  // namespace penstock::bench
