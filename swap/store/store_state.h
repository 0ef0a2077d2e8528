// What a TensorStore is inside: which slot of each tile is committed, which is pending, and who works on it.
#pragma once

#include "aio/words/io_error.h"
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

class StoreState final : public CommitListener {
   public:
    enum class Access : std::uint8_t { read_write, read_only };

    // `manifest` is the recovered one, or one without written tiles for a new store (`generation` is nothing then); its
    // incarnation is this life's.
    StoreState(aio::Io& io, StoreFiles files, Manifest manifest, std::optional<std::uint64_t> generation,
               Access access);
    ~StoreState();
    StoreState(const StoreState&) = delete;
    StoreState& operator=(const StoreState&) = delete;

    void read(TileOperation& operation, TileId tile, std::span<std::byte> memory, aio::Urgency urgency);
    void read_again(TileOperation& operation, TileId tile, std::span<std::byte> memory, aio::Urgency urgency);
    void write(TileOperation& operation, TileId tile, std::span<std::byte> memory, aio::Urgency urgency);
    void tile_finished(TileOperation& operation) noexcept;
    void commit(CommitOperation& operation, const ClientState& client);
    void commit_finished(const std::optional<aio::IoError>& error) noexcept override;
    void pin(GenerationPin& pin);
    void read_pinned(TileOperation& operation, TileId tile, std::span<std::byte> memory, aio::Urgency urgency);
    void release(TileId tile);
    void unpin() noexcept;
    bool pinned(TileId tile) const { return pinned_ && pinned_->holds(layout_.tile_index(tile)); }
    void promote(TileOperation& operation, aio::Urgency urgency) noexcept;
    void abandon() noexcept { abandoned_ = true; }
    bool abandoned() const noexcept { return abandoned_; }
    bool poisoned() const noexcept { return !poison_.empty(); }
    void note(std::string line);

    StoreKind kind() const noexcept;
    const Layout& layout() const noexcept { return layout_; }
    std::optional<std::uint32_t> find(std::string_view object) const;
    bool written(TileId tile) const { return pending_.tiles[layout_.tile_index(tile)].written; }
    TileLocation location(TileId tile) const;
    StoredTile stored(TileId tile) const;
    std::optional<std::uint64_t> generation() const noexcept { return generation_; }
    std::uint64_t incarnation() const noexcept { return pending_.incarnation; }
    const ClientState& client() const noexcept { return client_; }
    const StoreUuid& uuid() const noexcept { return pending_.store; }
    const std::optional<Origin>& origin() const noexcept { return pending_.origin; }
    const std::vector<std::string>& notes() const noexcept { return notes_; }

   private:
    // What becomes of a tile between two commits, beside its record.
    struct TileWork {
        bool busy = false;    // an operation is in flight
        bool failed = false;  // its last write failed: nothing is committed before it is written again
    };

    void check_writable() const;
    void check_operation(const TileOperation& operation, TileId tile, std::span<std::byte> memory) const;
    void begin(TileOperation& operation, TileId tile, std::span<std::byte> memory);
    void occupy(TileId tile);
    const TileRecord& written_record(TileId tile) const;
    void read_slot(TileOperation& operation, const TileRecord& record, aio::Urgency urgency);
    void start(TileOperation& operation, aio::IoKind kind);
    void write_finished(TileOperation& operation) noexcept;
    bool read_finished(TileOperation& operation) noexcept;  // false: it is being read again
    std::uint64_t pending_generation() const noexcept { return generation_ ? *generation_ + 1 : 0; }
    TileIdentity identity(TileId tile, std::uint64_t generation) const noexcept;
    TileHash hash(const TileOperation& operation) const noexcept;
    std::optional<StoreError> refusal() const;
    StoreError poison(std::string why);
    void refuse(TileOperation& operation);
    std::string describe(const TileOperation& operation) const;
    std::string remedy() const;

    // Constant after construction.
    Access access_;
    aio::Io& io_;
    StoreFiles files_;
    Layout layout_;
    std::unordered_map<std::string_view, std::uint32_t> objects_by_name_;

    // The newest bytes: committed, overlaid with what was written since. Becomes the next manifest.
    Manifest pending_;
    // Of the newest committed generation.
    std::vector<TileRecord> committed_;
    std::optional<std::uint64_t> generation_;
    ClientState client_;

    std::vector<TileWork> work_;
    std::unique_ptr<PinnedTiles> pinned_;
    std::uint32_t pinned_reads_ = 0;  // in flight
    std::uint32_t reads_in_flight_ = 0;
    std::uint32_t writes_in_flight_ = 0;
    std::uint32_t failed_tiles_ = 0;

    Commit commit_;
    CommitOperation* committing_ = nullptr;
    std::optional<StoreError> refusal_;  // of the commit under way
    std::string poison_;                 // why nothing can be committed any more; empty while all is well
    bool abandoned_ = false;
    std::vector<std::string> notes_;
};

// The incarnation that a life takes which would take `own` by itself.
std::uint64_t agreed_incarnation(const AgreeOnIncarnation& agree, std::uint64_t own);

}  // namespace penstock::store
