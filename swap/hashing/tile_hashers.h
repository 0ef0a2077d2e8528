// The seam between a store and whoever hashes its tiles while its own thread goes on.
#pragma once

#include "aio/transfer.h"
#include "swap/format/hash.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock::store {

// One hash to be taken. Its owner keeps it, and the bytes as they are, until the transfer is back.
struct HashJob {
    std::span<const std::byte> bytes;
    TileIdentity identity;
    TileHash hash;                      // the outcome
    aio::Transfer* transfer = nullptr;  // lent (Io::lend) until the hash is there
    HashJob* next = nullptr;            // of whoever has it
};

class TileHashers {
   public:
    explicit TileHashers(std::uint64_t least_bytes) : least_bytes_(least_bytes) {}
    virtual ~TileHashers() = default;
    TileHashers(const TileHashers&) = delete;
    TileHashers& operator=(const TileHashers&) = delete;

    // Shorter tiles are not worth the way there and back: the store's own thread hashes them.
    bool take(std::uint64_t bytes) const noexcept { return bytes >= least_bytes_; }
    // Gives job.transfer back to its Io once job.hash is there, and touches neither job nor bytes from then on. Called
    // on the thread that owns the Io. Each job ends by itself, whatever becomes of the store.
    virtual void begin(HashJob& job) noexcept = 0;

   private:
    std::uint64_t least_bytes_;
};

// Who hashes the tiles of a store.
struct Hashing {
    unsigned threads = 0;                         // of a HashCrew; 0: the store's own thread hashes all
    std::uint64_t least_bytes = long_hash_bytes;  // of a tile that goes to them
};

}  // namespace penstock::store
