// Sums of many micro-batches.
#include "tests/zero_infinity/engine/run.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace penstock::testing {
namespace {

// Each element's gradient is 1 in each micro-batch, before the division by their number.
class Slope : public engine::Unit {
   public:
    Slope() : engine::Unit("slope"), weight_(declare("weight", {64}, engine::Initial::zeros())) {}
    engine::Bundle forward(const engine::Bundle&) const override {
        return {{"loss", weight_.tensor().to(at::kFloat).sum()}};
    }

   private:
    const engine::Parameter& weight_;
};

struct Summed {
    double norm = 0;
    std::vector<std::string> notes;
};

Summed sum_of(std::size_t micro_batches, zero::PlaneType type) {
    const TemporaryDirectory directory;
    engine::SessionOptions options = toy_run(directory.path()).session;
    options.gradient_type = type;
    std::vector<std::unique_ptr<engine::Unit>> units;
    units.push_back(std::make_unique<Slope>());
    engine::Session session(std::make_unique<engine::Model>(std::move(units)), zero::make_adamw({}), options, {}, {});
    session.take_notes();
    Summed summed;
    for (std::uint64_t step = 1; step <= 2; ++step)  // the second says nothing new
        summed.norm = session.engine()
                          .train_batch(std::vector<engine::Bundle>(micro_batches), {.step = step, .learning_rate = 0},
                                       [](const engine::StepReport&) { return store::ClientState{}; })
                          .gradient_norm;
    summed.notes = session.take_notes();
    return summed;
}

// 8 is the root of 64: the norm of gradients of 1.
TEST(GradientSum, InFp32Is1WhateverTheNumberOfMicroBatches) {
    for (const std::size_t micro_batches : {1, 8, 256, 512, 1024}) {
        const Summed summed = sum_of(micro_batches, zero::PlaneType::fp32);
        EXPECT_EQ(summed.norm, 8) << micro_batches;
        EXPECT_TRUE(summed.notes.empty());
    }
}

// 256 + 1 is 256: no more is added, and of 512 micro-batches half are lost.
TEST(GradientSum, InBf16StopsGrowingAt256EqualOnesAndTheSessionSaysSo) {
    EXPECT_EQ(sum_of(256, zero::PlaneType::bf16).norm, 8);
    EXPECT_EQ(sum_of(512, zero::PlaneType::bf16).norm, 4);
    const Summed summed = sum_of(1024, zero::PlaneType::bf16);
    EXPECT_EQ(summed.norm, 2);
    ASSERT_EQ(summed.notes.size(), 1U) << "once";
    EXPECT_EQ(
        summed.notes[0],
        "gradients of 1024 micro-batches are summed in bf16 (gradient_type), which keeps 8 bits: a sum loses up to "
        "1/512 of itself with each, and stops growing at 256 equal ones; fp32 does not, for twice the memory");
}

TEST(GradientSum, InBf16OfAFewIsTakenWithoutAWord) {
    EXPECT_TRUE(sum_of(zero::bf16_addends_max, zero::PlaneType::bf16).notes.empty());
    EXPECT_FALSE(sum_of(zero::bf16_addends_max + 1, zero::PlaneType::bf16).notes.empty());
}

}  // namespace
}  // namespace penstock::testing
