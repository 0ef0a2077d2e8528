// Named objects of bytes that survive crashes: two slots per tile and a manifest per generation.
//
// A write goes to the slot that is not current. commit() flushes the data, then writes the manifest of generation g+1
// in the place of g-1, never over g's. A kill or power cut at any instant leaves the last committed generation whole.
// (Shadow paging with a versioned root, as in Lorie 1977 and ZFS's uberblocks.)
#pragma once

#include "aio/file.h"
#include "aio/io.h"
#include "aio/words/enum_words.h"
#include "swap/directory/file_hold.h"
#include "swap/directory/recovery.h"
#include "swap/directory/remedy.h"
#include "swap/directory/store_directory.h"
#include "swap/format/hash.h"
#include "swap/format/layout.h"
#include "swap/format/manifest.h"
#include "swap/hashing/tile_hashers.h"
#include "swap/hashing/twice_read.h"
#include "swap/store/long_work.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::store {

class TensorStore;
struct StoreState;  // swap/store/store_state.h: the implementation's

// Why a tile could not be read or written, or a generation not be committed. The message is complete: object, tile,
// file, offset, cause, remedy.
struct StoreError {
    enum class Kind : std::uint8_t {
        io,        // the device said no
        damaged,   // the bytes are not the ones that were written (after a second read)
        poisoned,  // an earlier flush or commit failed: nothing can be written or committed any more
        memory     // the caller's, which the kernel cannot reach (EFAULT): the device was not asked
    };
    Kind kind = Kind::io;
    std::string message;
};

// Read or write of one tile. Caller-owned and intrusive like Transfer: keep it and its memory until tile_done(). One
// operation in flight per tile.
class TileOperation : private aio::Transfer {
   public:
    TileOperation() noexcept = default;
    ~TileOperation() override;  // checks that it is not under way
    bool idle() const noexcept { return stage_ == Stage::idle; }
    TileId tile() const noexcept { return tile_; }
    // The outcome, valid from tile_done() until the next start. After an error the memory's contents are undefined
    // (read).
    const std::optional<StoreError>& error() const noexcept { return error_; }

   protected:
    // Exactly once per operation, on the store's thread, from Io::poll() or wait(); never from read() or write(). May
    // start the next operation, this one included, and may destroy this one.
    virtual void tile_done() noexcept = 0;

   private:
    friend class TensorStore;
    friend struct StoreState;
    friend class PinnedTiles;
    enum class Stage : std::uint8_t {
        idle,      // the caller's
        waiting,   // a write, for a pinned tile or what was found (settle()): not with the Io yet
        hashing,   // a write, whose hash the hashers take: goes to the device after it
        writing,   // with the device
        reading,   // likewise
        checking,  // a read that came, whose hash the hashers take
        refused,   // a write that touches nothing, because the store is poisoned
    };
    enum class Version : std::uint8_t { newest, pinned };  // of a read
    void done() noexcept final;

    StoreState* state_ = nullptr;  // outlives an abandoned store
    TileId tile_;
    std::span<std::byte> memory_;  // the extent
    Stage stage_ = Stage::idle;
    Version version_ = Version::newest;
    aio::Urgency urgency_ = aio::Urgency::demand;
    std::uint64_t offset_bytes_ = 0;
    std::uint64_t generation_ = 0;
    TileHash hash_;  // what a read expects
    TwiceRead reading_;
    HashJob job_;  // while the hashers have it
    TileOperation* next_waiting_ = nullptr;
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
    friend class TensorStore;
    friend struct StoreState;
    bool busy_ = false;
    std::optional<StoreError> error_;
};

// What may become of a store. Fixed at its creation.
enum class StoreKind : std::uint8_t {
    durable,   // two slots per tile; each commit is a generation that survives
    scratch,   // one slot: half the room, no commit, nothing to open after the process has ended
    snapshot,  // one slot: filled once, committed once as a snapshot of another store, then only read
};

// Asked once when a life begins on a store that may be written, with the incarnation that this store would take; what
// it returns is taken, and is not lower: where several stores are one, all of them take the highest. Empty: its own.
using AgreeOnIncarnation = std::function<std::uint64_t(std::uint64_t own)>;

struct CreateOptions {
    std::vector<ObjectSpec> objects;
    StoreKind kind = StoreKind::durable;
    std::vector<std::uint16_t> shares = {};  // one per directory (swap/format/striping.h); empty: equal ones
    std::optional<Origin> origin = {};       // REQUIRES: set exactly for a snapshot
    std::optional<StoreUuid> lost = {};      // a store whose first directory is lost: its further ones are overwritten
    aio::Caching caching = aio::Caching::direct;
    // Of pre-writing the files: overwriting is twice as fast as a first write. (A snapshot is written once, so only its
    // manifests are.)
    WorkProgress progress = {};
    WaitNotice waiting = {};  // for what an earlier user had under way
    AgreeOnIncarnation agree = {};
    SharedRemedies remedies = library_remedies();
    TileHashers* hashers = nullptr;  // as OpenOptions
    // Of a snapshot: the origin. Where both lie on one file system that can, the blocks of its newest generation are
    // the snapshot's, too, and all tiles are written; see shares_blocks().
    TensorStore* blocks_of = nullptr;
    // Of a scratch store: nothing is going to be written. Its files get no length and no room.
    bool stays_empty = false;
};

// How much of the newest generation open() reads before anything is written.
enum class VerifyScope : std::uint8_t {
    none,    // tiles are checked when they are read; then it is too late for the generation before
    sample,  // the first and last tile of each object and every 16th of all
    all,
};
constexpr auto words_of(VerifyScope) noexcept {
    return std::array{Word{VerifyScope::all, "all"}, Word{VerifyScope::sample, "sample"},
                      Word{VerifyScope::none, "none"}};
}

struct OpenOptions {
    // What the caller takes the store for: one that has others is refused, unchanged. Empty: whatever is there.
    std::vector<ObjectSpec> objects = {};
    aio::Caching caching = aio::Caching::direct;
    VerifyScope verify = VerifyScope::none;
    // Before the next commit the caller writes every tile, or verifies it: what is there need not be whole. Then data
    // files that are missing are made anew, and further directories that are of no store yet become this one's.
    bool replaced = false;
    // Which is to be gone on from: the newest, or the one before, which is then the newest, with the other one erased.
    // What is damaged is not survived then. Empty: the newest, or what survives.
    std::optional<std::uint64_t> generation = {};
    WorkProgress progress = {};     // of the verification
    WaitNotice waiting = {};        // for what an earlier user had under way
    AgreeOnIncarnation agree = {};  // not asked for a store that is only read
    Recovery* found = nullptr;      // of the first directory: taken if it is settled, else open() reads the manifests
    SharedRemedies remedies = library_remedies();
    // Who hash tiles in the store's place, for the same Io; they outlive the store. Null: the store's own thread does.
    // A tile is done when its hash is there: it changes no promise, but takes the thread less time.
    TileHashers* hashers = nullptr;
};

struct TileLocation {
    std::string path;  // "DIR/data" of the device
    std::uint64_t offset_bytes = 0;
};

// Where the newest bytes of a tile are and what they must be.
struct StoredTile {
    const aio::File* file = nullptr;  // the store's
    std::uint64_t offset_bytes = 0;
    std::uint64_t bytes = 0;  // the extent
    TileIdentity identity;
    TileHash hash;
};

// Keeps the tiles of the newest generation as they are while the store goes on to later ones: a write that would
// overwrite a pinned tile waits until the tile is released. For copies of a generation (swap/snapshot/snapshot_copy.h).
// Caller-owned; not destroyed while it is pinned (checked).
class GenerationPin {
   public:
    GenerationPin() noexcept = default;
    GenerationPin(const GenerationPin&) = delete;
    GenerationPin& operator=(const GenerationPin&) = delete;
    virtual ~GenerationPin();

   protected:
    // A write waits for this tile: release it soon. On the store's thread, from within write().
    virtual void wanted(TileId tile) noexcept = 0;

   private:
    friend class PinnedTiles;
    bool pinned_ = false;
};

// All calls on the thread that owns the Io; results come while that thread polls the Io. Directories and Io outlive the
// store; the store outlives its operations (checked). Several directories are several devices; the first holds the
// manifests.
class TensorStore {
   public:
    // Reserves and pre-writes the files; generation 0 comes with the first commit. Overwrites what an interrupted
    // creation or a scratch store left. Polls the Io. Throws Error: usage (objects), does_not_fit (directory, needed
    // and free bytes: nothing was made), storage (also when a directory holds a committed store or a device of another
    // one: nothing is changed then).
    static std::unique_ptr<TensorStore> create(aio::Io& io, const std::vector<StoreDirectory*>& directories,
                                               CreateOptions options);

    // Recovers the newest committed generation, and writes nothing (but zeros over what is broken): the first write
    // makes durable what was found, see settle(). Polls the Io. Throws Error: usage (it has other objects), storage,
    // naming file and offset, when no manifest is whole, a data file is missing or short, or a verified tile is
    // damaged. A damaged tile found by verification is survived when generation g-1 is still whole (it is from the
    // commit of g to the first write after it; all of it is verified): then g is erased, g-1 is the newest, and a note
    // says so. With directories that are shared() the store is read-only and nothing on disk changes: write() and
    // commit() are contract violations, and there is no going back to g-1.
    static std::unique_ptr<TensorStore> open(aio::Io& io, const std::vector<StoreDirectory*>& directories,
                                             const OpenOptions& options = {});
    // Whether all tiles of the generation before the newest are right; reads them, and changes nothing. Polls the Io.
    // Throws Error (storage) as open().
    static bool previous_is_right(aio::Io& io, const std::vector<StoreDirectory*>& directories,
                                  const OpenOptions& options);
    ~TensorStore();
    TensorStore(const TensorStore&) = delete;
    TensorStore& operator=(const TensorStore&) = delete;

    StoreKind kind() const noexcept;
    const Layout& layout() const noexcept;
    std::optional<std::uint32_t> find(std::string_view object) const;  // index of the object of that name

    // Memory an operation on this tile needs: the tile rounded up to the granule, at an address aligned to
    // granule_bytes().
    std::uint64_t extent_bytes(TileId tile) const;
    std::uint64_t granule_bytes() const noexcept;
    bool written(TileId tile) const;  // a write of it was begun at least once: if that failed, reading says damaged

    // Reads the newest bytes of the tile, committed or pending, and verifies them. The rest of the extent is zero.
    // REQUIRES: written(tile), operation idle, no other operation on the tile, memory.size() >= extent_bytes(tile).
    void read(TileOperation& operation, TileId tile, std::span<std::byte> memory, aio::Urgency urgency);

    // For who has read a tile twice himself, where stored() says, and found it wrong the first time: what to say of it
    // when it was not `right` again, `error` being the device's if there was one. What was right leaves a note.
    StoreError second_reading(TileId tile, bool right, const std::optional<aio::IoError>& error) noexcept;
    // Valid until the next write of the tile. REQUIRES: written(tile).
    StoredTile stored(TileId tile) const;

    // Writes the tile into its other slot, as part of the next generation. The bytes past the tile's length are set to
    // zero. The memory must not change until tile_done(). After an error the generation can only be committed once the
    // tile was written again. REQUIRES: as read() but for written(), no commit is under way, not read-only, and a
    // snapshot is not committed yet.
    void write(TileOperation& operation, TileId tile, std::span<std::byte> memory, aio::Urgency urgency);

    // What was written of the tile since the last commit is no part of the next generation: its newest bytes are the
    // committed ones again, or it is as never written. One that could not be written holds commits up all the same,
    // until it is written again. REQUIRES: durable, no operation on the tile, no commit under way.
    void take_back(TileId tile);

    // Makes all writes since the last commit durable as one generation, with `client`. Throws Error (usage), and has
    // changed nothing, when `client` takes more than max_client_bytes. Reads may go on meanwhile. After an error of a
    // flush or of the manifest, or when one of the files was removed, the store is poisoned: every later write and
    // commit fails, and the last generation stays whole. (The next start may recover the generation of the failed
    // commit instead: that is why its tiles are written no more.)
    // REQUIRES: operation idle, no write in flight, no commit under way, not scratch, and as write() for read-only and
    // kept stores.
    void commit(CommitOperation& operation, const ClientState& client);

    // What open() finds may be whole in memory only, where a commit of the life before failed on its way to the disk:
    // a manifest of it is written again before the first tile and before a commit, which wait for that; should it fail,
    // the store is poisoned. settle() begins it now, for who builds something else on what was found; settled() when it
    // is done, or there is nothing to do. settle_blocking() waits, and throws.
    void settle();
    bool settled() const noexcept;
    // Why the store is poisoned; empty when it is not.
    const std::string& poisoned_by() const noexcept;

    // Pins all written tiles of the newest committed generation (of a scratch store: as they are now). One pin at a
    // time. REQUIRES: nothing pinned, no write in flight, no commit under way; something was committed, or scratch.
    void pin(GenerationPin& pin);
    // As read(), of the pinned bytes; beside another operation on the same tile. REQUIRES: pinned and not released.
    void read_pinned(TileOperation& operation, TileId tile, std::span<std::byte> memory, aio::Urgency urgency);
    bool pinned(TileId tile) const;  // and not released
    void release(TileId tile);       // lets a waiting write go on. REQUIRES: pinned, no read_pinned of it in flight
    void unpin() noexcept;           // releases the rest. REQUIRES: something is pinned, no read_pinned in flight

    // As Io::promote(), of an operation of this store: what of it is not with the device yet becomes more urgent.
    // REQUIRES: in flight; a class that a read or a write may have (aio::Urgency).
    void promote(TileOperation& operation, aio::Urgency urgency) noexcept;

    // A device does not answer and the process is about to end with an error. Operations in flight are never delivered,
    // and the files stay open until the process ends, because the device may still write into the memory: their owners
    // keep (leak) operations and memory. REQUIRES: nothing but destruction follows.
    void abandon() noexcept;
    bool abandoned() const noexcept;
    bool poisoned() const noexcept;  // see commit(): open the store again

    std::optional<std::uint64_t> generation() const noexcept;  // newest committed; nothing before the first commit
    std::uint64_t incarnation() const noexcept;
    const ClientState& client() const noexcept;  // of that generation
    const StoreUuid& uuid() const noexcept;
    TileHashers* hashers() const noexcept;                 // null: it has none
    const std::optional<Origin>& origin() const noexcept;  // of a snapshot
    bool shares_blocks() const noexcept;                   // of a snapshot: its tiles are the origin's, hashed as there
    TileIdentity identity(TileId tile, std::uint64_t generation) const noexcept;  // that is in the tile's hash
    // Lines for the composition root to log: direct I/O refused, a damaged manifest copy passed over, a tile that was
    // only right when it was read again. At most a hundred.
    const std::vector<std::string>& notes() const noexcept;
    TileLocation location(TileId tile) const;  // of the slot that read() would read: for messages and tests

    explicit TensorStore(std::unique_ptr<StoreState> state);  // for create() and open()

   private:
    std::unique_ptr<StoreState> state_;
};

}  // namespace penstock::store
