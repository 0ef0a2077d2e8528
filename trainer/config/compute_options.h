// How torch computes, as far as a run says so; without torch.
#pragma once

#include "aio/words/enum_words.h"

#include <array>
#include <cstdint>

namespace penstock::trainer {

// What products of fp32 matrices may round their factors to; torch's words (set_float32_matmul_precision).
enum class MatmulPrecision : std::uint8_t {
    highest,  // nothing: 24 bits
    high,     // 11 bits, where the device has TF32
};
constexpr auto words_of(MatmulPrecision) noexcept {
    return std::array{Word{MatmulPrecision::highest, "highest"}, Word{MatmulPrecision::high, "high"}};
}

struct ComputeOptions {
    bool deterministic = false;  // of a GPU; a CPU always is
    MatmulPrecision matmul = MatmulPrecision::highest;
};

}  // namespace penstock::trainer
