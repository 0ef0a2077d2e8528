#include "swap/format/x86_features.h"

#include <cpuid.h>

namespace penstock::store {
namespace {

// XCR0: which registers the system keeps when it switches threads. REQUIRES: the processor has OSXSAVE.
unsigned kept_registers() noexcept {
    unsigned low = 0;
    unsigned high = 0;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

constexpr unsigned ymm_registers = 0x6;   // their lower and upper halves
constexpr unsigned zmm_registers = 0xe6;  // those, masks, the rest of zmm0 to zmm15, and zmm16 to zmm31
constexpr unsigned avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;

constexpr bool has(unsigned set, unsigned all) noexcept {
    return (set & all) == all;
}

}  // namespace

X86Features x86_features() noexcept {
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || !has(ecx, bit_OSXSAVE | bit_AVX)) return {};
    const unsigned kept = kept_registers();
    if (!has(kept, ymm_registers) || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return {};
    return {.avx2 = has(ebx, bit_AVX2), .avx512 = has(kept, zmm_registers) && has(ebx, avx512)};
}

}  // namespace penstock::store
