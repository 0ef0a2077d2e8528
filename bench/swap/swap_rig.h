// What `penstock bench swap` measures with: a store and, beside it, a plain file of the same length, both moved by the
// same Io from and to the same leases.
#pragma once

#include "aio/backend.h"
#include "aio/io.h"
#include "bench/harness/bench_file.h"
#include "swap/store/open_store.h"
#include "zero_infinity/measure/measuring_memory.h"
#include "zero_infinity/measure/stopwatch.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::bench {

class Interruption;

struct SwapRigOptions {
    std::string directory;
    std::uint64_t bytes = 1ULL << 30;       // of the store's one object
    std::uint64_t tile_bytes = 8ULL << 20;  // a multiple of granule_bytes
    std::uint32_t tiles_on_their_way = 4;   // leases of one tile each
    std::optional<aio::BackendKind> backend;
};

enum class Side : std::uint8_t { store, plain };  // plain: Transfers, to the offsets that a store would use
// update: read, change, write to the other slot. verify: what `penstock ckpt verify` does, beside reads of the plain
// file.
enum class TileWork : std::uint8_t { read, write, update, verify };
const char* to_string(TileWork work) noexcept;

// One pass over all tiles, from the first start to the last end.
struct SwapPass {
    zero::Moved moved;          // an update's bytes count twice: read and written
    double commit_seconds = 0;  // of the commit after a pass of the store that wrote; not in `moved`
};

// Owned by one thread. Every call throws Error: storage (an I/O error, a stuck device, a wrong hash), interrupted; both
// after what was in flight has ended, as far as it does.
class SwapRig {
   public:
    // Makes pool, ring, store and file, and writes all of both once. Throws Error (does_not_fit) too.
    SwapRig(const SwapRigOptions& options, Interruption& stop);
    ~SwapRig();
    SwapRig(const SwapRig&) = delete;
    SwapRig& operator=(const SwapRig&) = delete;

    SwapPass pass(Side side, TileWork work);
    // Rewrites one tile, untimed, and commits. Returns the seconds of the commit.
    double commit_one_tile();
    // Bytes that a new store pre-writes, and the seconds that its creation takes. It is removed again.
    zero::Moved create_another(std::uint64_t bytes);
    // Hashes the leases' memory over and over, one tile after the other.
    zero::Moved hash(double seconds) const;

    bool direct() const noexcept { return plain_.direct(); }
    const char* backend_name() const noexcept { return open_.io().backend_name(); }
    std::uint64_t huge_bytes() const noexcept { return memory_.pool().huge_bytes(); }
    std::uint64_t pool_bytes() const noexcept { return memory_.pool().arena_bytes(); }
    std::vector<std::string> notes() const;

   private:
    struct Mover;
    struct StoreMover;
    struct PlainMover;
    struct Section {  // what pass() measures
        TileWork work = TileWork::read;
        std::uint32_t next_tile = 0;
        std::uint32_t end_tile = 0;
        std::size_t running = 0;
        std::uint64_t bytes = 0;
        std::optional<std::string> error;
    };
    Mover& mover(Side side, std::size_t slot) const noexcept;
    void next(Mover& mover) noexcept;
    void moved(Mover& mover, std::uint64_t bytes, const std::string* error) noexcept;
    zero::Moved run(Side side, TileWork work, std::uint32_t end_tile);
    zero::Moved verify_store();
    void settle();
    double commit();
    [[noreturn]] void give_up(const aio::OldestTransfer& stuck);

    // Built in this order and destroyed in reverse: the Io decides what is lost before their memory goes.
    const SwapRigOptions options_;
    Interruption& stop_;
    BenchFolder folder_;
    zero::MeasuringMemory memory_;  // a tile for each mover
    aio::File plain_;
    std::vector<std::string> notes_;
    store::OpenStore open_;
    store::TensorStore* store_ = nullptr;  // open_'s
    std::vector<std::unique_ptr<StoreMover>> store_movers_;
    std::vector<std::unique_ptr<PlainMover>> plain_movers_;
    std::uint32_t plain_slot_ = 0;  // which the plain side reads; it writes the other
    std::uint64_t steps_ = 0;
    Section section_;
};

}  // namespace penstock::bench
