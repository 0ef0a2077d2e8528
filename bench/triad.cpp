#include "bench/triad.h"

namespace penstock {
namespace {

// Each is compiled for its own processor by the attribute; the compiler makes vectors of the loop (CMakeLists.txt).
__attribute__((target("avx512f,prefer-vector-width=512"))) void avx512_triad(float* to, const float* first,
                                                                             const float* second, float scalar,
                                                                             std::size_t count) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) to[i] = first[i] + scalar * second[i];
}

__attribute__((target("avx2"))) void avx2_triad(float* to, const float* first, const float* second, float scalar,
                                                std::size_t count) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) to[i] = first[i] + scalar * second[i];
}

void baseline_triad(float* to, const float* first, const float* second, float scalar, std::size_t count) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) to[i] = first[i] + scalar * second[i];
}

}  // namespace

Triad widest_triad() noexcept {
    if (__builtin_cpu_supports("avx512f")) return avx512_triad;
    return __builtin_cpu_supports("avx2") ? avx2_triad : baseline_triad;
}

}  // namespace penstock
