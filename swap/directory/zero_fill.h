// Zeros over ranges of files, all files at once, and durable.
#pragma once

#include "aio/file.h"
#include "aio/io.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

namespace penstock::store {

struct ZeroRange {
    const aio::File* file = nullptr;
    std::uint64_t offset_bytes = 0;
    std::uint64_t bytes = 0;
};

using FillProgress = std::function<void(std::uint64_t written_bytes, std::uint64_t total_bytes)>;

// Writes zeros over the ranges and flushes their files; polls the Io until that is done. Throws Error (storage or
// does_not_fit) and whatever `progress` throws, both after what was in flight has ended. When a device does not answer
// for `deadline`, throws Error (storage) and leaves what is in flight allocated, with `keep_files` called before, so
// that the caller keeps the files open until the process ends.
void fill_with_zeros(aio::Io& io, const std::vector<ZeroRange>& ranges, const FillProgress& progress,
                     std::chrono::nanoseconds deadline, const std::function<void()>& keep_files);

}  // namespace penstock::store
