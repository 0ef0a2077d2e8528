// Opens or creates what a C program's options describe. The only file of the C interface that knows how a store is
// opened.
#pragma once

#include "aio/backend.h"
#include "swap/capi/penstock.h"
#include "swap/directory/store_directory.h"
#include "swap/store/open_store.h"

#include <functional>

namespace penstock::store {

// Makes the backend for a store whose first directory this is: tests bring one with faults.
using BackendSource = std::function<aio::ChosenBackend(const StoreDirectory& directory, const penstock_store_options&)>;

// Throws Refusal (usage) on impossible options and Error as OpenStore does. Without a source, the backend is the one
// that the options ask for.
OpenStore open_store(const penstock_store_options* options, const BackendSource& source = {});

}  // namespace penstock::store
