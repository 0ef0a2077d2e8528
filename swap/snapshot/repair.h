// Puts right what can be put right in a store without losing anything.
#pragma once

#include "swap/store/tensor_store.h"

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::store {

// Rewrites, durably, copies of manifests that are damaged, missing or left behind by an interrupted commit, from the
// whole copy of the newest generation in the same file; a missing manifest file is made again, empty. One line per
// thing done. Does nothing where no manifest is whole. Waits, at most `patience`, until what a process that was killed
// had under way there has landed. Throws Error (storage). REQUIRES: the directory is exclusive, a store's first, and
// the store is not open.
std::vector<std::string> repair_manifests(const StoreDirectory& directory,
                                          std::chrono::nanoseconds patience = aio::default_deadline,
                                          const WaitNotice& notice = {});

struct FoundBytes {
    std::optional<std::size_t> source;  // that has them
    std::vector<std::string> problems;  // of sources that were asked before it and could not be read
};
// Looks for the very bytes that `record` names among the same tiles of `sources`, which may carry another identity
// there, and leaves them in `memory`, as write() wants them.
// Polls the Io. Throws Error (storage) when a device does not answer: that source is abandoned, and `memory` must stay
// allocated until the process has ended. REQUIRES: the same objects in all; memory for an extent of each, aligned to
// all granules.
FoundBytes find_bytes(aio::Io& io, const TensorStore& store, TileId tile, const TileRecord& record,
                      std::span<TensorStore* const> sources, std::span<std::byte> memory);

}  // namespace penstock::store
