// Which directory is which device of a store, and whether they belong together.
#pragma once

#include "swap/directory/store_directory.h"
#include "swap/format/manifest.h"

#include <cstddef>
#include <optional>
#include <vector>

namespace penstock::store {

using Directories = std::vector<StoreDirectory*>;  // one per device; the first holds the manifests

void check_directories(const Directories& directories);  // 1 to max_device_count, none null: else a bug
DeviceRole role_of(const Directories& directories, std::size_t index);

// Each throws Error (storage) naming the directory. None holds a store that would be lost, but for the further
// directories of `lost`, whose first one is.
void check_may_create(const Directories& directories, const std::optional<StoreUuid>& lost);
void check_roles(const Directories& directories, const Remedies& remedies);  // each is the device it is given as
void check_device_count(const Manifest& manifest, const Directories& directories);

}  // namespace penstock::store
