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
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
            twins[count++] = &avx512_kernels;
        if (__builtin_cpu_supports("avx2")) twins[count++] = &avx2_kernels;
        twins[count] = &baseline_kernels;
    }
};

}  // namespace

const Kernels* const* runnable_kernels() noexcept {
    static const Runnable runnable;
    return runnable.twins;
}

const Kernels& kernels() noexcept {
    return *runnable_kernels()[0];
}

}  // namespace penstock::zero
