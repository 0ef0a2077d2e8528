#include "swap/store/tensor_store.h"

#include "aio/words/check.h"
#include "swap/store/store_state.h"

#include <utility>

namespace penstock::store {

TensorStore::TensorStore(std::unique_ptr<StoreState> state) : state_(std::move(state)) {}

TensorStore::~TensorStore() {
    if (state_->abandoned()) static_cast<void>(state_.release());  // the device may still work on its files and memory
}

TileOperation::~TileOperation() {
    PENSTOCK_CHECK(!waits_, "a write of tile {} of object {} is destroyed while it waits for a pinned tile", tile_.tile,
                   tile_.object);
}

void TileOperation::done() noexcept {
    store_->tile_finished(*this);
}

GenerationPin::~GenerationPin() {
    PENSTOCK_CHECK(!pinned_, "a pin is destroyed while it holds tiles");
}

CommitOperation::~CommitOperation() {
    PENSTOCK_CHECK(!busy_, "a commit operation is destroyed while it is in flight");
}

const Layout& TensorStore::layout() const noexcept {
    return state_->layout();
}
std::optional<std::uint32_t> TensorStore::find(std::string_view object) const {
    return state_->find(object);
}
std::uint64_t TensorStore::extent_bytes(TileId tile) const {
    return state_->layout().extent(tile, 0).bytes;
}
std::uint64_t TensorStore::granule_bytes() const noexcept {
    return state_->layout().granule_bytes();
}
StoreKind TensorStore::kind() const noexcept {
    return state_->kind();
}
bool TensorStore::poisoned() const noexcept {
    return state_->poisoned();
}
bool TensorStore::written(TileId tile) const {
    return state_->written(tile);
}

void TensorStore::read(TileOperation& operation, TileId tile, std::span<std::byte> memory, aio::Urgency urgency) {
    state_->read(operation, tile, memory, urgency);
}

void TensorStore::read_again(TileOperation& operation, TileId tile, std::span<std::byte> memory, aio::Urgency urgency) {
    state_->read_again(operation, tile, memory, urgency);
}

StoredTile TensorStore::stored(TileId tile) const {
    return state_->stored(tile);
}

void TensorStore::write(TileOperation& operation, TileId tile, std::span<std::byte> memory, aio::Urgency urgency) {
    state_->write(operation, tile, memory, urgency);
}

void TensorStore::commit(CommitOperation& operation, const ClientState& client) {
    state_->commit(operation, client);
}
void TensorStore::pin(GenerationPin& pin) {
    state_->pin(pin);
}
void TensorStore::read_pinned(TileOperation& operation, TileId tile, std::span<std::byte> memory,
                              aio::Urgency urgency) {
    state_->read_pinned(operation, tile, memory, urgency);
}
bool TensorStore::pinned(TileId tile) const {
    return state_->pinned(tile);
}
void TensorStore::release(TileId tile) {
    state_->release(tile);
}
void TensorStore::unpin() noexcept {
    state_->unpin();
}
void TensorStore::promote(TileOperation& operation, aio::Urgency urgency) noexcept {
    state_->promote(operation, urgency);
}
void TensorStore::abandon() noexcept {
    state_->abandon();
}
bool TensorStore::abandoned() const noexcept {
    return state_->abandoned();
}

std::optional<std::uint64_t> TensorStore::generation() const noexcept {
    return state_->generation();
}
std::uint64_t TensorStore::incarnation() const noexcept {
    return state_->incarnation();
}
const ClientState& TensorStore::client() const noexcept {
    return state_->client();
}
const StoreUuid& TensorStore::uuid() const noexcept {
    return state_->uuid();
}
const std::optional<Origin>& TensorStore::origin() const noexcept {
    return state_->origin();
}
const std::vector<std::string>& TensorStore::notes() const noexcept {
    return state_->notes();
}
TileLocation TensorStore::location(TileId tile) const {
    return state_->location(tile);
}

}  // namespace penstock::store
