#include "trainer/cli/memory_limits.h"

#include <sys/resource.h>

#include <utility>

namespace penstock::trainer {

std::vector<MemoryLimit> memory_limits() {
    std::vector<MemoryLimit> found;
    for (const auto& [resource, name] :
         {std::pair(RLIMIT_DATA, "data segments (ulimit -d)"), std::pair(RLIMIT_AS, "address space (ulimit -v)")}) {
        rlimit limit{};
        if (::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
            found.push_back({.name = name, .bytes = limit.rlim_cur});
    }
    return found;
}

}  // namespace penstock::trainer
