#include "bench/harness/triad.h"

// The elements do not depend on each other: vectors need no test for overlap before the loop.
#ifdef __clang__
#define PENSTOCK_AVX512 __attribute__((target("avx512f"), min_vector_width(512)))
#define PENSTOCK_NO_OVERLAP _Pragma("clang loop vectorize(assume_safety)")
#else
#define PENSTOCK_AVX512 __attribute__((target("avx512f,prefer-vector-width=512")))
#define PENSTOCK_NO_OVERLAP _Pragma("GCC ivdep")
#endif

namespace penstock::bench {
namespace {

// Each is compiled for its own processor by the attribute; the compiler makes vectors of the loop (CMakeLists.txt).
PENSTOCK_AVX512 void avx512_triad(float* to, const float* first, const float* second, float scalar, std::size_t count) {
    PENSTOCK_NO_OVERLAP
    for (std::size_t i = 0; i < count; ++i) to[i] = first[i] + scalar * second[i];
}

__attribute__((target("avx2"))) void avx2_triad(float* to, const float* first, const float* second, float scalar,
                                                std::size_t count) {
    PENSTOCK_NO_OVERLAP
    for (std::size_t i = 0; i < count; ++i) to[i] = first[i] + scalar * second[i];
}

void baseline_triad(float* to, const float* first, const float* second, float scalar, std::size_t count) {
    PENSTOCK_NO_OVERLAP
    for (std::size_t i = 0; i < count; ++i) to[i] = first[i] + scalar * second[i];
}

}  // namespace

Triad widest_triad() noexcept {
    if (__builtin_cpu_supports("avx512f")) return avx512_triad;
    return __builtin_cpu_supports("avx2") ? avx2_triad : baseline_triad;
}

}  // namespace penstock::bench
