// What is kept between forward and backward, and what it takes.
#include "zero_infinity/engine/tape.h"

#include "tests/zero_infinity/engine/run.h"
#include "zero_infinity/engine/torch/memory_meter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>

namespace penstock::testing {
namespace {

using engine::first_kept_graph;
using Bytes = std::vector<std::optional<std::uint64_t>>;

TEST(MemoryMeter, CountsWhatIsHeldAndTheMostThatWas) {
    const at::Tensor before = at::ones({1024});
    const engine::MemoryMeter meter;
    EXPECT_EQ(meter.held_bytes(), 0U);
    at::Tensor held = at::ones({1 << 16});
    { const at::Tensor passing = at::ones({1 << 18}); }
    EXPECT_GE(meter.held_bytes(), 4U << 16);
    EXPECT_LT(meter.held_bytes(), (4U << 16) + 4096);
    EXPECT_GE(meter.peak_bytes(), (4U << 16) + (4U << 18));
    held.reset();
    EXPECT_LT(meter.held_bytes(), 4096U);
    {
        const engine::MemoryMeter younger;
        held = at::ones({1 << 16});
        EXPECT_GE(younger.held_bytes(), 4U << 16);
    }
    EXPECT_LT(meter.held_bytes(), 4096U);
}

TEST(KeptGraphs, AreThoseNearestToTheLossThatFit) {
    const Bytes bytes{10, 20, 30, 1000};  // the last unit's takes nothing
    EXPECT_EQ(first_kept_graph(bytes, 1, 29), 3U);
    EXPECT_EQ(first_kept_graph(bytes, 1, 30), 2U);
    EXPECT_EQ(first_kept_graph(bytes, 1, 49), 2U);
    EXPECT_EQ(first_kept_graph(bytes, 1, 50), 1U);
    EXPECT_EQ(first_kept_graph(bytes, 1, 60), 0U);
    EXPECT_EQ(first_kept_graph(bytes, 2, 60), 2U);
    EXPECT_EQ(first_kept_graph(bytes, 2, 0), 3U);
}

TEST(KeptGraphs, AreNoneOfUnitsThatWereNotMeasured) {
    EXPECT_EQ(first_kept_graph(Bytes{10, std::nullopt, 30, std::nullopt}, 1, 1000), 2U);
    EXPECT_EQ(first_kept_graph(Bytes(4), 1, 1000), 3U);
    EXPECT_EQ(first_kept_graph(Bytes{std::nullopt}, 1, 1000), 0U);
    EXPECT_EQ(first_kept_graph(Bytes{}, 1, 1000), 0U);
}

// Counts how often it is run.
class Counted final : public engine::Unit {
   public:
    Counted(std::string name, int& runs)
        : engine::Unit(std::move(name)),
          runs_(runs),
          weight_(declare("weight", {64, 64}, engine::Initial::normal(0.1))) {}
    engine::Bundle forward(const engine::Bundle& input) const override {
        ++runs_;
        const at::Tensor hidden = at::gelu(at::linear(input.at("hidden"), weight_.tensor()));
        return {{"hidden", hidden}, {"loss", hidden.to(at::kFloat).pow(2).mean()}};
    }

   private:
    int& runs_;
    const engine::Parameter& weight_;
};

// Of 16 rows of 64 bf16 values a graph keeps the linear map's output, 2 KiB, and more by a few bytes.
TEST(KeptGraphs, AreNotRunAgainAfterAFirstStepThatMeasuresThem) {
    const TemporaryDirectory directory;
    RunOptions options = toy_run(directory.path());
    options.session.engine.activations = engine::Activations::retain;
    options.session.engine.graph_budget_bytes = 10000;  // of two graphs with their loss's, not of three
    std::vector<int> runs(6);
    std::vector<std::unique_ptr<engine::Unit>> units;
    for (std::size_t unit = 0; unit < runs.size(); ++unit)
        units.push_back(std::make_unique<Counted>("unit." + std::to_string(unit), runs[unit]));
    engine::Session session(std::make_unique<engine::Model>(std::move(units)), options.optimizers(), options.session,
                            {}, {});
    const std::vector<engine::Bundle> batch = {{{"hidden", at::ones({16, 64}, at::kBFloat16)}}};
    const auto step = [&](std::uint64_t number) {
        std::fill(runs.begin(), runs.end(), 0);
        return session.engine().train_batch(batch, {.step = number, .learning_rate = 1e-3},
                                            [](const engine::StepReport&) { return store::ClientState{}; });
    };
    EXPECT_EQ(step(1).graph_bytes, 0U);
    EXPECT_EQ(runs, (std::vector<int>{2, 2, 2, 2, 2, 1}));
    for (const std::uint64_t number : {2, 3}) {
        const engine::StepReport report = step(number);
        EXPECT_GT(report.graph_bytes, 0U);
        EXPECT_LE(report.graph_bytes, options.session.engine.graph_budget_bytes);
        EXPECT_EQ(runs[5], 1);
        EXPECT_EQ(runs[4], 1);
        EXPECT_EQ(runs[0], 2);
        EXPECT_TRUE(std::is_sorted(runs.rbegin(), runs.rend()));
    }
}

}  // namespace
}  // namespace penstock::testing
