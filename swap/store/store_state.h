// What a TensorStore is inside: which slot of each tile is committed, which is pending, and who works on it. It
// outlives an abandoned store, because the device may still work on its files and memory.
#pragma once

#include "aio/words/io_error.h"
#include "swap/blocks/shared_slots.h"
#include "swap/directory/store_files.h"
#include "swap/store/commit.h"
#include "swap/store/pinned_tiles.h"
#include "swap/store/tensor_store.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace penstock::store {

struct StoreState final : CommitListener {
    enum class Access : std::uint8_t { read_write, read_only };

    // What becomes of a tile between two commits, beside its record.
    struct TileWork {
        bool busy = false;    // an operation is in flight
        bool failed = false;  // its last write failed: nothing is committed before it is written again
    };

    // Whether the newest generation is durable for certain. What an opening finds may be whole in memory only, where a
    // commit failed on its way to the disk: before anything is built on it (a tile over the generation before, a
    // commit, a snapshot) the copy beside a whole one is written again. Also where both are whole: two failures in a
    // row leave that. Not at the opening, which would wait for the device each time.
    enum class Footing : std::uint8_t {
        certain,        // committed or written again in this life, or only read
        found,          // by the opening: nothing was built on it yet
        being_written,  // by `commit`; writes and a commit wait for it
        lost,           // it cannot be written: the store is poisoned
    };

    // What was read or written, and where.
    struct ReadPlace {
        TileId tile;
        std::uint64_t offset_bytes = 0;
        std::uint64_t generation = 0;
    };

    // `manifest` is the recovered one, or one without written tiles for a new store (`generation` is nothing then); its
    // incarnation is this life's.
    StoreState(aio::Io& its_io, StoreFiles its_files, Manifest manifest, std::optional<std::uint64_t> newest,
               Access its_access);
    ~StoreState();
    StoreState(const StoreState&) = delete;
    StoreState& operator=(const StoreState&) = delete;

    // Operations on tiles, from their beginning to their end.
    void check_writable() const;
    void check_operation(const TileOperation& operation, TileId tile, std::span<std::byte> memory) const;
    void begin(TileOperation& operation, TileId tile, std::span<std::byte> memory);
    void occupy(TileId tile);
    const TileRecord& written_record(TileId tile) const;
    void read_slot(TileOperation& operation, const TileRecord& record, aio::Urgency urgency);
    void start(TileOperation& operation, aio::IoKind kind);
    void start_write(TileOperation& operation) noexcept;  // or lets it wait for the footing, or its hash be taken first
    bool goes_to_hashers(const TileOperation& operation) const noexcept;
    void give_to_hashers(TileOperation& operation, TileOperation::Stage meanwhile) noexcept;
    void hash_taken(TileOperation& write) noexcept;
    void refuse(TileOperation& operation);
    void tile_finished(TileOperation& operation) noexcept;
    void write_finished(TileOperation& operation) noexcept;
    bool read_finished(TileOperation& operation) noexcept;       // false: it is being checked, or read again
    bool judged(TileOperation& operation, bool right) noexcept;  // false: to be read again
    StoreError not_written(const ReadPlace& place, const aio::IoError& error) const noexcept;
    StoreError unwritten(const ReadPlace& place) const noexcept;  // of a poisoned store
    StoreError unread(const ReadPlace& place, const aio::IoError& error) const noexcept;
    StoreError damaged(const ReadPlace& place) const noexcept;
    void note_second_reading(const ReadPlace& place) noexcept;

    // The commit, and what comes before the first one.
    void commit_finished(const std::optional<aio::IoError>& error) noexcept override;
    void begin_commit() noexcept;
    void stand_on_found(std::uint32_t copy) noexcept;  // an opening found `generation`; `copy` is the one to be written
    void make_certain();                               // begins it. Before `pending` is changed
    void copy_rewritten(const std::optional<aio::IoError>& error) noexcept override;
    void start_waiting_writes() noexcept;
    std::optional<StoreError> refusal() const;
    std::optional<StoreError> spare_refusal() const noexcept;
    StoreError poison(std::string why) noexcept;

    // Words and numbers.
    std::uint64_t pending_generation() const noexcept { return generation ? *generation + 1 : 0; }
    TileIdentity identity(TileId tile, std::uint64_t of_generation) const noexcept;
    TileHash hash(const TileOperation& operation) const noexcept;
    StoreKind kind() const noexcept;
    TileLocation location(TileId tile) const;
    ReadPlace place_of(const TileOperation& operation) const noexcept;
    std::string describe(const ReadPlace& place) const;
    std::string after_failure() const;  // of a poisoned store
    std::string remedy() const;
    void note(std::string line) noexcept;  // at most 100 are kept

    // Constant after construction.
    Access access;
    aio::Io& io;
    StoreFiles files;
    TileHashers* hashers = nullptr;
    Layout layout;
    std::unordered_map<std::string_view, std::uint32_t> objects_by_name;

    // The newest bytes: committed, overlaid with what was written since. Becomes the next manifest.
    Manifest pending;
    // Of the newest committed generation.
    std::vector<TileRecord> committed;
    std::optional<std::uint64_t> generation;
    ClientState client;

    std::vector<TileWork> work;
    std::unique_ptr<PinnedTiles> pinned;
    std::unique_ptr<SharedSlots> shared;  // null: none since the opening, and no room is set aside for any
    std::uint32_t pinned_reads = 0;       // in flight
    std::uint32_t reads_in_flight = 0;
    std::uint32_t writes_in_flight = 0;
    std::uint32_t failed_tiles = 0;

    Commit commit;
    Footing footing = Footing::certain;
    std::uint32_t found_copy = 0;            // to be written again
    std::uint64_t found_incarnation = 0;     // of the manifest there
    TileOperation* first_waiting = nullptr;  // for the footing, linked by TileOperation::next_waiting_
    CommitOperation* committing = nullptr;
    std::optional<StoreError> commit_refusal;  // of the commit under way
    std::string poisoned_by;                   // why nothing can be committed any more; empty while all is well
    bool abandoned = false;
    SharedRemedies remedies = library_remedies();
    std::vector<std::string> notes;
};

// The incarnation that a life takes which would take `own` by itself.
std::uint64_t agreed_incarnation(const AgreeOnIncarnation& agree, std::uint64_t own);

}  // namespace penstock::store
