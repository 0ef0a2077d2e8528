#include "swap/store/tensor_store.h"

#include "aio/words/check.h"
#include "swap/store/store_state.h"

#include <algorithm>
#include <ctime>
#include <utility>

namespace penstock::store {

TensorStore::TensorStore(std::unique_ptr<StoreState> state) : state_(std::move(state)) {}

TensorStore::~TensorStore() {
    if (abandoned()) static_cast<void>(state_.release());  // the device may still work on its files and memory
}

TileOperation::~TileOperation() {
    PENSTOCK_CHECK(stage_ != Stage::waiting,
                   "a write of tile {} of object {} is destroyed while it waits for a pinned tile or a manifest",
                   tile_.tile, tile_.object);
}

void TileOperation::done() noexcept {
    state_->tile_finished(*this);
}

GenerationPin::~GenerationPin() {
    PENSTOCK_CHECK(!pinned_, "a pin is destroyed while it holds tiles");
}

CommitOperation::~CommitOperation() {
    PENSTOCK_CHECK(!busy_, "a commit operation is destroyed while it is in flight");
}

// ---------------------------------------------------------------- tiles

void TensorStore::read(TileOperation& operation, TileId tile, std::span<std::byte> memory, aio::Urgency urgency) {
    const TileRecord& record = state_->written_record(tile);
    state_->begin(operation, tile, memory);
    state_->occupy(tile);
    operation.stage_ = TileOperation::Stage::reading;
    state_->read_slot(operation, record, urgency);
}

StoreError TensorStore::second_reading(TileId tile, bool right, const std::optional<aio::IoError>& error) noexcept {
    const TileRecord& record = state_->written_record(tile);
    const StoreState::ReadPlace place{
        .tile = tile, .offset_bytes = layout().extent(tile, record.slot).offset_bytes, .generation = record.generation};
    if (!right) return error ? state_->unread(place, *error) : state_->damaged(place);
    state_->note_second_reading(place);
    return {};
}

void TensorStore::read_pinned(TileOperation& operation, TileId tile, std::span<std::byte> memory,
                              aio::Urgency urgency) {
    PENSTOCK_CHECK(pinned(tile), "tile {} of object '{}' is not pinned", tile.tile,
                   layout().objects()[tile.object].name);
    state_->begin(operation, tile, memory);
    operation.version_ = TileOperation::Version::pinned;
    operation.stage_ = TileOperation::Stage::reading;
    ++state_->pinned_reads;
    state_->read_slot(operation, state_->pinned->record(layout().tile_index(tile)), urgency);
}

void TensorStore::write(TileOperation& operation, TileId tile, std::span<std::byte> memory, aio::Urgency urgency) {
    StoreState& state = *state_;
    state.check_writable();
    PENSTOCK_CHECK(state.committing == nullptr, "tile {} of object '{}' is written while a commit is under way",
                   tile.tile, layout().objects()[tile.object].name);
    if (state.pinned) state.pinned->reserve_wait();  // from here on nothing throws
    state.begin(operation, tile, memory);
    state.occupy(tile);
    const std::uint32_t index = layout().tile_index(tile);
    // Never the committed slot, however often the tile is written before the next commit.
    const TileRecord& committed = state.committed[index];
    const std::uint32_t slot = committed.written && layout().geometry().slots == 2 ? 1 - committed.slot : 0;
    operation.generation_ = state.pending_generation();
    operation.offset_bytes_ = layout().extent(tile, slot).offset_bytes;
    operation.urgency_ = urgency;
    if (poisoned()) return state.refuse(operation);
    if (state.shared) state.shared->write_begins(index, slot);
    state.make_certain();
    // What was read from a store has zeros there, and others may be reading it.
    for (std::byte& each : operation.memory_.subspan(layout().tile_bytes(tile)))
        if (each != std::byte{0}) each = std::byte{0};
    ++state.writes_in_flight;
    const bool hashed_here = !state.goes_to_hashers(operation);  // else before the device has it: hash_taken()
    if (state.pinned && state.pinned->holds(index, slot)) {
        state.pinned->wait(operation);
    } else {
        state.start_write(operation);
        if (hashed_here && operation.memory_.size() >= long_hash_bytes)
            state.io.hand_over();  // the device works while the hash is taken
    }
    // Whatever becomes of the write: should it fail, a read finds other bytes than these and says so.
    state.pending.tiles[index] = {.hash = hashed_here ? state.hash(operation) : TileHash(),
                                  .generation = operation.generation_,
                                  .slot = slot,
                                  .written = true};
}

void TensorStore::take_back(TileId tile) {
    StoreState& state = *state_;
    state.check_writable();
    PENSTOCK_CHECK(kind() == StoreKind::durable && state.committing == nullptr,
                   "tile {} of object '{}' is taken back in a scratch store, or while a commit is under way", tile.tile,
                   layout().objects()[tile.object].name);
    const std::uint32_t index = layout().tile_index(tile);
    PENSTOCK_CHECK(!state.work[index].busy, "tile {} of object '{}' is taken back with an operation on it", tile.tile,
                   layout().objects()[tile.object].name);
    state.pending.tiles[index] = state.committed[index];
}

// A write that waits for a pinned tile is not with the Io yet: it takes the new urgency along.
void TensorStore::promote(TileOperation& operation, aio::Urgency urgency) noexcept {
    PENSTOCK_CHECK(!operation.idle() && operation.state_ == state_.get(),
                   "the operation is not one of this store in flight");
    if (urgency < operation.urgency_) operation.urgency_ = urgency;
    state_->io.promote(operation, urgency);
}

// ---------------------------------------------------------------- pins

void TensorStore::pin(GenerationPin& pin) {
    StoreState& state = *state_;
    const bool scratch = kind() == StoreKind::scratch;
    PENSTOCK_CHECK(!state.pinned, "a generation is pinned already");
    PENSTOCK_CHECK(state.writes_in_flight == 0 && state.committing == nullptr, "a pin with {} writes in flight",
                   state.writes_in_flight);
    PENSTOCK_CHECK(scratch || state.generation, "nothing was committed yet");
    state.pinned = std::make_unique<PinnedTiles>(pin, scratch ? state.pending.tiles : state.committed);
}

bool TensorStore::pinned(TileId tile) const {
    return state_->pinned && state_->pinned->holds(layout().tile_index(tile));
}

void TensorStore::release(TileId tile) {
    PENSTOCK_CHECK(state_->pinned != nullptr, "nothing is pinned");
    if (TileOperation* const write = state_->pinned->release(layout().tile_index(tile), tile))
        state_->start_write(*write);
}

void TensorStore::unpin() noexcept {
    PENSTOCK_CHECK(state_->pinned != nullptr && state_->pinned_reads == 0, "{} reads of pinned tiles in flight",
                   state_->pinned_reads);
    while (TileOperation* const write = state_->pinned->release_any()) state_->start_write(*write);
    state_->pinned.reset();
}

// ---------------------------------------------------------------- commit

void TensorStore::commit(CommitOperation& operation, const ClientState& client) {
    StoreState& state = *state_;
    PENSTOCK_CHECK(!state.abandoned, "the store was abandoned");
    state.check_writable();
    PENSTOCK_CHECK(kind() != StoreKind::scratch, "a scratch store commits nothing");
    PENSTOCK_CHECK(operation.idle() && state.committing == nullptr, "a commit is under way");
    PENSTOCK_CHECK(state.writes_in_flight == 0, "a commit with {} writes in flight", state.writes_in_flight);
    state.commit_refusal = state.refusal();
    if (state.commit_refusal) {
        state.commit.refuse();
    } else {
        check_client(client);
        state.make_certain();
        Manifest& pending = state.pending;
        pending.client = client;
        pending.generation = state.pending_generation();
        pending.time_s = static_cast<std::uint64_t>(std::max<std::time_t>(std::time(nullptr), 0));
        if (settled()) state.begin_commit();
    }
    operation.busy_ = true;
    operation.error_.reset();
    state.committing = &operation;
}

void TensorStore::settle() {
    PENSTOCK_CHECK(!state_->abandoned, "the store was abandoned");
    state_->make_certain();
}

void TensorStore::abandon() noexcept {
    state_->abandoned = true;
}

// ---------------------------------------------------------------- questions

StoreKind TensorStore::kind() const noexcept {
    return state_->kind();
}
const Layout& TensorStore::layout() const noexcept {
    return state_->layout;
}
std::optional<std::uint32_t> TensorStore::find(std::string_view object) const {
    const auto found = state_->objects_by_name.find(object);
    return found == state_->objects_by_name.end() ? std::nullopt : std::optional(found->second);
}
std::uint64_t TensorStore::extent_bytes(TileId tile) const {
    return layout().extent(tile, 0).bytes;
}
std::uint64_t TensorStore::granule_bytes() const noexcept {
    return layout().granule_bytes();
}
bool TensorStore::written(TileId tile) const {
    return state_->pending.tiles[layout().tile_index(tile)].written;
}
TileLocation TensorStore::location(TileId tile) const {
    return state_->location(tile);
}
StoredTile TensorStore::stored(TileId tile) const {
    const TileRecord& record = state_->written_record(tile);
    const Extent extent = layout().extent(tile, record.slot);
    return {.file = &state_->files.data[extent.device],
            .offset_bytes = extent.offset_bytes,
            .bytes = extent.bytes,
            .identity = state_->identity(tile, record.generation),
            .hash = record.hash};
}
bool TensorStore::abandoned() const noexcept {
    return state_->abandoned;
}
bool TensorStore::poisoned() const noexcept {
    return !state_->poisoned_by.empty();
}
const std::string& TensorStore::poisoned_by() const noexcept {
    return state_->poisoned_by;
}
bool TensorStore::settled() const noexcept {
    return state_->footing == StoreState::Footing::certain;
}
std::optional<std::uint64_t> TensorStore::generation() const noexcept {
    return state_->generation;
}
std::uint64_t TensorStore::incarnation() const noexcept {
    return state_->pending.incarnation;
}
const ClientState& TensorStore::client() const noexcept {
    return state_->client;
}
const StoreUuid& TensorStore::uuid() const noexcept {
    return state_->pending.store;
}
TileHashers* TensorStore::hashers() const noexcept {
    return state_->hashers;
}
const std::optional<Origin>& TensorStore::origin() const noexcept {
    return state_->pending.origin;
}
bool TensorStore::shares_blocks() const noexcept {
    return state_->pending.hashed_as == HashedAs::origin;
}
TileIdentity TensorStore::identity(TileId tile, std::uint64_t generation) const noexcept {
    return state_->identity(tile, generation);
}
const std::vector<std::string>& TensorStore::notes() const noexcept {
    return state_->notes;
}

}  // namespace penstock::store
