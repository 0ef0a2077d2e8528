// What one driver's thread carries with hash: a store whose devices take no time, and as many threads that hash for it
// as are wanted.
#pragma once

#include "bench/swap/swap_rig.h"
#include "pinned_pool/region.h"
#include "swap/store/open_store.h"
#include "zero_infinity/measure/stopwatch.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::bench {

struct NullRigOptions {
    std::string directory;
    std::uint64_t tile_bytes = 8ULL << 20;
    std::uint32_t tiles = 16;              // together more than the caches hold
    std::uint32_t tiles_on_their_way = 8;  // operations in flight
    double device_bytes_per_second = 0;    // 0: the device takes no time
};

// Each tile has memory of its own, in huge pages, which holds what was written last: there a read finds the right bytes
// without anything being moved, and its hash is checked. Owned by one thread, which is the driver's.
class NullRig {
   public:
    // Makes the store, and writes all tiles once. Throws Error: usage, storage, does_not_fit, out_of_memory.
    NullRig(const NullRigOptions& options, unsigned hash_threads);
    ~NullRig();
    NullRig(const NullRig&) = delete;
    NullRig& operator=(const NullRig&) = delete;

    // Tiles over and over for so long, each tile in its turn; of an update both ways count. REQUIRES: not verify.
    zero::Moved run(TileWork work, double seconds);
    // The same memory on so many threads, with nothing around it.
    zero::Moved hash(unsigned threads, double seconds) const;

   private:
    struct Mover;
    void next(Mover& mover) noexcept;
    void moved(Mover& mover) noexcept;
    std::span<std::byte> memory(std::uint32_t tile) const noexcept;

    const NullRigOptions options_;
    BenchFolder folder_;
    pool::Region memory_;
    store::OpenStore open_;
    store::TensorStore* store_ = nullptr;  // open_'s
    std::vector<std::unique_ptr<Mover>> movers_;
    // What run() measures.
    TileWork work_ = TileWork::write;
    std::chrono::steady_clock::time_point until_;
    std::size_t running_ = 0;
    std::uint64_t bytes_ = 0;
    std::uint64_t changes_ = 0;
    std::optional<std::string> error_;
};

}  // namespace penstock::bench
