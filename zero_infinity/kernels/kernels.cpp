#include "zero_infinity/kernels/kernels.h"

namespace penstock::zero {

const Kernels& kernels() noexcept {
    return *runnable_kernels()[0];
}

}  // namespace penstock::zero
