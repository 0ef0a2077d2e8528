#include "aio/words/check.h"
#include "aio/words/error.h"
#include "tests/swap/bad_disks/faults_run.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

namespace penstock::testing {
namespace {

constexpr int most_rounds = 20'000;

}  // namespace

std::vector<std::string> FaultsRun::paths() const {
    std::vector<std::string> paths;
    for (const store::StoreDirectory* directory : directories_) paths.push_back(directory->path());
    return paths;
}

void FaultsRun::arm() {
    faulty_.set_chances(disk_.chances);
    if (disk_.blow != Blow::none) device_.strike_by([this](aio::Attempt& attempt) { return striker_(attempt); });
}

void FaultsRun::disarm() {
    faulty_.set_chances({});
    device_.strike_by({});
}

// In virtual time. What does not come back is named at the deadline, and then let go: what becomes of a store whose
// device never comes back is for blocking_test.
void FaultsRun::drain() {
    int rounds = 0;
    while (!io_.idle()) {
        PENSTOCK_CHECK(++rounds < most_rounds, "{}, seed {}: the store does not come to an end", disk_.name, seed_);
        const auto stuck = io_.advance(std::chrono::seconds(1));
        if (!stuck) continue;
        ++tally_.stuck;
        if (disk_.blow != Blow::stuck || !names_a_file(stuck->message()) ||
            stuck->message().find("has not come back for 12") == std::string::npos) {
            complain("called stuck: {}", stuck->message());
        }
        device_.let_go();
    }
}

bool FaultsRun::names_a_file(const std::string& message) const {
    return std::any_of(directories_.begin(), directories_.end(), [&](const store::StoreDirectory* directory) {
        return message.find(directory->path() + "/") != std::string::npos;
    });
}

// A disk that a store has to bear. What passes may come so often in a row that the Io gives up, and says so.
bool FaultsRun::must_not_refuse(const std::string& message) const {
    return disk_.kind == BadDisk::Kind::attempts && disk_.chances.wrong_read == 0 &&
           message.find(" 8 tries") == std::string::npos &&
           (disk_.blow == Blow::none || disk_.blow == Blow::slow || disk_.blow == Blow::stuck ||
            disk_.blow == Blow::lost || disk_.blow == Blow::flipped);
}

// ---------------------------------------------------------------- coming and going

bool FaultsRun::create() {
    try {
        store_ = store::TensorStore::create(io_, directories_, {.objects = Exercise::objects(), .hashers = used_});
    } catch (const Error& error) {
        ++tally_.opens_refused;
        const bool full = disk_.blow == Blow::no_space;
        if (!names_a_file(error.what()) || error.code() != (full ? ExitCode::does_not_fit : ExitCode::storage))
            complain("a creation was refused with {}: {}", static_cast<int>(error.code()), error.what());
        return false;
    }
    ++tally_.opened;
    history_.clear();
    pending_.assign(store_->layout().tile_count(), 0);
    failed_.assign(pending_.size(), false);
    return true;
}

// The model goes back to what was found.
bool FaultsRun::open(std::uint64_t least, std::uint64_t most, GoingBack going_back) {
    try {
        store_ = store::TensorStore::open(io_, directories_, {.hashers = used_});
    } catch (const Error& error) {
        ++tally_.opens_refused;
        const bool named = std::string(error.what()).find(paths().front()) != std::string::npos ||
                           std::string(error.what()).find(paths().back()) != std::string::npos;
        if (!disk_.may_refuse_to_open || error.code() != ExitCode::storage || !named)
            complain("the store was not opened: {}", error.what());
        return false;
    }
    ++tally_.opened;
    const std::uint64_t found = store_->generation().value();
    if (found < least && going_back != GoingBack::never) {
        ++tally_.went_back;
        if (going_back != GoingBack::unnoticed && notes_of(*store_).empty())
            complain("generation {} instead of {}, without a note", found, least);
    } else if (found < least || found > most) {
        complain("generation {} instead of {} to {}", found, least, most);
    }
    PENSTOCK_CHECK(found < history_.size(), "generation {} was never written", found);
    history_.resize(found + 1);
    pending_ = history_.back();
    failed_.assign(pending_.size(), false);
    return true;
}

void FaultsRun::close() {
    store_.reset();
}

void FaultsRun::reopen() {
    const std::uint64_t newest = generation();
    close();
    open(newest, newest);
}

// ---------------------------------------------------------------- tiles

// All at once.
bool FaultsRun::write(Tiles which) {
    std::deque<Moved> all;
    for (std::uint32_t index = 0; index < pending_.size(); ++index) {
        if ((which == Tiles::some && random_() % 3 == 0) || (which == Tiles::failed && !failed_[index])) continue;
        const store::TileId tile = store_->layout().tile(index);
        Moved& moved = all.emplace_back(tile, store_->extent_bytes(tile));
        pending_[index] = ++last_version_;
        exercise_.fill(moved.memory.span(), tile, pending_[index]);
        store_->write(moved.operation, tile, moved.memory.span(), aio::Urgency::write_back);
    }
    const std::uint64_t errors = striker_.errors();
    drain();
    bool whole = true;
    for (const Moved& moved : all) {
        const auto& error = moved.operation.error();
        failed_[store_->layout().tile_index(moved.tile)] = error.has_value();
        if (!error) continue;
        whole = false;
        ++tally_.refused;
        const std::string tile = fmt::format("object '{}', tile {} in ",
                                             store_->layout().objects()[moved.tile.object].name, moved.tile.tile);
        if (must_not_refuse(error->message) || error->message.find(tile) == std::string::npos ||
            !names_a_file(error->message) || error->message.find("at offset ") == std::string::npos)
            complain("a write was refused: {}", error->message);
    }
    if (whole && striker_.errors() > errors) complain("an error of the device was not reported for a write");
    return whole;
}

bool FaultsRun::commit() {
    striker_.next_commit();
    const bool may = std::find(failed_.begin(), failed_.end(), true) == failed_.end();
    TestCommit operation;
    store_->commit(operation, {});
    const std::uint64_t errors = striker_.errors();
    drain();
    if (!operation.error()) {
        ++tally_.committed;
        if (striker_.errors() > errors) complain("an error of the device was not reported for a commit");
        if (!may) complain("a generation was committed without its tiles");
        history_.push_back(pending_);
        if (history_.size() - 1 != store_->generation())
            complain("generation {} was committed instead of {}", store_->generation().value(), generation());
        return true;
    }
    ++tally_.commits_refused;
    if ((may && must_not_refuse(operation.error()->message)) || !names_a_file(operation.error()->message))
        complain("a commit was refused: {}", operation.error()->message);
    return false;
}

void FaultsRun::check_tiles() {
    if (!store_) return;  // refused, which was judged
    std::deque<Moved> all;
    for (std::uint32_t index = 0; index < pending_.size(); ++index) {
        if (failed_[index]) continue;  // undefined
        const store::TileId tile = store_->layout().tile(index);
        Moved& moved = all.emplace_back(tile, store_->extent_bytes(tile));
        store_->read(moved.operation, tile, moved.memory.span(), aio::Urgency::demand);
    }
    drain();
    for (const Moved& moved : all) examine(moved);
}

void FaultsRun::examine(const Moved& moved) {
    const std::string name =
        fmt::format("object '{}', tile {}", store_->layout().objects()[moved.tile.object].name, moved.tile.tile);
    const auto& error = moved.operation.error();
    if (!error) {
        ++tally_.right;
        if (!holds(moved.tile, moved.memory.span())) complain("{} was read wrong, without an error", name);
        return;
    }
    ++tally_.refused;
    const store::TileLocation place = store_->location(moved.tile);
    if (error->message.find(fmt::format("{} in {} at offset {} ", name, place.path, place.offset_bytes)) ==
        std::string::npos)
        complain("{} is not named by file and offset: {}", name, error->message);
    const bool excused =
        error->kind == store::StoreError::Kind::io ? !must_not_refuse(error->message) : disk_.chances.wrong_read > 0;
    if (!excused && sound_on_disk(moved.tile)) complain("{} is whole and was refused: {}", name, error->message);
}

bool FaultsRun::holds(store::TileId tile, std::span<const std::byte> found) const {
    aio::ScratchMemory right(found.size());
    exercise_.fill(right.span(), tile, pending_[store_->layout().tile_index(tile)]);
    std::fill(right.data() + store_->layout().tile_bytes(tile), right.data() + found.size(), std::byte{0});
    return std::equal(found.begin(), found.end(), right.data());
}

bool FaultsRun::sound_on_disk(store::TileId tile) const {
    const store::TileLocation place = store_->location(tile);
    aio::ScratchMemory found(store_->extent_bytes(tile));
    const store::Descriptor file(::open(place.path.c_str(), O_RDONLY | O_CLOEXEC));
    const ssize_t count =
        ::pread(file.get(), found.data(), found.span().size(), static_cast<off_t>(place.offset_bytes));
    return count == static_cast<ssize_t>(found.span().size()) && holds(tile, found.span());
}

}  // namespace penstock::testing
