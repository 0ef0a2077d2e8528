// Files of a store that is not open, held while something is done to them.
#pragma once

#include "aio/file.h"
#include "swap/directory/file_hold.h"
#include "swap/directory/store_directory.h"

#include <chrono>
#include <span>
#include <vector>

namespace penstock::store {

class HeldFiles {
   public:
    // Those of the names that are regular files there. Waits as FileHold does, `patience` for all together, so that
    // nothing that an ended process had under way lands in them later. Throws Error (storage).
    HeldFiles(const StoreDirectory& directory, std::span<const char* const> names, std::chrono::nanoseconds patience,
              const WaitNotice& notice);

   private:
    std::vector<aio::File> files_;
    std::vector<FileHold> holds_;  // given up first
};

}  // namespace penstock::store
