// Text that the trained model writes.
#pragma once

#include "trainer/config/config.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

namespace penstock::engine {
class Engine;
}

namespace penstock::trainer {

struct SampleRequest {
    SampleOptions options;
    std::int64_t context = 1;  // the model sees at most so many of the last tokens
    std::uint64_t seed = 1;    // the same seed and weights give the same text
    at::Device device = at::kCPU;
};

// Continues the prompt byte by byte, one pass over the weights per byte; returns prompt and continuation, raw bytes.
// `written` is called after each byte; false: no more is wanted, and nothing is returned.
std::string write_sample(engine::Engine& engine, const SampleRequest& request,
                         const std::function<bool(std::int64_t)>& written);

// Draws from softmax(logits / temperature) with `uniform` in [0, 1); the first largest at temperature 0. fp32
// [vocabulary], CPU.
std::int64_t draw(const at::Tensor& logits, double temperature, double uniform);

// Bytes as text that a terminal and JSON can show: what is not UTF-8 becomes U+FFFD, byte 0 (end of a document) a new
// line, other control characters a space.
std::string printable(const std::string& bytes);

}  // namespace penstock::trainer
