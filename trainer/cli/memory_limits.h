// The process's own limits on memory, which no machine's or container's numbers show.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::trainer {

struct MemoryLimit {
    std::string name;  // "data segments (ulimit -d)"
    std::uint64_t bytes = 0;
};

// Those that are set.
std::vector<MemoryLimit> memory_limits();

}  // namespace penstock::trainer
