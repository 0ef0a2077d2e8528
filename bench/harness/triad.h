// STREAM's triad (McCalpin 1995): what this machine's memory gives to a simple loop.
#pragma once

#include <cstddef>

namespace penstock::bench {

// to[i] = first[i] + scalar * second[i]. `to` may be `first`; nothing else may overlap.
using Triad = void (*)(float* to, const float* first, const float* second, float scalar, std::size_t count);

// With the widest vectors of this processor, as the kernels that are held against it. Ordinary stores, as in STREAM.
Triad widest_triad() noexcept;

}  // namespace penstock::bench
