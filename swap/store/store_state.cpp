#include "swap/store/store_state.h"

#include "aio/words/check.h"
#include "aio/words/io_error.h"
#include "aio/words/spare_text.h"

#include <algorithm>
#include <utility>

namespace penstock::store {
namespace {

constexpr std::size_t max_notes = 100;

}  // namespace

StoreState::StoreState(aio::Io& its_io, StoreFiles its_files, Manifest manifest, std::optional<std::uint64_t> newest,
                       Access its_access)
    : access(its_access),
      io(its_io),
      files(std::move(its_files)),
      layout(manifest.objects, manifest.geometry),
      pending(std::move(manifest)),
      committed(pending.tiles),
      generation(newest),
      client(pending.client),
      work(layout.tile_count()),
      commit(io, files.data, files.manifests, manifest_capacity(layout), *this),
      notes(files.notes) {
    notes.reserve(std::max(max_notes, notes.size()));  // what is noted where nothing may throw has its place
    PENSTOCK_CHECK(pending.tiles.size() == layout.tile_count(), "{} records of {} tiles", pending.tiles.size(),
                   layout.tile_count());
    objects_by_name.reserve(layout.objects().size());
    for (std::uint32_t i = 0; i < layout.objects().size(); ++i) objects_by_name.emplace(layout.objects()[i].name, i);
}

StoreState::~StoreState() {
    PENSTOCK_CHECK(reads_in_flight == 0 && writes_in_flight == 0 && commit.idle(),
                   "the store is destroyed with {} reads, {} writes and {} commits in flight", reads_in_flight,
                   writes_in_flight, commit.idle() ? 0 : 1);
}

// ---------------------------------------------------------------- tiles: the beginning

void StoreState::check_writable() const {
    PENSTOCK_CHECK(access == Access::read_write, "the store is open for reading");
    PENSTOCK_CHECK(kind() != StoreKind::snapshot || !generation, "a snapshot is written once");
}

void StoreState::check_operation(const TileOperation& operation, TileId tile, std::span<std::byte> memory) const {
    const std::uint64_t bytes = layout.extent(tile, 0).bytes;
    PENSTOCK_CHECK(!abandoned, "the store was abandoned");
    PENSTOCK_CHECK(operation.idle(), "the operation is in flight");
    PENSTOCK_CHECK(memory.size() >= bytes, "memory of {} bytes for an extent of {}", memory.size(), bytes);
    PENSTOCK_CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % layout.granule_bytes() == 0,
                   "memory {} is not aligned to {} bytes", fmt::ptr(memory.data()), layout.granule_bytes());
}

void StoreState::begin(TileOperation& operation, TileId tile, std::span<std::byte> memory) {
    check_operation(operation, tile, memory);
    operation.version_ = TileOperation::Version::newest;
    operation.state_ = this;
    operation.tile_ = tile;
    operation.memory_ = memory.first(layout.extent(tile, 0).bytes);
    operation.error_.reset();
}

// Of the newest bytes of a tile there is one operation at a time; a pinned slot is beside them.
void StoreState::occupy(TileId tile) {
    TileWork& its_work = work[layout.tile_index(tile)];
    PENSTOCK_CHECK(!its_work.busy, "tile {} of object '{}' has an operation in flight", tile.tile,
                   layout.objects()[tile.object].name);
    its_work.busy = true;
}

const TileRecord& StoreState::written_record(TileId tile) const {
    const TileRecord& record = pending.tiles[layout.tile_index(tile)];
    PENSTOCK_CHECK(record.written, "tile {} of object '{}' was never written", tile.tile,
                   layout.objects()[tile.object].name);
    return record;
}

void StoreState::read_slot(TileOperation& operation, const TileRecord& record, aio::Urgency urgency) {
    operation.hash_ = record.hash;
    operation.generation_ = record.generation;
    operation.offset_bytes_ = layout.extent(operation.tile_, record.slot).offset_bytes;
    operation.urgency_ = urgency;
    operation.reading_.begin();
    ++reads_in_flight;
    start(operation, aio::IoKind::read);
}

void StoreState::start(TileOperation& operation, aio::IoKind kind) {
    const aio::File& file = files.data[layout.extent(operation.tile_, 0).device];
    io.start(operation, {.kind = kind,
                         .file = &file,
                         .data = operation.memory_.data(),
                         .offset_bytes = operation.offset_bytes_,
                         .bytes = operation.memory_.size(),
                         .urgency = operation.urgency_});
}

// Slots of the generation before are overwritten, which counts as long as this one may be lost.
void StoreState::start_write(TileOperation& operation) noexcept {
    using Stage = TileOperation::Stage;
    if (footing != Footing::certain) {
        operation.stage_ = Stage::waiting;
        operation.next_waiting_ = std::exchange(first_waiting, &operation);
    } else if (goes_to_hashers(operation)) {
        give_to_hashers(operation, Stage::hashing);
    } else {
        operation.stage_ = Stage::writing;
        start(operation, aio::IoKind::write);
    }
}

bool StoreState::goes_to_hashers(const TileOperation& operation) const noexcept {
    return hashers != nullptr && hashers->take(operation.memory_.size());
}

void StoreState::give_to_hashers(TileOperation& operation, TileOperation::Stage meanwhile) noexcept {
    operation.stage_ = meanwhile;
    operation.job_ = {.bytes = operation.memory_,
                      .identity = identity(operation.tile_, operation.generation_),
                      .transfer = &operation};
    io.lend(operation);
    hashers->begin(operation.job_);
}

void StoreState::hash_taken(TileOperation& write) noexcept {
    pending.tiles[layout.tile_index(write.tile_)].hash = write.job_.hash;
    write.stage_ = TileOperation::Stage::writing;
    start(write, aio::IoKind::write);
}

// A failed commit may have left a whole manifest, whose generation the next start then takes: its tiles, in the slots
// that are not committed, must stay as they are.
void StoreState::refuse(TileOperation& operation) {
    operation.stage_ = TileOperation::Stage::refused;
    ++reads_in_flight;
    io.post(operation);
}

// ---------------------------------------------------------------- tiles: the end

void StoreState::tile_finished(TileOperation& operation) noexcept {
    using Stage = TileOperation::Stage;
    if (abandoned) return;
    if (operation.stage_ == Stage::hashing) return hash_taken(operation);
    if (operation.stage_ == Stage::refused) {
        --reads_in_flight;
        operation.error_ = unwritten(place_of(operation));
    } else if (operation.stage_ == Stage::writing) {
        write_finished(operation);
    } else if (!read_finished(operation)) {
        return;
    }
    if (operation.version_ == TileOperation::Version::pinned) {
        --pinned_reads;
    } else {
        work[layout.tile_index(operation.tile_)].busy = false;
    }
    operation.stage_ = Stage::idle;
    operation.tile_done();  // may have destroyed it
}

void StoreState::write_finished(TileOperation& operation) noexcept {
    --writes_in_flight;
    TileWork& its_work = work[layout.tile_index(operation.tile_)];
    const auto& error = operation.Transfer::error();
    failed_tiles += static_cast<std::uint32_t>(error.has_value()) - static_cast<std::uint32_t>(its_work.failed);
    its_work.failed = error.has_value();
    if (error) operation.error_ = not_written(place_of(operation), *error);
}

bool StoreState::read_finished(TileOperation& operation) noexcept {
    using Stage = TileOperation::Stage;
    const bool checked = operation.stage_ == Stage::checking;
    if (const auto& error = operation.Transfer::error()) {
        operation.error_ = unread(place_of(operation), *error);
    } else if (!checked && goes_to_hashers(operation)) {
        give_to_hashers(operation, Stage::checking);
        return false;
    } else if (!judged(operation, (checked ? operation.job_.hash : hash(operation)) == operation.hash_)) {
        operation.stage_ = Stage::reading;
        start(operation, aio::IoKind::read);
        return false;
    }
    --reads_in_flight;
    return true;
}

bool StoreState::judged(TileOperation& operation, bool right) noexcept {
    using Verdict = TwiceRead::Verdict;
    const Verdict verdict = operation.reading_.judge(right);
    if (verdict == Verdict::right_again) note_second_reading(place_of(operation));
    if (verdict == Verdict::damaged) operation.error_ = damaged(place_of(operation));
    return verdict != Verdict::again;
}

// ---------------------------------------------------------------- commit

// Why the next commit must not even be tried.
std::optional<StoreError> StoreState::refusal() const {
    if (!poisoned_by.empty()) {
        return StoreError{.kind = StoreError::Kind::poisoned, .message = after_failure()};
    }
    if (failed_tiles == 0) return std::nullopt;
    const auto first = std::find_if(work.begin(), work.end(), [](const TileWork& one) { return one.failed; });
    const TileId tile = layout.tile(static_cast<std::uint32_t>(first - work.begin()));
    const TileLocation place = location(tile);
    return StoreError{
        .kind = StoreError::Kind::io,
        .message = fmt::format(
            "{} tiles could not be written, e.g. object '{}', tile {} in {} at offset {}: nothing is committed "
            "before they are written again.",
            failed_tiles, layout.objects()[tile.object].name, tile.tile, place.path, place.offset_bytes)};
}

std::optional<StoreError> StoreState::spare_refusal() const noexcept {
    try {
        return refusal();
    } catch (const std::bad_alloc&) {
        return StoreError{.kind = poisoned_by.empty() ? StoreError::Kind::io : StoreError::Kind::poisoned,
                          .message = "out of memory"};
    }
}

void StoreState::begin_commit() noexcept {
    commit.start(pending.generation, encode(pending, commit.memory()));
}

void StoreState::stand_on_found(std::uint32_t copy) noexcept {
    footing = Footing::found;
    found_copy = copy;
    found_incarnation = pending.incarnation;
}

// Nothing of `pending` is another than it was found yet, but the incarnation.
void StoreState::make_certain() {
    if (footing != Footing::found) return;
    const std::uint64_t own = std::exchange(pending.incarnation, found_incarnation);
    const std::size_t bytes = encode(pending, commit.memory());
    pending.incarnation = own;
    footing = Footing::being_written;
    commit.rewrite(pending.generation, found_copy, bytes);
}

void StoreState::copy_rewritten(const std::optional<aio::IoError>& error) noexcept {
    if (abandoned) return;
    footing = error ? Footing::lost : Footing::certain;
    if (error) {
        poisoned_by = text_or_less([&] {
            return fmt::format(
                "the newest manifest cannot be made durable before it is built on: {}. Generation {} is as it was "
                "found; check the device (dmesg, free space), then open the store again.",
                error->message(), *generation);
        });
    }
    start_waiting_writes();
    if (committing == nullptr) return;
    commit_refusal = spare_refusal();
    if (commit_refusal) {
        commit.refuse();
    } else {
        begin_commit();
    }
}

// In the order in which they came; what cannot be begun leaves its tile as it was.
void StoreState::start_waiting_writes() noexcept {
    TileOperation* next = nullptr;
    while (first_waiting != nullptr) {
        TileOperation* const last = std::exchange(first_waiting, first_waiting->next_waiting_);
        last->next_waiting_ = std::exchange(next, last);
    }
    while (next != nullptr) {
        TileOperation& write = *std::exchange(next, next->next_waiting_);
        if (footing == Footing::certain) {
            start_write(write);
            continue;
        }
        const std::uint32_t index = layout.tile_index(write.tile_);
        pending.tiles[index] = committed[index];
        --writes_in_flight;
        refuse(write);
    }
}

void StoreState::commit_finished(const std::optional<aio::IoError>& error) noexcept {
    if (abandoned) return;
    CommitOperation& operation = *std::exchange(committing, nullptr);
    if (commit_refusal) {
        operation.error_ = std::exchange(commit_refusal, std::nullopt);
    } else if (error) {
        // Which writes reached the disk is unknown after a failed flush, and a second flush would report success
        // without having written them: no retry, for good.
        operation.error_ = poison(text_or_less([&] {
            return fmt::format(
                "{}. {} Check the device (dmesg, free space), then open the store again.", error->message(),
                generation ? fmt::format("Generation {} is the last that was committed, and is whole.", *generation)
                           : std::string("Nothing was committed yet."));
        }));
    } else if (const aio::File* file = files.removed()) {  // asked last: what is reported was there at that moment
        operation.error_ = poison(text_or_less([&] {
            return fmt::format(
                "{} was removed while the store was in use, so that what is written to it ends with this process. Put "
                "a copy of the directory in its place, or start again with a new one.",
                file->path());
        }));
    } else {
        committed = pending.tiles;
        generation = pending.generation;
        client.swap(pending.client);  // the next commit brings another one
    }
    operation.busy_ = false;
    operation.committed();  // may have destroyed it
}

// Nothing is committed any more.
StoreError StoreState::poison(std::string why) noexcept {
    poisoned_by = std::move(why);
    return {.kind = StoreError::Kind::poisoned, .message = text_or_less([&] {
                                                    return fmt::format("generation {} could not be committed: {}",
                                                                       pending.generation, poisoned_by);
                                                })};
}

// ---------------------------------------------------------------- numbers

TileIdentity StoreState::identity(TileId tile, std::uint64_t of_generation) const noexcept {
    return identity_of(pending, tile, of_generation);
}

TileHash StoreState::hash(const TileOperation& operation) const noexcept {
    return hash_tile(operation.memory_, identity(operation.tile_, operation.generation_));
}

StoreKind StoreState::kind() const noexcept {
    if (pending.origin) return StoreKind::snapshot;
    return layout.geometry().slots == 1 ? StoreKind::scratch : StoreKind::durable;
}

TileLocation StoreState::location(TileId tile) const {
    const Extent extent = layout.extent(tile, pending.tiles[layout.tile_index(tile)].slot);
    return {.path = files.data[extent.device].path(), .offset_bytes = extent.offset_bytes};
}

StoreState::ReadPlace StoreState::place_of(const TileOperation& operation) const noexcept {
    return {.tile = operation.tile_, .offset_bytes = operation.offset_bytes_, .generation = operation.generation_};
}

void StoreState::note(std::string line) noexcept {
    if (notes.size() < max_notes) notes.push_back(std::move(line));
}

std::uint64_t agreed_incarnation(const AgreeOnIncarnation& agree, std::uint64_t own) {
    if (!agree) return own;
    const std::uint64_t agreed = agree(own);
    PENSTOCK_CHECK(agreed >= own, "incarnation {} was agreed on, but this store has had {}", agreed, own);
    return agreed;
}

}  // namespace penstock::store
