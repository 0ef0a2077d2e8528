// The kernels for the compiler's default target; flags in CMakeLists.txt.
#include "zero_infinity/kernels/kernels_body.h"

namespace penstock::zero {

extern const Kernels baseline_kernels;
constexpr Kernels baseline_kernels = table("baseline");

}  // namespace penstock::zero
