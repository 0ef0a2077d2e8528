#include "swap/store/store_state.h"

#include "aio/words/check.h"
#include "aio/words/io_error.h"
#include "swap/format/little_endian.h"
#include "swap/store/remedy.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <utility>

namespace penstock::store {
namespace {

constexpr std::size_t max_notes = 100;

}  // namespace

StoreState::StoreState(aio::Io& io, StoreFiles files, Manifest manifest, std::optional<std::uint64_t> generation,
                       Access access)
    : access_(access),
      io_(io),
      files_(std::move(files)),
      layout_(manifest.objects, manifest.geometry),
      pending_(std::move(manifest)),
      committed_(pending_.tiles),
      generation_(generation),
      client_(pending_.client),
      work_(layout_.tile_count()),
      commit_(io, files_.data, files_.manifests, manifest_capacity(layout_), *this),
      notes_(files_.notes) {
    PENSTOCK_CHECK(pending_.tiles.size() == layout_.tile_count(), "{} records of {} tiles", pending_.tiles.size(),
                   layout_.tile_count());
    objects_by_name_.reserve(layout_.objects().size());
    for (std::uint32_t i = 0; i < layout_.objects().size(); ++i) objects_by_name_.emplace(layout_.objects()[i].name, i);
}

StoreState::~StoreState() {
    PENSTOCK_CHECK(reads_in_flight_ == 0 && writes_in_flight_ == 0 && commit_.idle(),
                   "the store is destroyed with {} reads, {} writes and {} commits in flight", reads_in_flight_,
                   writes_in_flight_, commit_.idle() ? 0 : 1);
}

// ---------------------------------------------------------------- tiles

void StoreState::read(TileOperation& operation, TileId tile, std::span<std::byte> memory, aio::Urgency urgency) {
    const TileRecord& record = written_record(tile);
    begin(operation, tile, memory);
    occupy(tile);
    read_slot(operation, record, urgency);
}

void StoreState::read_again(TileOperation& operation, TileId tile, std::span<std::byte> memory, aio::Urgency urgency) {
    read(operation, tile, memory, urgency);
    operation.reread_ = true;
}

const TileRecord& StoreState::written_record(TileId tile) const {
    const TileRecord& record = pending_.tiles[layout_.tile_index(tile)];
    PENSTOCK_CHECK(record.written, "tile {} of object '{}' was never written", tile.tile,
                   layout_.objects()[tile.object].name);
    return record;
}

void StoreState::read_pinned(TileOperation& operation, TileId tile, std::span<std::byte> memory, aio::Urgency urgency) {
    const std::uint32_t index = layout_.tile_index(tile);
    PENSTOCK_CHECK(pinned_ && pinned_->holds(index), "tile {} of object '{}' is not pinned", tile.tile,
                   layout_.objects()[tile.object].name);
    begin(operation, tile, memory);
    operation.pinned_ = true;
    ++pinned_reads_;
    read_slot(operation, pinned_->record(index), urgency);
}

void StoreState::read_slot(TileOperation& operation, const TileRecord& record, aio::Urgency urgency) {
    operation.hash_ = record.hash;
    operation.generation_ = record.generation;
    operation.offset_bytes_ = layout_.extent(operation.tile_, record.slot).offset_bytes;
    operation.urgency_ = urgency;
    ++reads_in_flight_;
    start(operation, aio::IoKind::read);
}

void StoreState::write(TileOperation& operation, TileId tile, std::span<std::byte> memory, aio::Urgency urgency) {
    check_writable();
    PENSTOCK_CHECK(commit_.idle(), "tile {} of object '{}' is written while a commit is under way", tile.tile,
                   layout_.objects()[tile.object].name);
    begin(operation, tile, memory);
    occupy(tile);
    if (poisoned()) return refuse(operation);
    const std::uint32_t index = layout_.tile_index(tile);
    // Never the committed slot, however often the tile is written before the next commit.
    const TileRecord& committed = committed_[index];
    const std::uint32_t slot = committed.written && layout_.geometry().slots == 2 ? 1 - committed.slot : 0;
    const auto logical = static_cast<std::ptrdiff_t>(layout_.tile_bytes(tile));
    std::fill(operation.memory_.begin() + logical, operation.memory_.end(), std::byte{0});
    operation.generation_ = pending_generation();
    operation.offset_bytes_ = layout_.extent(tile, slot).offset_bytes;
    operation.urgency_ = urgency;
    ++writes_in_flight_;
    if (pinned_ && pinned_->holds(index, slot)) {
        pinned_->wait(index, operation);
    } else {
        start(operation, aio::IoKind::write);
        if (operation.memory_.size() >= long_hash_bytes) io_.hand_over();  // the device works while the hash is taken
    }
    // Whatever becomes of the write: should it fail, a read finds other bytes than these and says so.
    pending_.tiles[index] = {
        .hash = hash(operation), .generation = operation.generation_, .slot = slot, .written = true};
}

// A failed commit may have left a whole manifest, whose generation the next start then takes: its tiles, in the slots
// that are not committed, must stay as they are. A read carries the refusal, as in Commit::refuse().
void StoreState::refuse(TileOperation& operation) {
    operation.refused_ = true;
    ++reads_in_flight_;
    const aio::File& file = files_.manifests.front();
    io_.start(operation, {.kind = aio::IoKind::read,
                          .file = &file,
                          .data = commit_.memory().data(),
                          .offset_bytes = 0,
                          .bytes = file.alignment().offset_bytes,
                          .urgency = aio::Urgency::demand});
}

void StoreState::check_writable() const {
    PENSTOCK_CHECK(access_ == Access::read_write, "the store is open for reading");
    PENSTOCK_CHECK(kind() != StoreKind::kept || !generation_, "a kept store is written once");
}

void StoreState::check_operation(const TileOperation& operation, TileId tile, std::span<std::byte> memory) const {
    const std::uint64_t bytes = layout_.extent(tile, 0).bytes;
    PENSTOCK_CHECK(!abandoned_, "the store was abandoned");
    PENSTOCK_CHECK(operation.idle(), "the operation is in flight");
    PENSTOCK_CHECK(memory.size() >= bytes, "memory of {} bytes for an extent of {}", memory.size(), bytes);
    PENSTOCK_CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % layout_.granule_bytes() == 0,
                   "memory {} is not aligned to {} bytes", fmt::ptr(memory.data()), layout_.granule_bytes());
}

void StoreState::begin(TileOperation& operation, TileId tile, std::span<std::byte> memory) {
    check_operation(operation, tile, memory);
    operation.busy_ = true;
    operation.reread_ = false;
    operation.pinned_ = false;
    operation.refused_ = false;
    operation.store_ = this;
    operation.tile_ = tile;
    operation.memory_ = memory.first(layout_.extent(tile, 0).bytes);
    operation.error_.reset();
}

// Of the newest bytes of a tile there is one operation at a time; a pinned slot is beside them.
void StoreState::occupy(TileId tile) {
    TileWork& work = work_[layout_.tile_index(tile)];
    PENSTOCK_CHECK(!work.busy, "tile {} of object '{}' has an operation in flight", tile.tile,
                   layout_.objects()[tile.object].name);
    work.busy = true;
}

void StoreState::start(TileOperation& operation, aio::IoKind kind) {
    const aio::File& file = files_.data[layout_.extent(operation.tile_, 0).device];
    io_.start(operation, {.kind = kind,
                          .file = &file,
                          .data = operation.memory_.data(),
                          .offset_bytes = operation.offset_bytes_,
                          .bytes = operation.memory_.size(),
                          .urgency = operation.urgency_});
}

void StoreState::tile_finished(TileOperation& operation) noexcept {
    if (abandoned_) return;
    if (operation.refused_) {
        --reads_in_flight_;
        operation.error_ = refusal();
    } else if (operation.request().kind == aio::IoKind::write) {
        write_finished(operation);
    } else if (!read_finished(operation)) {
        return;
    }
    if (operation.pinned_) {
        --pinned_reads_;
    } else {
        work_[layout_.tile_index(operation.tile_)].busy = false;
    }
    operation.busy_ = false;
    operation.tile_done();  // may have destroyed it
}

void StoreState::write_finished(TileOperation& operation) noexcept {
    --writes_in_flight_;
    TileWork& work = work_[layout_.tile_index(operation.tile_)];
    const auto& error = operation.Transfer::error();
    failed_tiles_ += static_cast<std::uint32_t>(error.has_value()) - static_cast<std::uint32_t>(work.failed);
    work.failed = error.has_value();
    if (!error) return;
    operation.error_ = StoreError{
        .kind = StoreError::Kind::io,
        .message = fmt::format("{} could not be written: {}. The last committed generation is whole; check the "
                               "device (dmesg, free space), then open the store again.",
                               describe(operation), error->message())};
}

bool StoreState::read_finished(TileOperation& operation) noexcept {
    if (const auto& error = operation.Transfer::error()) {
        operation.error_ = StoreError{
            .kind = StoreError::Kind::io,
            .message = fmt::format("{} could not be read: {}. {}.", describe(operation), error->message(), remedy())};
    } else if (hash(operation) == operation.hash_) {
        if (operation.reread_)
            note(describe(operation) + " was read wrong once and right when it was read again: watch the drive.");
    } else if (!operation.reread_) {
        operation.reread_ = true;
        start(operation, aio::IoKind::read);
        return false;
    } else {
        operation.error_ =
            StoreError{.kind = StoreError::Kind::damaged,
                       .message = fmt::format("{}: the bytes there are not the ones that were written, also when read "
                                              "again. {}.",
                                              describe(operation), remedy())};
    }
    --reads_in_flight_;
    return true;
}

TileIdentity StoreState::identity(TileId tile, std::uint64_t generation) const noexcept {
    return {
        .store = load_u64(pending_.store.data()), .object = tile.object, .tile = tile.tile, .generation = generation};
}

TileHash StoreState::hash(const TileOperation& operation) const noexcept {
    return hash_tile(operation.memory_, identity(operation.tile_, operation.generation_));
}

std::string StoreState::remedy() const {
    if (kind() == StoreKind::kept) return remedy_of_damaged_snapshot();
    return remedy_of_damage(std::filesystem::path(files_.manifests.front().path()).parent_path().string());
}

std::string StoreState::describe(const TileOperation& operation) const {
    const aio::File& file = files_.data[layout_.extent(operation.tile_, 0).device];
    return fmt::format("object '{}', tile {} in {} at offset {} ({} bytes, generation {})",
                       layout_.objects()[operation.tile_.object].name, operation.tile_.tile, file.path(),
                       operation.offset_bytes_, operation.memory_.size(), operation.generation_);
}

// ---------------------------------------------------------------- pins

void StoreState::pin(GenerationPin& pin) {
    const bool scratch = kind() == StoreKind::scratch;
    PENSTOCK_CHECK(!pinned_, "a generation is pinned already");
    PENSTOCK_CHECK(writes_in_flight_ == 0 && commit_.idle(), "a pin with {} writes in flight", writes_in_flight_);
    PENSTOCK_CHECK(scratch || generation_, "nothing was committed yet");
    pinned_ = std::make_unique<PinnedTiles>(pin, scratch ? pending_.tiles : committed_);
}

void StoreState::release(TileId tile) {
    PENSTOCK_CHECK(pinned_ != nullptr, "nothing is pinned");
    if (TileOperation* const write = pinned_->release(layout_.tile_index(tile))) start(*write, aio::IoKind::write);
}

// A write that waits for a pinned tile is not with the Io yet: it takes the new urgency along.
void StoreState::promote(TileOperation& operation, aio::Urgency urgency) noexcept {
    PENSTOCK_CHECK(operation.busy_ && operation.store_ == this, "the operation is not one of this store in flight");
    if (operation.refused_) return;
    if (urgency < operation.urgency_) operation.urgency_ = urgency;
    io_.promote(operation, urgency);
}

void StoreState::unpin() noexcept {
    PENSTOCK_CHECK(pinned_ != nullptr && pinned_reads_ == 0, "{} reads of pinned tiles in flight", pinned_reads_);
    for (TileOperation* const write : pinned_->release_all()) start(*write, aio::IoKind::write);
    pinned_.reset();
}

// ---------------------------------------------------------------- commit

void StoreState::commit(CommitOperation& operation, const ClientState& client) {
    PENSTOCK_CHECK(!abandoned_, "the store was abandoned");
    check_writable();
    PENSTOCK_CHECK(kind() != StoreKind::scratch, "a scratch store commits nothing");
    PENSTOCK_CHECK(operation.idle() && commit_.idle(), "a commit is under way");
    PENSTOCK_CHECK(writes_in_flight_ == 0, "a commit with {} writes in flight", writes_in_flight_);
    refusal_ = refusal();
    if (refusal_) {
        commit_.refuse();
    } else {
        pending_.generation = pending_generation();
        pending_.client = client;
        pending_.time_s = static_cast<std::uint64_t>(std::max<std::time_t>(std::time(nullptr), 0));
        commit_.start(pending_.generation, encode(pending_, commit_.memory()));
    }
    operation.busy_ = true;
    operation.error_.reset();
    committing_ = &operation;
}

// Why the next commit must not even be tried.
std::optional<StoreError> StoreState::refusal() const {
    if (!poison_.empty()) {
        return StoreError{
            .kind = StoreError::Kind::poisoned,
            .message = "nothing can be written or committed any more since an earlier failure: " + poison_};
    }
    if (failed_tiles_ == 0) return std::nullopt;
    const auto first = std::find_if(work_.begin(), work_.end(), [](const TileWork& work) { return work.failed; });
    const TileId tile = layout_.tile(static_cast<std::uint32_t>(first - work_.begin()));
    const TileLocation place = location(tile);
    return StoreError{
        .kind = StoreError::Kind::io,
        .message = fmt::format(
            "{} tiles could not be written, e.g. object '{}', tile {} in {} at offset {}: nothing is committed "
            "before they are written again.",
            failed_tiles_, layout_.objects()[tile.object].name, tile.tile, place.path, place.offset_bytes)};
}

void StoreState::commit_finished(const std::optional<aio::IoError>& error) noexcept {
    if (abandoned_) return;
    CommitOperation& operation = *std::exchange(committing_, nullptr);
    if (refusal_) {
        operation.error_ = std::exchange(refusal_, std::nullopt);
    } else if (error) {
        // Which writes reached the disk is unknown after a failed flush, and a second flush would report success
        // without having written them: no retry, for good.
        operation.error_ = poison(fmt::format(
            "{}. {} Check the device (dmesg, free space), then open the store again.", error->message(),
            generation_ ? fmt::format("Generation {} is the last that was committed, and is whole.", *generation_)
                        : std::string("Nothing was committed yet.")));
    } else if (const aio::File* file = files_.removed()) {  // asked last: what is reported was there at that moment
        operation.error_ = poison(
            fmt::format("{} was removed while the store was in use, so that what is written to it ends with this "
                        "process. Put a copy of the directory in its place, or start again with a new one.",
                        file->path()));
    } else {
        committed_ = pending_.tiles;
        generation_ = pending_.generation;
        client_ = pending_.client;
    }
    operation.busy_ = false;
    operation.committed();  // may have destroyed it
}

// Nothing is committed any more.
StoreError StoreState::poison(std::string why) {
    poison_ = std::move(why);
    return {.kind = StoreError::Kind::poisoned,
            .message = fmt::format("generation {} could not be committed: {}", pending_.generation, poison_)};
}

// ---------------------------------------------------------------- questions

StoreKind StoreState::kind() const noexcept {
    if (pending_.origin) return StoreKind::kept;
    return layout_.geometry().slots == 1 ? StoreKind::scratch : StoreKind::durable;
}

void StoreState::note(std::string line) {
    if (notes_.size() < max_notes) notes_.push_back(std::move(line));
}

std::optional<std::uint32_t> StoreState::find(std::string_view object) const {
    const auto found = objects_by_name_.find(object);
    return found == objects_by_name_.end() ? std::nullopt : std::optional(found->second);
}

TileLocation StoreState::location(TileId tile) const {
    const Extent extent = layout_.extent(tile, pending_.tiles[layout_.tile_index(tile)].slot);
    return {.path = files_.data[extent.device].path(), .offset_bytes = extent.offset_bytes};
}

StoredTile StoreState::stored(TileId tile) const {
    const TileRecord& record = written_record(tile);
    const Extent extent = layout_.extent(tile, record.slot);
    return {.file = &files_.data[extent.device],
            .offset_bytes = extent.offset_bytes,
            .bytes = extent.bytes,
            .identity = identity(tile, record.generation),
            .hash = record.hash};
}

std::uint64_t agreed_incarnation(const AgreeOnIncarnation& agree, std::uint64_t own) {
    if (!agree) return own;
    const std::uint64_t agreed = agree(own);
    PENSTOCK_CHECK(agreed >= own, "incarnation {} was agreed on, but this store has had {}", agreed, own);
    return agreed;
}

}  // namespace penstock::store
