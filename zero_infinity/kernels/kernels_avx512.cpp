// The kernels for AVX-512 F, BW, DQ, VL; flags in CMakeLists.txt.
#include "zero_infinity/kernels/kernels_body.h"

namespace penstock::zero {

extern const Kernels avx512_kernels;
constexpr Kernels avx512_kernels = table("avx512");

}  // namespace penstock::zero
