// The kernels for AVX2; flags in CMakeLists.txt.
#include "zero_infinity/kernels/kernels_body.h"

namespace penstock::zero {

extern const Kernels avx2_kernels;
constexpr Kernels avx2_kernels = table("avx2");

}  // namespace penstock::zero
