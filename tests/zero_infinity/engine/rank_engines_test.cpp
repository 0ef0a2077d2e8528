// Engines of several ranks: the losses and the bits of the plain loop that adds the ranks' gradients in their order.
// Two ranks cannot see a wrong order; three can.
#include "tests/seeds.h"
#include "tests/zero_infinity/engine/run.h"
#include "tests/zero_infinity/ranks/thread_ranks.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

constexpr std::uint64_t steps = 20;

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

// An engine has one pass a step, so both orders of sums are one loop's, as all stages of ZeRO below 3 are.
struct Kind {
    std::uint32_t ranks = 2;
    bool bf16 = false;
    zero::SumOrder order = zero::SumOrder::passes_first;
    zero::DeviceKind device = zero::DeviceKind::cpu;

    std::string name() const {
        return fmt::format("{} ranks, {}, {}, {}", ranks, bf16 ? "bf16" : "fp32", word_of(order), word_of(device));
    }
};

// Any three in a row are of 2, 3 and 4 ranks.
constexpr std::uint64_t kinds = 24;
Kind kind_of(std::uint64_t number) {
    return {.ranks = static_cast<std::uint32_t>(2 + number % 3),
            .bf16 = number / 3 % 2 == 0,
            .order = number / 6 % 2 == 0 ? zero::SumOrder::passes_first : zero::SumOrder::ranks_first,
            .device = number / 12 % 2 == 0 ? zero::DeviceKind::cpu : zero::DeviceKind::emulated};
}

RunOptions options_of(const Kind& kind, const std::string& directory) {
    RunOptions options = toy_run(directory);
    options.micro_batches = kind.ranks == 4 ? 1 : 2;
    options.model.tied_head = kind.ranks == 4;
    options.session.codec = kind.bf16 ? "split" : "plain_fp32";
    options.session.gradient_type = kind.bf16 ? zero::PlaneType::bf16 : zero::PlaneType::fp32;
    options.session.engine.gradient_clipping = 0;
    options.session.ranks.sum_order = kind.order;
    options.session.device.kind = kind.device;
    options.session.device.budget_bytes = 16 << 20;
    return options;
}

void train_as_the_loop(const Kind& kind) {
    const TemporaryDirectory directory;
    const RunOptions options = options_of(kind, directory.path());
    at::set_num_threads(1);
    using Weights = ReferenceOptions::Weights;
    ReferenceLoop loop(make_toy_model(options.model),
                       {.weights = kind.bf16 ? Weights::bf16_away : Weights::fp32, .bf16_gradients = kind.bf16});
    std::vector<double> losses;
    for (std::uint64_t step = 1; step <= steps; ++step) {
        std::vector<std::vector<engine::Bundle>> of_ranks;
        for (std::uint32_t rank = 0; rank < kind.ranks; ++rank) of_ranks.push_back(batch_of(step, rank, options));
        losses.push_back(loop.train_ranks(of_ranks, step, options.learning_rate).loss);
    }
    std::vector<std::uint32_t> wishes(steps);
    wishes[2] = 15;
    for (const OfRank& each : train_ranks(options, kind.ranks)) {
        EXPECT_EQ(each.losses, losses);
        EXPECT_EQ(each.wishes, wishes) << "what one wants, all hear";
        ASSERT_EQ(each.masters.size(), loop.states().size());
        for (const auto& [name, state] : loop.states()) EXPECT_EQ(each.masters.at(name), state.master) << name;
    }
}

TEST(RankEngines, HaveTheLossesAndBitsOfTheLoopThatAddsInTheOrderOfTheRanks) {
    const std::uint64_t first = first_seed(), count = seed_count(3);
    for (std::uint64_t number = 0; number < count; ++number) {
        const Kind kind = kind_of((first + number) % kinds);
        SCOPED_TRACE(kind.name() + "; " + replay(first + number));
        train_as_the_loop(kind);
    }
    fmt::print(
        "RESULT rank_engines: {} of {} kinds of engines of 2, 3 and 4 ranks, {} steps: losses and bits of the "
        "plain loop\n",
        std::min(count, kinds), kinds, steps);
}

}  // namespace
}  // namespace penstock::testing
