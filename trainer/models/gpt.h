// A GPT-style decoder as units "embedding", "blocks.0" … "blocks.N-1", "head".
//
// Input: "tokens" int64 [rows, columns], columns <= context; "targets" of the same shape in training. Between the units
// goes "hidden" [rows, columns, hidden] in the type of the parameters. The head gives "loss" (mean cross entropy over
// all targets, computed in fp32, loss_tokens_at_once() of them at a time) when there are targets, else "logits" fp32
// [rows, columns, vocabulary].
//
// A block is x + out(attention(norm(x))), then x + out(gelu(in(norm(x)))), without biases (Radford et al. 2019;
// RMSNorm: Zhang and Sennrich 2019; rotary positions in the half-split layout of Llama: Su et al. 2021). Norms and
// rotation are computed in fp32. Weights start as normal(0, 0.02), those that write into the residual stream as
// normal(0, 0.02 / sqrt(2 * layers)).
#pragma once

#include "trainer/models/gpt_options.h"
#include "zero_infinity/engine/model.h"

#include <memory>

namespace penstock::trainer {

// Parameters of the units, for GptOptions::frozen:
//   embedding  tokens, positions (when learned)
//   blocks.N   attention_norm, qkv, attention_out, mlp_norm, mlp_in, mlp_out; with LayerNorm also attention_norm_bias,
//   mlp_norm_bias head       norm, norm_bias (LayerNorm), weight (when not tied)
// Throws Error (usage) when a frozen name is none of them, or when nothing is left to train.
std::unique_ptr<engine::Model> make_gpt(const GptOptions& options);

}  // namespace penstock::trainer
