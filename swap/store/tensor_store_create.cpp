// TensorStore::create().
#include "aio/words/check.h"
#include "swap/blocks/share_blocks.h"
#include "swap/directory/device_roles.h"
#include "swap/store/store_state.h"
#include "swap/store/tensor_store.h"
#include "swap/store/zero_fill.h"

#include <utility>

namespace penstock::store {
namespace {

Manifest new_manifest(const Directories& directories, CreateOptions& options) {
    PENSTOCK_CHECK(options.origin.has_value() == (options.kind == StoreKind::snapshot), "an origin is a snapshot's");
    Manifest manifest;
    manifest.store = directories.front()->uuid();
    manifest.incarnation = 1;
    manifest.geometry.slots = options.kind == StoreKind::durable ? 2 : 1;
    manifest.geometry.shares = std::move(options.shares);
    if (manifest.geometry.shares.empty()) manifest.geometry.shares.assign(directories.size(), 1);
    PENSTOCK_CHECK(manifest.geometry.shares.size() == directories.size(), "{} shares for {} directories",
                   manifest.geometry.shares.size(), directories.size());
    manifest.origin = options.origin;
    manifest.objects = std::move(options.objects);
    return manifest;
}

// Whether the data of a new snapshot may be the blocks of its origin's newest generation.
bool may_share(const StoreState* origin, const BlockOwner& snapshot) {
    return origin != nullptr && origin->access == StoreState::Access::read_write &&
           origin->kind() == StoreKind::durable && origin->generation &&
           may_share_blocks({origin->layout, origin->files}, snapshot);
}

// False: the file system cannot.
bool share(StoreState& origin, StoreState& snapshot) {
    if (!origin.shared) origin.shared = std::make_unique<SharedSlots>(origin.layout, origin.files.data[0]);
    if (!share_blocks({origin.layout, origin.files}, origin.committed, *origin.shared,
                      {snapshot.layout, snapshot.files}))
        return false;
    snapshot.pending.tiles = origin.committed;
    for (TileRecord& tile : snapshot.pending.tiles) tile.slot = 0;
    snapshot.pending.hashed_as = HashedAs::origin;
    return true;
}

}  // namespace

std::unique_ptr<TensorStore> TensorStore::create(aio::Io& io, const Directories& directories, CreateOptions options) {
    check_directories(directories);
    check_may_create(directories, options.lost);
    Manifest manifest = new_manifest(directories, options);
    // Refuses impossible objects, and what has no room, before anything is touched.
    const Layout wanted(manifest.objects, manifest.geometry);
    PENSTOCK_CHECK(!options.stays_empty || options.kind == StoreKind::scratch, "a store that is to be found is empty");
    if (!options.stays_empty) check_room(directories, wanted);
    // Whose part a directory is stands in its lock before its first file: no other store is ever made over it.
    for (std::size_t i = 0; i < directories.size(); ++i) directories[i]->assign(role_of(directories, i));
    StoreFiles files = StoreFiles::make(directories, options.caching, io.deadline(), options.waiting);
    check_may_create(directories,
                     options.lost);  // again: a commit of a process that was killed may have landed until now
    manifest.geometry.granule_bytes = files.granule_bytes();
    manifest.incarnation = agreed_incarnation(options.agree, manifest.incarnation);
    const Layout layout(manifest.objects, manifest.geometry);
    manifest.tiles.resize(layout.tile_count());
    StoreState* const origin = options.blocks_of == nullptr ? nullptr : options.blocks_of->state_.get();
    const bool tries_to_share = may_share(origin, {layout, files});
    if (!options.stays_empty) {
        reserve_manifests(files, directories, layout);
        if (!tries_to_share) reserve_data(files, layout);
        for (const StoreDirectory* directory : directories) directory->sync();
        const Contents contents = options.kind == StoreKind::snapshot ? Contents::manifests : Contents::all;
        fill_files(io, files, whole_ranges(files, layout, contents), options.progress);
    }
    auto state = std::make_unique<StoreState>(io, std::move(files), std::move(manifest), std::nullopt,
                                              StoreState::Access::read_write);
    state->remedies = options.remedies;
    state->hashers = options.hashers;
    if (tries_to_share && !share(*origin, *state)) reserve_data(state->files, layout);
    return std::make_unique<TensorStore>(std::move(state));
}

}  // namespace penstock::store
