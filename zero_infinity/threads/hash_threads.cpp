#include "zero_infinity/threads/hash_threads.h"

#include <algorithm>
#include <cmath>

namespace penstock::zero {

unsigned hash_threads(const HashDemand& demand) noexcept {
    if (!(demand.bytes_per_second > driver_bytes_per_second)) return 0;
    const unsigned taken = demand.compute_threads + 1;
    const unsigned spare = demand.cores - std::min(demand.cores, taken);
    return static_cast<unsigned>(
        std::min(std::ceil(demand.bytes_per_second / driver_bytes_per_second), static_cast<double>(spare)));
}

}  // namespace penstock::zero
