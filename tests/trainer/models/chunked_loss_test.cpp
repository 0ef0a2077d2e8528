#include "trainer/models/chunked_loss.h"

#include "trainer/models/gpt_options.h"
#include "zero_infinity/engine/torch/memory_meter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

namespace penstock::trainer {
namespace {

struct LossCase {
    at::Tensor hidden;
    at::Tensor weight;
    at::Tensor targets;
};

// 23 tokens of width 6 over 17 words.
LossCase loss_case(at::ScalarType type) {
    at::manual_seed(7);
    LossCase one{.hidden = at::randn({23, 6}).to(type).requires_grad_(true),
                 .weight = at::randn({17, 6}).to(type).requires_grad_(true),
                 .targets = at::randint(17, {23})};
    one.targets[4] = -100;
    one.targets[22] = -100;
    return one;
}

struct Outcome {
    at::Tensor loss;
    std::vector<at::Tensor> gradients;
};

Outcome with_gradients(const LossCase& of, const at::Tensor& loss, double upstream) {
    return {loss.detach(), torch::autograd::grad({loss}, {of.hidden, of.weight}, {at::full_like(loss, upstream)})};
}

Outcome in_chunks(const LossCase& of, std::int64_t tokens, double upstream = 1) {
    return with_gradients(of, chunked_cross_entropy(of.hidden, of.weight, of.targets, {tokens}), upstream);
}

Outcome at_once(const LossCase& of, double upstream = 1) {
    return with_gradients(of, at::cross_entropy_loss(at::linear(of.hidden, of.weight).to(at::kFloat), of.targets),
                          upstream);
}

TEST(ChunkedLoss, OfOneChunkHasTheBitsOfTheWhole) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        const LossCase one = loss_case(type);
        const Outcome whole = at_once(one), chunk = in_chunks(one, 23);
        EXPECT_TRUE(chunk.loss.equal(whole.loss));
        for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(chunk.gradients[i].equal(whole.gradients[i]));
    }
}

TEST(ChunkedLoss, AgreesWithTheWholeInEachCutAndScale) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        const LossCase one = loss_case(type);
        const double allowed = type == at::kFloat ? 1e-5 : 2e-2;
        for (const double upstream : {1.0, 0.125}) {
            const Outcome whole = at_once(one, upstream);
            for (const std::int64_t tokens : {1, 2, 7, 22}) {
                const Outcome cut = in_chunks(one, tokens, upstream);
                EXPECT_TRUE(at::allclose(cut.loss, whole.loss, 1e-6, 1e-6)) << tokens;
                for (std::size_t i = 0; i < 2; ++i) {
                    EXPECT_EQ(cut.gradients[i].scalar_type(), type);
                    EXPECT_TRUE(at::allclose(cut.gradients[i], whole.gradients[i], allowed, allowed * upstream))
                        << tokens << " " << i;
                }
            }
        }
    }
}

// 1024 equal addends: in bf16 a sum would stop at 256 of them.
TEST(ChunkedLoss, SumsManyChunksInFp32) {
    LossCase one{.hidden = at::ones({1024, 1}, at::kBFloat16),
                 .weight = at::zeros({2, 1}, at::kBFloat16).requires_grad_(true),
                 .targets = at::zeros({1024}, at::kLong)};
    const at::Tensor loss = chunked_cross_entropy(one.hidden, one.weight, one.targets, {1});
    const at::Tensor gradient = torch::autograd::grad({loss}, {one.weight})[0];
    EXPECT_FLOAT_EQ(gradient[0][0].item<float>(), -0.5F);
    EXPECT_FLOAT_EQ(gradient[1][0].item<float>(), 0.5F);
}

TEST(ChunkedLoss, MakesNoGradientThatNobodyWants) {
    const LossCase one = loss_case(at::kFloat);
    const at::Tensor frozen = one.weight.detach();
    const at::Tensor loss = chunked_cross_entropy(one.hidden, frozen, one.targets, {5});
    EXPECT_TRUE(torch::autograd::grad({loss}, {one.hidden})[0].defined());
    EXPECT_FALSE(chunked_cross_entropy(one.hidden.detach(), frozen, one.targets, {5}).requires_grad());
}

// 512 tokens over 20,000 words: logits of 41 MB in fp32, and of 32 tokens 2.6 MB.
TEST(ChunkedLoss, TakesAnEighthOfTheMemory) {
    const LossCase one{.hidden = at::randn({512, 8}).requires_grad_(true),
                       .weight = at::randn({20000, 8}).requires_grad_(true),
                       .targets = at::randint(20000, {512})};
    const auto peak = [&](std::int64_t tokens) {
        const engine::MemoryMeter meter;
        in_chunks(one, tokens);
        return meter.peak_bytes();
    };
    EXPECT_GT(peak(512), 2U * 512 * 20000 * 4);
    EXPECT_LT(peak(32) * 8, peak(512));
}

TEST(ChunkedLoss, CutsLargeVocabulariesAlone) {
    EXPECT_EQ(loss_tokens_at_once({.vocabulary = 256, .frozen = {}}), 262144);
    EXPECT_EQ(loss_tokens_at_once({.vocabulary = 151936, .frozen = {}}), 441);
    EXPECT_EQ(loss_tokens_at_once({.vocabulary = 16'000'000'000, .frozen = {}}), 1);
    EXPECT_EQ(loss_tokens_at_once({.vocabulary = 256, .frozen = {}, .loss_tokens = 3}), 3);
}

}  // namespace
}  // namespace penstock::trainer
