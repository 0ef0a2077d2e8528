// What a configuration says about snapshots.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::trainer {

struct SnapshotOptions {
    bool planned = false;    // memory is planned for it: keep.every or keep.folder is given
    std::int64_t every = 0;  // steps; 0: only when it is asked for
    std::uint64_t last = 0;  // so many "step-N" stay; 0: all
    std::string folder;      // that the snapshots are in
};

}  // namespace penstock::trainer
