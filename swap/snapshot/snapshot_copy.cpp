#include "swap/snapshot/snapshot_copy.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "aio/words/spare_text.h"
#include "pinned_pool/budget.h"
#include "pinned_pool/region.h"
#include "swap/snapshot/tile_copy.h"
#include "swap/store/blocking.h"
#include "swap/store/long_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace penstock::store {

// ---------------------------------------------------------------- beside a store that goes on

struct SnapshotCopy::State final : GenerationPin, TileCopyListener {
    enum class Phase : std::uint8_t {
        copying,     // tiles are pinned, or the last ones are being written
        committing,  // all tiles are in the copy, nothing is pinned
        finished,    // nothing is in flight
    };
    struct Committing final : CommitOperation {
        State* owner = nullptr;
        void committed() noexcept override { owner->commit_ended(); }
    };

    State(TensorStore& store, std::unique_ptr<TensorStore> copy, std::span<std::byte> memory, const ClientState& given);

    void wanted(TileId tile) noexcept override { tiles.hurry(tile); }
    void tile_read(TileId tile) noexcept override { from.release(tile); }
    void reading_ended() noexcept override { from.unpin(); }
    void copy_ended() noexcept override;
    void commit_ended() noexcept;
    void begin_commit() noexcept;
    void fail(const StoreError& cause) noexcept;

    TensorStore& from;
    std::unique_ptr<TensorStore> to;
    ClientState client;  // of what is pinned
    Phase phase = Phase::copying;
    bool stopped = false;
    std::optional<StoreError> error;
    TileCopy tiles;
    Committing commit;
};

SnapshotCopy::State::State(TensorStore& store, std::unique_ptr<TensorStore> copy, std::span<std::byte> memory,
                           const ClientState& given)
    : from(store),
      to(std::move(copy)),
      client(given),
      tiles(from, *to, memory, {.source = TileCopy::Source::pinned, .pace = TileCopy::Pace::background}, *this) {
    commit.owner = this;
}

void SnapshotCopy::State::copy_ended() noexcept {
    if (stopped) {
        fail({.kind = StoreError::Kind::io,
              .message = text_or_less([] { return std::string("it was stopped before the copy was complete"); })});
    } else if (tiles.error()) {
        fail(*tiles.error());
    } else {
        phase = Phase::committing;
        begin_commit();
    }
}

void SnapshotCopy::State::begin_commit() noexcept {
    try {
        to->commit(commit, client);
    } catch (const std::exception& refusal) {  // memory, or the client's state is too long: nothing has begun
        fail({.kind = StoreError::Kind::io, .message = text_or_less([&] { return std::string(refusal.what()); })});
    }
}

void SnapshotCopy::State::commit_ended() noexcept {
    phase = Phase::finished;
    if (commit.error()) fail(*commit.error());
}

void SnapshotCopy::State::fail(const StoreError& cause) noexcept {
    phase = Phase::finished;
    error = StoreError{.kind = cause.kind, .message = text_or_less([&] {
                                               return fmt::format("generation {} is not kept: {}",
                                                                  to->origin()->generation, cause.message);
                                           })};
}

SnapshotCopy::SnapshotCopy(TensorStore& from, std::unique_ptr<TensorStore> to, std::span<std::byte> memory,
                           const ClientState* client) {
    PENSTOCK_CHECK(to != nullptr && to->kind() == StoreKind::snapshot && !to->generation(),
                   "a copy goes to a new kept store");
    const std::uint64_t kept = to->origin()->generation;
    PENSTOCK_CHECK(from.generation().value_or(kept) == kept,
                   "the copy was made for generation {}, and {} is the newest", kept, *from.generation());
    state_ = std::make_unique<State>(from, std::move(to), memory, client == nullptr ? from.client() : *client);
    if (state_->to->shares_blocks()) {
        state_->phase = State::Phase::committing;
        state_->begin_commit();
        return;
    }
    from.pin(*state_);
    state_->tiles.start();
}

SnapshotCopy::~SnapshotCopy() {
    if (finished()) return;
    PENSTOCK_CHECK(state_->from.abandoned(), "a copy is destroyed before it has finished");
    state_->to->abandon();
    static_cast<void>(state_.release());  // the device still holds its operations
}

void SnapshotCopy::stop() noexcept {
    if (state_->phase != State::Phase::copying || state_->stopped) return;
    state_->stopped = true;
    state_->tiles.stop();
}

bool SnapshotCopy::finished() const noexcept {
    return state_->phase == State::Phase::finished;
}
std::uint64_t SnapshotCopy::copied_bytes() const noexcept {
    return state_->tiles.copied_bytes();
}
std::uint64_t SnapshotCopy::total_bytes() const noexcept {
    return state_->tiles.total_bytes();
}
const std::optional<StoreError>& SnapshotCopy::error() const noexcept {
    return state_->error;
}

std::unique_ptr<TensorStore> create_snapshot(aio::Io& io, TensorStore& from, StoreDirectory& directory,
                                             aio::Caching caching, Blocks blocks) {
    settle_blocking(io, from);
    const Origin itself{.store = from.uuid(), .generation = from.generation().value_or(0)};
    return TensorStore::create(io, {&directory},
                               {.objects = from.layout().objects(),
                                .kind = StoreKind::snapshot,
                                .origin = from.origin().value_or(itself),
                                .caching = caching,
                                .hashers = from.hashers(),
                                .blocks_of = blocks == Blocks::shared ? &from : nullptr});
}

// ---------------------------------------------------------------- all at once

void check_memory_for_tiles(std::uint64_t tile_bytes, std::uint64_t bytes) {
    const pool::MachineMemory machine = pool::MachineMemory::read();
    if (bytes <= machine.available_bytes) return;
    throw Error(ExitCode::does_not_fit,
                fmt::format("copying tiles of up to {} bytes takes {} bytes of memory, and {} are left ({}); free some "
                            "memory, or copy on a larger machine.",
                            tile_bytes, bytes, machine.available_bytes, machine.limited_by));
}

namespace {

constexpr std::uint64_t copy_memory_bytes = 32ULL << 20;

std::uint64_t memory_bytes(const TensorStore& from, const TensorStore& to) {
    const std::uint64_t bytes = 2 * TileCopy::lane_bytes(from, to);
    if (bytes <= copy_memory_bytes) return copy_memory_bytes;
    check_memory_for_tiles(bytes / 2, bytes);
    return bytes;
}

class CopyAll final : public LongWork, private TileCopyListener {
   public:
    CopyAll(TensorStore& from, TensorStore& to)
        : from_(from),
          to_(to),
          memory_(memory_bytes(from, to), 1, pool::Registration::none),
          tiles_(from, to, {memory_.data(), memory_.bytes()}, {}, *this) {}

    void start() { tiles_.start(); }
    const std::optional<StoreError>& error() const noexcept { return tiles_.error(); }

    bool finished() const noexcept override { return ended_; }
    void stop() noexcept override { tiles_.stop(); }
    void abandon() noexcept override {
        from_.abandon();
        to_.abandon();
    }
    std::uint64_t done_bytes() const noexcept override { return tiles_.copied_bytes(); }
    std::uint64_t total_bytes() const noexcept override { return tiles_.total_bytes(); }

   private:
    void tile_read(TileId) noexcept override {}
    void reading_ended() noexcept override {}
    void copy_ended() noexcept override { ended_ = true; }

    TensorStore& from_;
    TensorStore& to_;
    pool::Region memory_;
    TileCopy tiles_;
    bool ended_ = false;
};

void check_same_objects(const std::vector<ObjectSpec>& from, const std::vector<ObjectSpec>& to) {
    const auto [left, right] = std::mismatch(from.begin(), from.end(), to.begin(), to.end());
    if (left == from.end() && right == to.end()) return;
    const auto describe = [](auto object, auto end) {
        if (object == end) return std::string("nothing");
        return fmt::format("'{}' of {} bytes in tiles of {}", object->name, object->bytes, object->tile_bytes);
    };
    throw Error(ExitCode::usage,
                fmt::format("the stores hold different objects: number {} is {} in the one and {} in the other; tiles "
                            "are copied between stores of the same model, codec and tile size only",
                            left - from.begin() + 1, describe(left, from.end()), describe(right, to.end())));
}

}  // namespace

void copy_tiles(aio::Io& io, TensorStore& from, TensorStore& to, const WorkProgress& progress) {
    check_same_objects(from.layout().objects(), to.layout().objects());
    const auto copy = start_and_finish(io, std::make_unique<CopyAll>(from, to), progress);
    if (copy->error()) throw Error(ExitCode::storage, copy->error()->message);
}

}  // namespace penstock::store
