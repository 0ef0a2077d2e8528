// What an x86-64 processor can do beyond what all of them can.
#pragma once

namespace penstock::store {

// Of the processor, and of a system that keeps the registers. Asked of the processor itself: __builtin_cpu_supports()
// is false of everything where the compiler is zig's (python/wheel).
struct X86Features {
    bool avx2 = false;
    bool avx512 = false;  // F, BW, DQ and VL
};

X86Features x86_features() noexcept;

}  // namespace penstock::store
