// Traces made by arithmetic, for what our own driver does not ask: it takes few, planned leases.
#pragma once

#include "pinned_pool/pool_trace.h"

#include <cstdint>
#include <optional>
#include <string>

namespace penstock {

// A GPT whose tensors are swapped one by one, as engines do that follow the model's parameter list: each tensor's
// 16-bit weights, its fp32 gradient, and its fp32 master and moments are requests of their own, from 2 KB to 200 MB.
struct SwapShape {
    std::uint32_t layers = 0;
    std::uint64_t hidden = 0;
    std::uint64_t vocabulary = 0;
    std::uint64_t context = 0;
    std::uint32_t window_layers = 3;   // weights that are fetched ahead
    std::uint32_t tensors_ahead = 2;   // of the update
    std::uint32_t steps = 3;           // the first finds the arena empty, the others as the one before left it
    std::uint32_t longest_write = 12;  // a write-back ends within so many further requests
    std::uint32_t seed = 1;            // of how long each takes
};

// "gpt2-354m": 24 layers, hidden 1024, vocabulary 50257, context 1024. Nothing for an unknown name.
std::optional<SwapShape> swap_shape(const std::string& name);
std::uint64_t parameter_count(const SwapShape& shape);

// The requests of `steps` training steps, all of one use "tensors", which has a quarter more than their peak. Equal
// shapes give equal traces.
//   forward   weights of a layer and of the window ahead of it; a layer's are returned behind it
//   backward  the same from the end, and each tensor's gradient, which is written back and parked meanwhile
//   update    per tensor gradient, master and two moments, some tensors ahead; the new weights, master and moments are
//             written back and parked meanwhile
PoolTrace tensor_swap_trace(const SwapShape& shape);

}  // namespace penstock
