// Opens or creates what a C program's options describe. The only file of the C interface that knows how a store is
// opened.
#pragma once

#include "aio/backend.h"
#include "aio/io.h"
#include "swap/capi/penstock.h"
#include "swap/directory/store_directory.h"
#include "swap/store/tensor_store.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace penstock::store {

struct OpenStore {  // destroyed in reverse
    std::vector<StoreDirectory> directories;
    std::unique_ptr<aio::Io> io;
    std::unique_ptr<TensorStore> store;
    int backend_ready_fd = -1;       // Backend::ready_fd()
    std::vector<std::string> notes;  // beside the store's own
};

// Makes the backend for a store whose first directory this is; tests bring one with faults.
using BackendSource = std::function<aio::ChosenBackend(const StoreDirectory& directory, const penstock_store_options&)>;
aio::ChosenBackend choose_backend(const StoreDirectory& directory, const penstock_store_options& options);

// Throws Refusal (usage) on impossible options and Error as TensorStore::create() and open() do.
OpenStore open_store(const penstock_store_options* options, const BackendSource& source);

}  // namespace penstock::store
