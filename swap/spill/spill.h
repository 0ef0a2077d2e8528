// Bytes that leave host memory and come back within one run. Nothing of them outlives it.
//
// They lie in one file without a name for each directory of the store (spill_file.h), by blocks: allocated once,
// written whole and read whole any number of times. Each read is compared with the hash of the last write, which is
// kept in memory. Room on disk is reserved when a block is allocated, so that a full disk is an error before anything
// is written.
#pragma once

#include "aio/file.h"
#include "aio/io.h"
#include "swap/directory/store_directory.h"
#include "swap/format/hash.h"
#include "swap/hashing/twice_read.h"
#include "swap/store/tensor_store.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::store {

class Spill;

// Blocks are multiples of it, and so are their addresses in memory.
inline constexpr std::uint64_t spill_granule_bytes = 4096;

struct SpillBlock {
    std::uint32_t index = 0;  // counting from 0 in the order of allocation
    bool operator==(const SpillBlock&) const = default;
};

// Write or read of one block. Caller-owned and intrusive like TileOperation: keep it and its memory until spill_done().
class SpillOperation : private aio::Transfer {
   public:
    SpillOperation() noexcept = default;
    bool idle() const noexcept { return stage_ == Stage::idle; }
    SpillBlock block() const noexcept { return block_; }
    // The outcome, valid from spill_done() until the next start: io or damaged, with file, offset and length. After an
    // error the memory's contents are undefined (read), or the block's (write).
    const std::optional<StoreError>& error() const noexcept { return error_; }

   protected:
    // Exactly once per operation, on the thread of the Io, from its poll() or wait(). May start the next operation,
    // this one included, and may destroy this one.
    virtual void spill_done() noexcept = 0;

   private:
    friend class Spill;
    enum class Stage : std::uint8_t {
        idle,     // the caller's
        writing,  // with the Io
        reading,  // likewise
    };
    void done() noexcept final;

    Spill* spill_ = nullptr;
    SpillBlock block_;
    std::span<std::byte> memory_;  // of the whole block
    Stage stage_ = Stage::idle;
    TwiceRead reading_;
    aio::Urgency urgency_ = aio::Urgency::demand;
    std::optional<StoreError> error_;
};

struct SpillOptions {
    aio::Caching caching = aio::Caching::direct;
    std::vector<std::uint16_t> shares = {};  // of the bytes, by directory; empty: equal ones
    // What could be done instead of spilling, for who has no room for it: a sentence.
    std::string instead = {};
};

// On the thread that owns the Io, but for the counts and what is said otherwise. Directories and Io outlive it; it
// outlives its operations (checked), and where a device is stuck it is kept until the process ends. Touches no disk
// before the first block is allocated. Several directories are several devices, and each block lies on one of them.
class Spill {
   public:
    // REQUIRES: as many shares as directories, or none; each above 0.
    Spill(aio::Io& io, std::vector<StoreDirectory*> directories, SpillOptions options);
    ~Spill();
    Spill(const Spill&) = delete;
    Spill& operator=(const Spill&) = delete;

    // Of so many bytes, rounded up to whole granules: reserved on the device that has least for its share. Throws
    // Error: does_not_fit (directory, bytes that are missing, what to do), storage. Also on another thread while
    // nothing is under way. REQUIRES: bytes > 0.
    SpillBlock allocate(std::uint64_t bytes);
    std::uint64_t block_bytes(SpillBlock block) const;

    // REQUIRES, of both: operation idle; no other one on the block; memory of block_bytes(), at a whole granule; of
    // read(): it was written. What is written stays as it is until spill_done().
    void write(SpillOperation& operation, SpillBlock block, std::span<std::byte> memory, aio::Urgency urgency);
    void read(SpillOperation& operation, SpillBlock block, std::span<std::byte> memory, aio::Urgency urgency);
    // As Io::promote(). REQUIRES: in flight.
    void promote(SpillOperation& operation, aio::Urgency urgency) noexcept;

    std::uint64_t reserved_bytes() const noexcept;  // on disk
    // Of the Io's totals; any thread.
    std::uint64_t read_bytes() const noexcept { return read_bytes_.load(std::memory_order_relaxed); }
    std::uint64_t write_bytes() const noexcept { return write_bytes_.load(std::memory_order_relaxed); }
    // Lines to log: direct I/O refused, a block that was only right when it was read again. At most a hundred.
    const std::vector<std::string>& notes() const noexcept { return notes_; }

   private:
    friend class SpillOperation;
    struct Part {  // of one device
        aio::File file;
        std::uint64_t bytes = 0;
        std::uint16_t share = 1;
    };
    struct Record {
        std::uint32_t part = 0;
        std::uint64_t offset_bytes = 0;
        std::uint64_t bytes = 0;
        TileHash hash;  // of the last write
        bool written = false;
        bool busy = false;
    };

    void open();
    Part& part_for(std::uint64_t bytes);
    void begin(SpillOperation& operation, SpillBlock block, std::span<std::byte> memory, aio::Urgency urgency);
    void start(SpillOperation& operation, aio::IoKind kind);
    void finished(SpillOperation& operation) noexcept;
    bool read_finished(SpillOperation& operation) noexcept;  // false: it is being read again
    std::string describe(SpillBlock block) const;
    void note(std::string line) noexcept;

    aio::Io* io_;
    std::vector<StoreDirectory*> directories_;
    SpillOptions options_;
    std::vector<Part> parts_;  // none before the first block
    std::vector<Record> records_;
    std::uint32_t in_flight_ = 0;
    std::atomic<std::uint64_t> read_bytes_{0};
    std::atomic<std::uint64_t> write_bytes_{0};
    std::vector<std::string> notes_;
};

}  // namespace penstock::store
