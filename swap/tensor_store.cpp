#include "swap/tensor_store.h"

#include "aio/check.h"
#include "aio/error.h"
#include "swap/blocking.h"
#include "swap/recovery.h"
#include "swap/store_state.h"

#include <algorithm>
#include <utility>

namespace penstock {
namespace {

using Directories = std::vector<StoreDirectory*>;

void check_directories(const Directories& directories) {
    PENSTOCK_CHECK(!directories.empty() && directories.size() <= max_device_count, "{} directories",
                   directories.size());
    for (const StoreDirectory* directory : directories) PENSTOCK_CHECK(directory != nullptr, "a directory is null");
}

DeviceRole role_of(const Directories& directories, std::size_t index) {
    return {.store = directories.front()->uuid(),
            .device = static_cast<std::uint32_t>(index),
            .device_count = static_cast<std::uint32_t>(directories.size())};
}

std::string describe(const std::optional<DeviceRole>& role) {
    if (!role) return "of no store yet";
    return fmt::format("device {} of {} of store {}", role->device, role->device_count, to_string(role->store));
}

// Nothing of a store that exists is overwritten: not its first directory, and no further one under a new first.
void check_may_create(const Directories& directories) {
    for (std::size_t i = 0; i < directories.size(); ++i) {
        const StoreDirectory& directory = *directories[i];
        const bool further_of_this = i > 0 && directory.role() && directory.role()->device > 0 &&
                                     directory.role()->store == directories.front()->uuid();
        if (directory.content() != DirectoryContent::committed || further_of_this) continue;
        throw Error(
            ExitCode::storage,
            fmt::format(
                "{} holds a store already ({}); a new one is not made over it. Give the directories in the order "
                "they were created with, or choose others.",
                directory.path(), describe(directory.role())));
    }
}

void check_roles(const Directories& directories) {
    for (std::size_t i = 0; i < directories.size(); ++i) {
        const DeviceRole wanted = role_of(directories, i);
        if (directories[i]->role() == wanted) continue;
        throw Error(
            ExitCode::storage,
            fmt::format("{} is {}, but is given as {}; give the same directories in the same order as at the start.",
                        directories[i]->path(), describe(directories[i]->role()), describe(wanted)));
    }
}

// Runs `fill` and, when a device does not answer, keeps the files open for ever: the device may still work on them.
void fill(Io& io, StoreFiles& files, const std::vector<ZeroRange>& ranges, const Progress& progress) {
    fill_with_zeros(io, ranges, progress, default_deadline,
                    [&files] { static_cast<void>(std::make_unique<StoreFiles>(std::move(files)).release()); });
}

Recovery recover_newest(const StoreDirectory& directory) {
    Recovery recovery = recover(directory.fd(), directory.uuid());
    if (recovery.newest) return recovery;
    const std::vector<std::string> problems = recovery.problems(directory.path());
    throw Error(
        ExitCode::storage,
        fmt::format(
            "{}: no manifest is whole, so the store cannot be opened. {}. Check the drive (dmesg, smartctl), then "
            "put a copy of the directory in its place, or remove the directory to start again.",
            directory.path(),
            problems.empty() ? "Nothing was ever committed" : fmt::format("{}", fmt::join(problems, "; "))));
}

// A copy that cannot be read now may be readable again later, when the slots it names were overwritten: what is broken
// where the next generation comes is erased before anything is written.
void prepare_next_commit(Io& io, StoreFiles& files, const Layout& layout, const Recovery& recovery) {
    fit_manifests(files, layout);
    const std::size_t next = (recovery.newest->generation + 1) % 2;
    const std::uint64_t place_bytes = manifest_capacity(layout);
    std::vector<ZeroRange> broken;
    for (std::uint64_t copy = 0; copy < 2; ++copy) {
        if (recovery.copies[next][copy].state != ManifestCopy::State::broken) continue;
        broken.push_back({.file = &files.manifests[next], .offset_bytes = copy * place_bytes, .bytes = place_bytes});
    }
    if (!broken.empty()) fill(io, files, broken, {});
}

void check_files(const StoreFiles& files, const Layout& layout) {
    for (std::uint32_t device = 0; device < layout.device_count(); ++device) {
        const File& file = files.data[device];
        if (file.bytes() < layout.device_bytes(device)) {
            throw Error(
                ExitCode::storage,
                fmt::format("{} ends at offset {}, but the store's tiles reach to {}: it was cut. Put a copy of the "
                            "directory in its place, or remove the directory to start again.",
                            file.path(), file.bytes(), layout.device_bytes(device)));
        }
    }
    if (files.granule_bytes() > layout.granule_bytes()) {
        throw Error(ExitCode::storage,
                    fmt::format("{}: the device asks for an alignment of {} bytes, but the store was made with {}; "
                                "move the directory to a device like the one it came from.",
                                files.data.front().path(), files.granule_bytes(), layout.granule_bytes()));
    }
}

}  // namespace

std::unique_ptr<TensorStore> TensorStore::create(Io& io, const Directories& directories, CreateOptions options) {
    check_directories(directories);
    check_may_create(directories);
    // Whose part a directory is stands in its lock before its first file: no other store is ever made over it.
    static_cast<void>(Layout(options.objects, 1, 4096));  // refuses impossible objects before anything is touched
    for (std::size_t i = 0; i < directories.size(); ++i) directories[i]->assign(role_of(directories, i));
    StoreFiles files = StoreFiles::make(directories, options.caching);
    Manifest manifest;
    manifest.store = directories.front()->uuid();
    manifest.incarnation = 1;
    manifest.device_count = static_cast<std::uint32_t>(directories.size());
    manifest.granule_bytes = files.granule_bytes();
    manifest.objects = std::move(options.objects);
    const Layout layout(manifest.objects, manifest.device_count, manifest.granule_bytes);
    manifest.tiles.resize(layout.tile_count());
    reserve(files, directories, layout);
    for (const StoreDirectory* directory : directories) directory->sync();
    fill(io, files, whole_ranges(files, layout), options.progress);
    auto state = std::make_unique<StoreState>(io, std::move(files), std::move(manifest), std::nullopt);
    return std::unique_ptr<TensorStore>(new TensorStore(std::move(state)));
}

std::unique_ptr<TensorStore> TensorStore::open(Io& io, const Directories& directories, Caching caching) {
    check_directories(directories);
    check_roles(directories);
    const Recovery recovery = recover_newest(*directories.front());
    Manifest manifest = *recovery.newest;
    if (manifest.device_count != directories.size()) {
        throw Error(ExitCode::storage,
                    fmt::format("{}: the store lies on {} devices, but {} directories are given; give all of them.",
                                directories.front()->path(), manifest.device_count, directories.size()));
    }
    StoreFiles files = StoreFiles::find(directories, caching);
    const Layout layout(manifest.objects, manifest.device_count, manifest.granule_bytes);
    check_files(files, layout);
    prepare_next_commit(io, files, layout, recovery);
    const std::uint64_t generation = manifest.generation;
    ++manifest.incarnation;
    auto state = std::make_unique<StoreState>(io, std::move(files), std::move(manifest), generation);
    for (const std::string& problem : recovery.problems(directories.front()->path())) {
        state->note(fmt::format("{}; generation {} is used.", problem, generation));
    }
    return std::unique_ptr<TensorStore>(new TensorStore(std::move(state)));
}

TensorStore::TensorStore(std::unique_ptr<StoreState> state) : state_(std::move(state)) {}

TensorStore::~TensorStore() {
    if (state_->abandoned()) static_cast<void>(state_.release());  // the device may still work on its files and memory
}

void TileOperation::done() noexcept {
    store_->tile_finished(*this);
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
bool TensorStore::written(TileId tile) const {
    return state_->written(tile);
}

void TensorStore::read(TileOperation& operation, TileId tile, std::span<std::byte> memory, Urgency urgency) {
    state_->read(operation, tile, memory, urgency);
}

void TensorStore::write(TileOperation& operation, TileId tile, std::span<std::byte> memory, Urgency urgency) {
    state_->write(operation, tile, memory, urgency);
}

void TensorStore::commit(CommitOperation& operation, const ClientState& client) {
    state_->commit(operation, client);
}
void TensorStore::abandon() noexcept {
    state_->abandon();
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
const std::vector<std::string>& TensorStore::notes() const noexcept {
    return state_->notes();
}
TileLocation TensorStore::location(TileId tile) const {
    return state_->location(tile);
}

}  // namespace penstock
