// Named objects of bytes that survive crashes: two slots per tile and a generation manifest.
//
// A write goes to the slot that is not current. commit() flushes the data, then writes the manifest of generation g+1
// in the place of g-1, never over g's. A kill or power cut at any instant leaves the last committed generation whole.
// (Shadow paging with a versioned root, as in Lorie 1977 and ZFS's uberblocks.)
#pragma once

#include "aio/file.h"
#include "aio/io.h"
#include "swap/layout.h"
#include "swap/manifest.h"
#include "swap/store_directory.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

class StoreState;  // swap/store_state.h: the implementation's

// Why a tile could not be read or written, or a generation not be committed. The message is complete: object, tile,
// file, offset, cause, remedy.
struct StoreError {
    enum class Kind : std::uint8_t {
        io,       // the device said no
        damaged,  // the bytes are not the ones that were written (after a second read)
        poisoned  // an earlier flush or commit failed: nothing can be committed any more
    };
    Kind kind = Kind::io;
    std::string message;
};

// Read or write of one tile. Caller-owned and intrusive like Transfer: keep it and its memory until tile_done(). One
// operation in flight per tile.
class TileOperation : private Transfer {
   public:
    TileOperation() noexcept = default;
    bool idle() const noexcept { return !busy_; }
    TileId tile() const noexcept { return tile_; }
    // The outcome, valid from tile_done() until the next start. After an error the memory's contents are undefined
    // (read).
    const std::optional<StoreError>& error() const noexcept { return error_; }

   protected:
    // Exactly once per operation, on the store's thread, from Io::poll() or wait(); never from read() or write(). May
    // start the next operation, this one included, and may destroy this one.
    virtual void tile_done() noexcept = 0;

   private:
    friend class StoreState;
    void done() noexcept final;

    StoreState* store_ = nullptr;
    TileId tile_;
    std::span<std::byte> memory_;  // the extent
    bool busy_ = false;
    bool reread_ = false;
    std::uint64_t offset_bytes_ = 0;
    std::uint64_t generation_ = 0;
    TileHash hash_;  // what a read expects
    std::optional<StoreError> error_;
};

// Caller-owned like TileOperation; keep it until committed(). The destructor checks that it is idle.
class CommitOperation {
   public:
    CommitOperation() noexcept = default;
    CommitOperation(const CommitOperation&) = delete;
    CommitOperation& operator=(const CommitOperation&) = delete;
    virtual ~CommitOperation();
    bool idle() const noexcept { return !busy_; }
    const std::optional<StoreError>& error() const noexcept { return error_; }

   protected:
    virtual void committed() noexcept = 0;  // as tile_done(); also when there is an error

   private:
    friend class StoreState;
    bool busy_ = false;
    std::optional<StoreError> error_;
};

struct CreateOptions {
    std::vector<ObjectSpec> objects;
    Caching caching = Caching::direct;
    // Called on the caller's thread while the files are pre-written (FACTS: overwriting is twice as fast as a first
    // write). What it throws ends the creation and reaches the caller.
    std::function<void(std::uint64_t written_bytes, std::uint64_t total_bytes)> progress = {};
};

struct TileLocation {
    std::string path;  // "DIR/data" of the device
    std::uint64_t offset_bytes = 0;
};

// All calls on the thread that owns the Io; results come while that thread polls the Io. Directories and Io outlive the
// store; the store outlives its operations (checked). Several directories are several devices; the first holds the
// manifests.
class TensorStore {
   public:
    // Reserves and pre-writes the files; generation 0 comes with the first commit. Overwrites what an interrupted
    // creation left. Polls the Io. Throws Error: usage (objects), does_not_fit (directory, needed and free bytes),
    // storage (also when a directory holds a committed store or a device of another one: nothing is changed then).
    static std::unique_ptr<TensorStore> create(Io& io, const std::vector<StoreDirectory*>& directories,
                                               CreateOptions options);

    // Recovers the newest committed generation. Polls the Io. Throws Error (storage) naming file and offset when no
    // manifest is whole or a data file is missing or short.
    static std::unique_ptr<TensorStore> open(Io& io, const std::vector<StoreDirectory*>& directories,
                                             Caching caching = Caching::direct);
    ~TensorStore();
    TensorStore(const TensorStore&) = delete;
    TensorStore& operator=(const TensorStore&) = delete;

    const Layout& layout() const noexcept;
    std::optional<std::uint32_t> find(std::string_view object) const;  // index of the object of that name

    // Memory an operation on this tile needs: the tile rounded up to the granule, at an address aligned to
    // granule_bytes().
    std::uint64_t extent_bytes(TileId tile) const;
    std::uint64_t granule_bytes() const noexcept;
    bool written(TileId tile) const;  // once at least: it can be read

    // Reads the newest bytes of the tile, committed or pending, and verifies them. The rest of the extent is zero.
    // REQUIRES: written(tile), operation idle, no other operation on the tile, memory.size() >= extent_bytes(tile).
    void read(TileOperation& operation, TileId tile, std::span<std::byte> memory, Urgency urgency);

    // Writes the tile into its other slot, as part of the next generation. The bytes past the tile's length are set to
    // zero. The memory must not change until tile_done(). After an error the generation can only be committed once the
    // tile was written again. REQUIRES: as read() but for written(), and no commit is under way.
    void write(TileOperation& operation, TileId tile, std::span<std::byte> memory, Urgency urgency);

    // Makes all writes since the last commit durable as one generation, with `client`. Throws Error (usage), and has
    // changed nothing, when `client` takes more than max_client_bytes. Reads may go on meanwhile. After an error of a
    // flush or of the manifest the store is poisoned: every later commit fails; the last generation stays whole (what
    // an interrupted commit had reached may be recovered instead of it). REQUIRES: operation idle, no write in flight,
    // no commit under way.
    void commit(CommitOperation& operation, const ClientState& client);

    // A device does not answer and the process is about to end with an error. Operations in flight are never delivered,
    // and the files stay open until the process ends, because the device may still write into the memory: their owners
    // keep (leak) operations and memory. REQUIRES: nothing but destruction follows.
    void abandon() noexcept;

    std::optional<std::uint64_t> generation() const noexcept;  // newest committed; nothing before the first commit
    std::uint64_t incarnation() const noexcept;
    const ClientState& client() const noexcept;  // of that generation
    // Lines for the composition root to log: direct I/O refused, a damaged manifest copy passed over, a tile that was
    // only right when it was read again. At most a hundred.
    const std::vector<std::string>& notes() const noexcept;
    TileLocation location(TileId tile) const;  // of the slot that read() would read: for messages and tests

   private:
    explicit TensorStore(std::unique_ptr<StoreState> state);
    std::unique_ptr<StoreState> state_;
};

}  // namespace penstock
