// Engines of several ranks: the losses and the bits of the plain loop that adds the ranks' gradients in their order.
// Two ranks cannot see a wrong order; four can.
#include "tests/zero_infinity/engine/run.h"
#include "tests/zero_infinity/ranks/thread_ranks.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

constexpr std::uint64_t steps = 6;

// fp32 masters by "UNIT/PARAMETER"; parts of several ranks come by turns.
class Masters final : public zero::WeightSink {
   public:
    void write(const zero::NamedParameter& parameter, const zero::ValueStretch& stretch) override {
        std::vector<float>& values = all[parameter.unit.name + "/" + parameter.spec.name];
        values.resize(std::max<std::size_t>(values.size(), stretch.first + stretch.numel));
        const auto* data = reinterpret_cast<const float*>(stretch.data);
        std::copy_n(data, stretch.numel, values.begin() + static_cast<std::ptrdiff_t>(stretch.first));
    }
    std::map<std::string, std::vector<float>> all;
};

std::vector<engine::Bundle> batch_of(std::uint64_t step, std::uint32_t rank, const RunOptions& options) {
    return toy_step(step * 100 + rank, options);
}

struct OfRank {
    std::vector<double> losses;
    std::vector<std::uint32_t> wishes;
    std::map<std::string, std::vector<float>> masters;
};

OfRank train_rank(const RunOptions& given, std::uint32_t rank, const engine::SessionSeams& seams) {
    at::set_num_threads(1);
    OfRank result;
    RunOptions options = given;
    std::uint32_t wish = 0;
    options.session.engine.wish = [&] { return wish; };
    engine::Session session(make_toy_model(options.model), options.optimizers(), options.session, {}, {}, seams);
    for (std::uint64_t step = 1; step <= steps; ++step) {
        wish = step == 3 && rank == 1 ? 15 : 0;
        const engine::StepReport report = session.engine().train_batch(
            batch_of(step, rank, options), {.step = step, .learning_rate = options.learning_rate},
            [&](const engine::StepReport& known) {
                return store::ClientState{{"loss", fmt::format("{}", known.loss)}};
            });
        result.losses.push_back(report.loss);
        result.wishes.push_back(report.wish);
    }
    Masters masters;
    session.read_out({.values = {zero::ParameterValue::master}, .wanted = {}}, masters);
    result.masters = std::move(masters.all);
    return result;
}

std::vector<OfRank> train_ranks(const RunOptions& options, std::uint32_t ranks) {
    ThreadRanks control(ranks), bulk(ranks);
    std::vector<OfRank> all(ranks);
    const auto thrown = run_ranks(ranks, [&](std::uint32_t rank) {
        all[rank] = train_rank(options, rank, {.ranks = {&control.of(rank), &bulk.of(rank)}});
    });
    EXPECT_EQ(thrown, std::vector<std::string>(ranks));
    return all;
}

class RankEngines : public ::testing::TestWithParam<bool> {};

TEST_P(RankEngines, HaveTheLossesAndBitsOfTheLoopThatAddsInTheOrderOfTheRanks) {
    const bool bf16 = GetParam();
    for (const std::uint32_t ranks : {2U, 3U, 4U}) {
        SCOPED_TRACE(ranks);
        const TemporaryDirectory directory;
        RunOptions options = toy_run(directory.path());
        options.micro_batches = ranks == 4 ? 1 : 2;
        options.session.codec = bf16 ? "split" : "plain_fp32";
        options.session.gradient_type = bf16 ? zero::PlaneType::bf16 : zero::PlaneType::fp32;
        options.session.engine.gradient_clipping = 0;
        options.model.tied_head = ranks == 4;

        at::set_num_threads(1);
        using Weights = ReferenceOptions::Weights;
        ReferenceLoop loop(make_toy_model(options.model),
                           {.weights = bf16 ? Weights::bf16_away : Weights::fp32, .bf16_gradients = bf16});
        std::vector<double> losses;
        for (std::uint64_t step = 1; step <= steps; ++step) {
            std::vector<std::vector<engine::Bundle>> of_ranks;
            for (std::uint32_t rank = 0; rank < ranks; ++rank) of_ranks.push_back(batch_of(step, rank, options));
            losses.push_back(loop.train_ranks(of_ranks, step, options.learning_rate).loss);
        }

        for (const OfRank& each : train_ranks(options, ranks)) {
            EXPECT_EQ(each.losses, losses);
            EXPECT_EQ(each.wishes, (std::vector<std::uint32_t>{0, 0, 15, 0, 0, 0})) << "what one wants, all hear";
            for (const auto& [name, state] : loop.states()) EXPECT_EQ(each.masters.at(name), state.master) << name;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, RankEngines, ::testing::Bool(),
                         [](const auto& of) { return of.param ? "bf16" : "fp32"; });

}  // namespace
}  // namespace penstock::testing
