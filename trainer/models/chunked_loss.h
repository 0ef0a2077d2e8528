// Cross entropy over a large vocabulary without all logits at once. Source: the fused linear cross entropy of Liger
// Kernel (Hsu et al. 2024): gradients are made beside the loss, chunk by chunk, and only scaled in backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace penstock::trainer {

struct LossShape {
    std::int64_t tokens_at_once = 0;  // rows of `hidden` whose logits are there at once
};

// Mean over the targets of -log softmax(hidden · weightᵀ)[target], in fp32; those that are -100 do not count.
// hidden [tokens, width], weight [vocabulary, width] of the same type, targets int64 [tokens]. Logits and what backward
// makes of them take some 4 × tokens_at_once × vocabulary × 4 bytes. The gradient of `weight` is summed over the chunks
// in its type, and of more than zero::bf16_addends_max chunks in fp32. Another number of tokens at once gives other
// bits; one chunk gives those of at::linear and at::cross_entropy_loss.
at::Tensor chunked_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                                 LossShape shape);

}  // namespace penstock::trainer
