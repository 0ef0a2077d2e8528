// Zeros over ranges of files, all files at once, and durable.
#pragma once

#include "aio/file.h"
#include "aio/io.h"
#include "swap/directory/store_files.h"
#include "swap/format/layout.h"
#include "swap/store/long_work.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace penstock::store {

struct ZeroRange {
    const aio::File* file = nullptr;
    std::uint64_t offset_bytes = 0;
    std::uint64_t bytes = 0;
};

// Writes zeros over the ranges and flushes their files; polls the Io until that is done. Throws Error (storage or
// does_not_fit) and what `progress` throws, both after what was in flight has ended. When a device is stuck, throws
// Error (storage) and leaves what is in flight allocated, with `keep_files` called before, so that the caller keeps the
// files open until the process ends.
void fill_with_zeros(aio::Io& io, const std::vector<ZeroRange>& ranges, const WorkProgress& progress,
                     std::function<void()> keep_files);

// The same in files of a store, which keeps them open for ever when a device is stuck.
void fill_files(aio::Io& io, StoreFiles& files, const std::vector<ZeroRange>& ranges, const WorkProgress& progress);

enum class Contents : std::uint8_t { all, manifests };

// The whole of the files.
std::vector<ZeroRange> whole_ranges(const StoreFiles& files, const Layout& layout, Contents contents);

}  // namespace penstock::store
