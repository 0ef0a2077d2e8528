#include "trainer/models/chunked_loss.h"

#include "aio/words/check.h"
#include "zero_infinity/plan/core_options.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace penstock::trainer {
namespace {

constexpr std::int64_t not_counted = -100;  // torch's default

using Context = torch::autograd::AutogradContext;
using Variables = torch::autograd::variable_list;

at::Tensor whole_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets) {
    return at::cross_entropy_loss(at::linear(hidden, weight).to(at::kFloat), targets);
}

struct WantedGradients {
    bool hidden = false;
    bool weight = false;
};

// What the chunks are added to.
struct LossSums {
    at::Tensor loss;    // fp64, of the targets that count
    at::Tensor hidden;  // its gradient, where it is wanted
    at::Tensor weight;
};

// One chunk of the loss, and of the gradients of the mean over `count` targets.
void add_chunk(LossSums& sums, const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
               const at::Tensor& count, std::int64_t first) {
    at::Tensor logits = at::log_softmax(at::linear(hidden, weight).to(at::kFloat), -1);
    const at::Tensor counted = targets.ne(not_counted);
    const at::Tensor index = targets.clamp_min(0).unsqueeze(-1);
    sums.loss -= logits.gather(-1, index).squeeze(-1).masked_fill(counted.logical_not(), 0).sum(at::kDouble);
    if (!sums.hidden.defined() && !sums.weight.defined()) return;
    // d loss / d logits = (softmax - one at the target) / count, in the logits' memory.
    logits.exp_().scatter_add_(-1, index, at::full_like(index, -1, logits.options()));
    logits.mul_((counted.to(at::kFloat) / count).unsqueeze(-1));
    const at::Tensor slope = logits.to(weight.scalar_type());
    if (sums.hidden.defined()) sums.hidden.narrow(0, first, hidden.size(0)).copy_(at::matmul(slope, weight));
    if (!sums.weight.defined()) return;
    if (sums.weight.scalar_type() == weight.scalar_type())
        sums.weight.addmm_(slope.t(), hidden);
    else
        sums.weight.add_(at::matmul(slope.t(), hidden));
}

class ChunkedCrossEntropy : public torch::autograd::Function<ChunkedCrossEntropy> {
   public:
    static at::Tensor forward(Context* context, const at::Tensor& hidden, const at::Tensor& weight,
                              const at::Tensor& targets, std::int64_t tokens_at_once, bool hidden_wanted,
                              bool weight_wanted) {
        const std::int64_t tokens = hidden.size(0);
        const bool narrow = (tokens - 1) / tokens_at_once + 1 <= static_cast<std::int64_t>(zero::bf16_addends_max);
        LossSums sums{.loss = at::zeros({}, hidden.options().dtype(at::kDouble)), .hidden = {}, .weight = {}};
        if (hidden_wanted) sums.hidden = at::empty_like(hidden);
        if (weight_wanted)
            sums.weight = at::zeros(weight.sizes(), narrow ? weight.options() : weight.options().dtype(at::kFloat));
        const at::Tensor count = targets.ne(not_counted).sum().to(at::kFloat);
        for (std::int64_t first = 0; first < tokens; first += tokens_at_once) {
            const std::int64_t rows = std::min(tokens_at_once, tokens - first);
            add_chunk(sums, hidden.narrow(0, first, rows), weight, targets.narrow(0, first, rows), count, first);
        }
        context->saved_data["hidden"] = sums.hidden;
        context->saved_data["weight"] = weight_wanted ? sums.weight.to(weight.scalar_type()) : at::Tensor();
        return (sums.loss / count).to(at::kFloat);
    }

    static Variables backward(Context* context, const Variables& upstream) {
        const auto scaled = [&](const char* name) {
            const at::Tensor gradient = context->saved_data[name].toTensor();
            return gradient.defined() ? gradient * upstream[0].to(gradient.scalar_type()) : at::Tensor();
        };
        return {scaled("hidden"), scaled("weight"), {}, {}, {}, {}};
    }
};

}  // namespace

at::Tensor chunked_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                                 LossShape shape) {
    PENSTOCK_CHECK(shape.tokens_at_once > 0, "a loss of {} tokens at once", shape.tokens_at_once);
    if (hidden.size(0) <= shape.tokens_at_once) return whole_loss(hidden, weight, targets);
    const bool graph = at::GradMode::is_enabled();
    return ChunkedCrossEntropy::apply(hidden, weight, targets, shape.tokens_at_once, graph && hidden.requires_grad(),
                                      graph && weight.requires_grad());
}

}  // namespace penstock::trainer
