#include "swap/format/x86_features.h"
#include "zero_infinity/kernels/kernels.h"

namespace penstock::zero {

extern const Kernels avx512_kernels;
extern const Kernels avx2_kernels;
extern const Kernels baseline_kernels;

namespace {

struct Runnable {
    const Kernels* twins[4] = {};  // ends with null

    Runnable() noexcept {
        std::size_t count = 0;
        const store::X86Features features = store::x86_features();
        if (features.avx512) twins[count++] = &avx512_kernels;
        if (features.avx2) twins[count++] = &avx2_kernels;
        twins[count] = &baseline_kernels;
    }
};

}  // namespace

const Kernels* const* runnable_kernels() noexcept {
    static const Runnable runnable;
    return runnable.twins;
}

}  // namespace penstock::zero
