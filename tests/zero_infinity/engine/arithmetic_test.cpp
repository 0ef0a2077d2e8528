// Everything that decides bits, against the plain loop: each value of each setting with each value of each other one.
#include "aio/words/error.h"
#include "tests/zero_infinity/engine/reference_loop.h"
#include "tests/zero_infinity/engine/run.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

namespace penstock::testing {
namespace {

using Kind = ReferenceOptimizer::Kind;

constexpr std::array optimizers{"adamw", "adam", "sgd", "momentum", "nesterov", "lion", "adagrad"};
constexpr std::array codecs{"split", "plain_fp32", "plain_bf16"};
constexpr std::array clippings{0.5, 0.0, 0.05};
constexpr std::array<std::uint64_t, 2> tiles{4096, 12288};
constexpr std::array<std::uint64_t, 2> seeds{1, 0x123456789abcdef};
constexpr std::array gradient_types{zero::PlaneType::bf16, zero::PlaneType::fp32};
constexpr std::array<std::size_t, 2> accumulations{1, 3};
enum Setting : std::uint8_t { optimizer, values, codec, clipping, course, tile, seed, gradient_type, accumulation };
// How many values each has. Of `values`: sets of betas, epsilon, weight decay and so on; of `course`: constant or not.
constexpr std::array<std::size_t, 9> sizes{
    optimizers.size(),   3, codecs.size(), clippings.size(), 2, tiles.size(), seeds.size(), gradient_types.size(),
    accumulations.size()};
using Combination = std::array<std::size_t, sizes.size()>;
using Pair = std::array<std::size_t, 4>;  // setting, its value, another setting, its value

std::set<Pair> pairs_of(const Combination& each) {
    std::set<Pair> pairs;
    for (std::size_t one = 0; one < each.size(); ++one)
        for (std::size_t other = one + 1; other < each.size(); ++other)
            pairs.insert({one, each[one], other, each[other]});
    return pairs;
}

std::set<Pair> all_pairs() {
    std::set<Pair> pairs;
    for (std::size_t one = 0; one < sizes.size(); ++one)
        for (std::size_t other = one + 1; other < sizes.size(); ++other)
            for (std::size_t first = 0; first < sizes[one]; ++first)
                for (std::size_t second = 0; second < sizes[other]; ++second) pairs.insert({one, first, other, second});
    return pairs;
}

// Begins with a pair that no combination has yet, and gives each other setting the value that adds most new pairs.
Combination next_combination(const std::set<Pair>& missing) {
    const Pair& start = *missing.begin();
    Combination each{};
    std::set<std::size_t> chosen{start[0], start[2]};
    each[start[0]] = start[1];
    each[start[2]] = start[3];
    for (std::size_t setting = 0; setting < sizes.size(); ++setting) {
        if (!chosen.insert(setting).second) continue;
        std::size_t most = 0;
        for (std::size_t value = sizes[setting]; value-- > 0;) {
            std::size_t gain = 1;
            for (const std::size_t other : chosen)
                gain += other < setting   ? missing.count({other, each[other], setting, value})
                        : other > setting ? missing.count({setting, value, other, each[other]})
                                          : 0;
            if (gain < most) continue;
            most = gain;
            each[setting] = value;
        }
    }
    return each;
}

std::vector<Combination> combinations() {
    std::vector<Combination> all;
    std::set<Pair> missing = all_pairs();
    while (!missing.empty()) {
        all.push_back(next_combination(missing));
        for (const Pair& pair : pairs_of(all.back())) missing.erase(pair);
    }
    return all;
}

TEST(Combinations, HaveEveryValueWithEveryOther) {
    std::set<Pair> pairs;
    for (const Combination& each : combinations()) pairs.merge(pairs_of(each));
    EXPECT_EQ(pairs, all_pairs());
    EXPECT_LE(combinations().size(), 30U);
}

ReferenceOptimizer optimizer_of(const Combination& each) {
    const std::size_t set = each[values];
    ReferenceOptimizer of;
    of.kind = std::array{
        Kind::adamw, Kind::adam, Kind::sgd, Kind::sgd, Kind::sgd, Kind::lion, Kind::adagrad}[each[optimizer]];
    of.beta1 = std::array{0.9, 0.4, 0.95}[set];  // 0.4: torch.lerp goes from the other end
    of.beta2 = std::array{0.999, 0.9, 0.98}[set];
    of.epsilon = std::array{1e-8, 1e-3, 1e-6}[set];
    of.weight_decay = std::array{0.01, 0.0, 0.3}[set];
    of.lr_decay = std::array{0.0, 0.1, 0.02}[set];
    of.initial_accumulator = std::array{0.01, 0.0, 0.5}[set];
    const std::string_view name = optimizers[each[optimizer]];
    if (name == "momentum" || name == "nesterov") of.momentum = std::array{0.9, 0.5, 0.99}[set];
    if (name == "momentum") of.dampening = std::array{0.0, 0.5, 0.1}[set];
    of.nesterov = name == "nesterov";
    return of;
}

std::unique_ptr<zero::Optimizer> product_of(const ReferenceOptimizer& of) {
    switch (of.kind) {
        case Kind::adamw:
            return zero::make_adamw({of.beta1, of.beta2, of.epsilon, of.weight_decay});
        case Kind::adam:
            return zero::make_adam({of.beta1, of.beta2, of.epsilon, of.weight_decay});
        case Kind::sgd:
            return zero::make_sgd({of.momentum, of.dampening, of.weight_decay, of.nesterov});
        case Kind::lion:
            return zero::make_lion({of.beta1, of.beta2, of.weight_decay});
        default:
            return zero::make_adagrad({of.lr_decay, of.weight_decay, of.initial_accumulator, of.epsilon});
    }
}

RunOptions run_options(const Combination& each, const std::string& directory) {
    constexpr std::array rates{3e-3, 3e-3, 0.3, 0.03, 0.03, 1e-3, 1e-2};
    RunOptions options = toy_run(directory);
    options.model.layers = 2;
    options.steps = 6;
    options.micro_batches = accumulations[each[accumulation]];
    options.learning_rate = rates[each[optimizer]];
    if (each[course] == 1)
        options.schedule = [rate = options.learning_rate](std::uint64_t step) {
            return rate * (step < 3 ? static_cast<double>(step) / 3 : std::cos(0.3 * static_cast<double>(step - 3)));
        };
    options.optimizers = [each] { return zero::ParameterGroups(product_of(optimizer_of(each))); };
    options.session.codec = codecs[each[codec]];
    options.session.gradient_type = gradient_types[each[gradient_type]];
    options.session.tile_numel = tiles[each[tile]];
    options.session.seed = seeds[each[seed]];
    options.session.engine.gradient_clipping = clippings[each[clipping]];
    options.session.residency = {zero::Tier::nvme, zero::Tier::nvme};
    return options;
}

ReferenceOptions reference_options(const Combination& each) {
    using enum ReferenceOptions::Weights;
    return {.weights = std::array{bf16_away, fp32, bf16_even}[each[codec]],
            .bf16_gradients = gradient_types[each[gradient_type]] == zero::PlaneType::bf16,
            .clipping = clippings[each[clipping]],
            .seed = seeds[each[seed]],
            .tile_numel = tiles[each[tile]],
            .optimizer = optimizer_of(each)};
}

std::string name_of(const Combination& each) {
    return fmt::format("{}_{}_{}_clip{}_{}_tile{}_seed{}_{}_micro{}", optimizers[each[optimizer]], each[values],
                       codecs[each[codec]], each[clipping], each[course] == 0 ? "constant" : "course",
                       tiles[each[tile]], each[seed], word_of(gradient_types[each[gradient_type]]),
                       accumulations[each[accumulation]]);
}

class Arithmetic : public ::testing::TestWithParam<Combination> {};

TEST_P(Arithmetic, GivesTheBitsOfThePlainLoop) {
    const TemporaryDirectory directory;
    const RunOptions options = run_options(GetParam(), directory.path());
    const RunResult run = run_toy(options);
    ReferenceLoop reference(make_toy_model(options.model), reference_options(GetParam()));
    for (std::uint64_t step = 1; step <= options.steps; ++step) {
        const auto expected = reference.train_batch(toy_step(step, options), step, options.rate(step));
        ASSERT_EQ(run.losses.at(step - 1), expected.loss) << "step " << step;
        ASSERT_EQ(run.norms.at(step - 1), expected.norm) << "step " << step;
    }
    const double limit = options.session.engine.gradient_clipping;
    ASSERT_TRUE(limit == 0 || run.norms.front() > limit) << "clipping was not exercised";
    ASSERT_NE(run.losses.front(), run.losses.back());
    const auto model = make_toy_model(options.model);
    EXPECT_EQ(decode_states(read_snapshot(options.session.swap_directories[0], "toy"), *model, options.session.codec,
                            options.session.tile_numel, optimizer_of(GetParam()).moments()),
              reference.states());
}

INSTANTIATE_TEST_SUITE_P(Pairs, Arithmetic, ::testing::ValuesIn(combinations()),
                         [](const auto& instance) { return name_of(instance.param); });

// ---------------------------------------------------------------- the lossy codec, in whole runs

RunOptions compact_run(const std::string& directory) {
    RunOptions options = toy_run(directory);
    options.session.codec = "compact";
    options.session.gradient_type = zero::PlaneType::bf16;
    return options;
}

// Tiles of 4096 elements, whose states are no whole granules: in the store they are padded.
TEST(CompactRun, GivesTheSameBitsInEveryTierAndAfterAResume) {
    const TemporaryDirectory one, other;
    RunOptions nvme = compact_run(one.path());
    RunOptions host = compact_run(other.path());
    nvme.session.residency = {zero::Tier::nvme, zero::Tier::nvme};
    nvme.session.staging_tiles = 1;
    host.session.residency = {zero::Tier::host, zero::Tier::host};
    host.session.device.kind = zero::DeviceKind::emulated;
    host.session.device.budget_bytes = 4 << 20;
    nvme.steps = 7;
    run_toy(nvme);
    nvme.steps = 12;
    host.steps = 12;
    const auto resumed = run_toy(nvme);
    const auto whole = run_toy(host);
    EXPECT_EQ(resumed.losses, std::vector<double>(whole.losses.begin() + 7, whole.losses.end()));
    EXPECT_EQ(read_snapshot(nvme.session.swap_directories[0], "toy"),
              read_snapshot(host.session.swap_directories[0], "toy"));
}

// Not a bound from theory: twenty steps of a toy that learns, within 2 % of the exact codec's loss.
TEST(CompactRun, FollowsTheExactRun) {
    const TemporaryDirectory one, other;
    RunOptions exact = compact_run(one.path());
    exact.session.codec = "split";
    const auto compact = run_toy(compact_run(other.path()));
    const auto split = run_toy(exact);
    ASSERT_LT(compact.losses.back(), compact.losses.front());
    ASSERT_NE(compact.losses, split.losses) << "the codec was not used";
    for (std::size_t step = 0; step < split.losses.size(); ++step)
        ASSERT_NEAR(compact.losses[step] / split.losses[step], 1.0, 0.02) << "step " << step + 1;
}

TEST(CompactRun, AStoreOfSplitIsRefused) {
    const TemporaryDirectory directory;
    RunOptions options = compact_run(directory.path());
    options.session.codec = "split";
    options.steps = 1;
    run_toy(options);
    options.session.codec = "compact";
    EXPECT_THROW(run_toy(options), Error);
}

}  // namespace
}  // namespace penstock::testing
