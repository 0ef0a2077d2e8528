#include "trainer/run/sample.h"

#include "swap/format/utf8.h"
#include "zero_infinity/engine/engine.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace penstock::trainer {
namespace {

// The text's last tokens, followed by zeros up to `columns`. The model is causal, so what follows changes nothing; and
// all passes have one shape: kernels that are made for each shape (oneDNN's) would take hundreds of MB over 200
// lengths.
at::Tensor padded_tokens(const std::string& text, std::int64_t columns, const at::Device& device) {
    at::Tensor tokens = at::zeros({1, columns}, at::kLong);
    auto* data = tokens.data_ptr<std::int64_t>();
    const std::size_t count = std::min(text.size(), static_cast<std::size_t>(columns));
    for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<unsigned char>(text[text.size() - count + i]);
    return tokens.to(device);
}

}  // namespace

std::string write_sample(engine::Engine& engine, const SampleRequest& request,
                         const std::function<bool(std::int64_t)>& written) {
    std::mt19937_64 generator(request.seed);
    std::string text = request.options.prompt;
    const std::int64_t longest = static_cast<std::int64_t>(text.size()) + request.options.tokens;
    const std::int64_t columns = std::min(request.context, longest);
    for (std::int64_t token = 0; token < request.options.tokens; ++token) {
        const std::int64_t last = std::min(columns, static_cast<std::int64_t>(text.size())) - 1;
        const engine::Bundle output = engine.infer({{"tokens", padded_tokens(text, columns, request.device)}});
        const at::Tensor logits = output.at("logits").select(0, 0).select(0, last).to(at::kCPU);
        const double uniform = static_cast<double>(generator() >> 11) * 0x1p-53;
        text.push_back(static_cast<char>(draw(logits, request.options.temperature, uniform)));
        if (!written(token + 1)) return {};
    }
    return text;
}

std::int64_t draw(const at::Tensor& logits, double temperature, double uniform) {
    const at::Tensor row = logits.to(at::kFloat).contiguous();
    const float* data = row.data_ptr<float>();
    const std::int64_t count =
        std::min<std::int64_t>(row.numel(), 256);  // byte-level: a larger vocabulary has no text for the rest
    const std::int64_t largest = std::max_element(data, data + count) - data;
    if (temperature <= 0) return largest;
    std::vector<double> sums(static_cast<std::size_t>(count));
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        sum += std::exp((static_cast<double>(data[i]) - static_cast<double>(data[largest])) / temperature);
        sums[static_cast<std::size_t>(i)] = sum;
    }
    const auto chosen = std::upper_bound(sums.begin(), sums.end(), uniform * sum);
    return chosen == sums.end() ? largest : chosen - sums.begin();
}

std::string printable(const std::string& bytes) {
    std::string text;
    for (std::size_t i = 0; i < bytes.size();) {
        const std::size_t length = store::utf8_length(bytes, i);
        const char byte = bytes[i];
        if (length == 0)
            text += "\xef\xbf\xbd";
        else if (length > 1)
            text.append(bytes, i, length);
        else if (byte == '\0' || byte == '\n')
            text += '\n';
        else
            text += static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f ? ' ' : byte;
        i += std::max<std::size_t>(1, length);
    }
    return text;
}

}  // namespace penstock::trainer
