#include "trainer/data/batches.h"
#include "aio/words/error.h"

#include "tests/trainer/data/text_files.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace penstock::trainer {
namespace {

class BatchesOf : public ::testing::Test {
   protected:
    BatchesOf() {
        TokenWriter writer(path_);
        const std::string text = testing::toy_text(4000, 3);
        writer.append(std::as_bytes(std::span(text)));
        writer.finish();
    }

    static at::Tensor rows_of(const std::vector<engine::Bundle>& bundles, const char* name) {
        std::vector<at::Tensor> parts;
        for (const engine::Bundle& bundle : bundles) parts.push_back(bundle.at(name));
        return at::cat(parts, 0);
    }

    TemporaryDirectory directory_;
    std::string path_ = directory_ / "t.tokens";
};

TEST_F(BatchesOf, AStepHaveTargetsOneTokenAhead) {
    const TokenFile file(path_);
    Batches batches(file, {.rows = 3, .micro_batches = 2, .context = 16}, 1, at::kCPU);
    const auto& bundles = batches.after(0);
    ASSERT_EQ(bundles.size(), 2U);
    for (const engine::Bundle& bundle : bundles) {
        const at::Tensor tokens = bundle.at("tokens");
        const at::Tensor targets = bundle.at("targets");
        EXPECT_EQ(tokens.sizes(), (std::vector<std::int64_t>{3, 16}));
        EXPECT_EQ(tokens.scalar_type(), at::kLong);
        EXPECT_TRUE(tokens.narrow(1, 1, 15).equal(targets.narrow(1, 0, 15)));
    }
}

TEST_F(BatchesOf, AStepDoNotDependOnEarlierCalls) {
    const TokenFile file(path_);
    const BatchShape shape{.rows = 2, .micro_batches = 2, .context = 16};
    Batches running(file, shape, 1, at::kCPU);
    for (int step = 1; step < 300; ++step) running.after((step - 1) * 4);  // into the second epoch
    Batches resumed(file, shape, 1, at::kCPU);
    EXPECT_TRUE(rows_of(running.after(299 * 4), "tokens").equal(rows_of(resumed.after(299 * 4), "tokens")));
    EXPECT_TRUE(rows_of(running.after(299 * 4), "targets").equal(rows_of(resumed.after(299 * 4), "targets")));
}

// By turns: micro-batch m of rank r is the step's micro-batch m * ranks + r.
TEST_F(BatchesOf, AStepOfSeveralRanksAreThoseOfOne) {
    const TokenFile file(path_);
    Batches whole(file, {.rows = 2, .micro_batches = 6, .context = 16}, 1, at::kCPU);
    const std::vector<engine::Bundle> all = whole.after(4 * 12);
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
        Batches own(file, {.rows = 2, .micro_batches = 2, .context = 16, .of = {rank, 3}}, 1, at::kCPU);
        EXPECT_EQ(own.rows_of_step(), whole.rows_of_step());
        const std::vector<engine::Bundle>& bundles = own.after(4 * 12);
        ASSERT_EQ(bundles.size(), 2U);
        for (std::size_t turn = 0; turn < 2; ++turn)
            EXPECT_TRUE(bundles[turn].at("tokens").equal(all[turn * 3 + rank].at("tokens"))) << turn;
    }
}

TEST_F(BatchesOf, AStepDoNotDependOnHowItIsDivided) {
    const TokenFile file(path_);
    Batches whole(file, {.rows = 6, .micro_batches = 1, .context = 16}, 1, at::kCPU);
    Batches divided(file, {.rows = 2, .micro_batches = 3, .context = 16}, 1, at::kCPU);
    EXPECT_TRUE(rows_of(whole.after(4 * 6), "tokens").equal(rows_of(divided.after(4 * 6), "tokens")));
    Batches other_seed(file, {.rows = 6, .micro_batches = 1, .context = 16}, 2, at::kCPU);
    EXPECT_FALSE(rows_of(whole.after(4 * 6), "tokens").equal(rows_of(other_seed.after(4 * 6), "tokens")));
}

TEST_F(BatchesOf, AFileThatIsTooShortAreRefused) {
    const TokenFile file(path_);
    EXPECT_THROW(Batches(file, {.context = static_cast<std::int64_t>(file.info().count)}, 1, at::kCPU), Error);
    EXPECT_NO_THROW(Batches(file, {.context = static_cast<std::int64_t>(file.info().count) - 1}, 1, at::kCPU));
}

}  // namespace
}  // namespace penstock::trainer
