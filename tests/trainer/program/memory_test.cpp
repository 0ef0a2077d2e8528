// A model whose weights and states are at least four times the pool's budget trains within it, and the process stays
// within the budget and a stated constant.
#include "tests/trainer/data/text_files.h"
#include "tests/trainer/program/program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdint>

namespace penstock::testing {
namespace {

using nlohmann::json;

constexpr double mib = 1 << 20;

json train(const TemporaryDirectory& directory, std::vector<std::string> settings) {
    std::vector<std::string> arguments{"train", "config.json", "--json", "--steps", "2"};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    const Ended ended = run(directory.path(), arguments);
    EXPECT_EQ(ended.code, 0) << ended.errors;
    return ended.code == 0 ? json::parse(ended.output) : json();
}

// What the process takes beside the pool when it trains next to nothing: the program, LibTorch, one small step.
double constant_mib() {
    const TemporaryDirectory directory;
    write_toy(directory.path());
    const json toy = train(directory, {"run.sample.tokens=0"});
    return (toy.at("peak_rss_bytes").get<double>() - toy.at("pool_peak_bytes").get<double>()) / mib;
}

TEST(Memory, AModelFourTimesTheBudgetTrainsWithinIt) {
    const TemporaryDirectory directory;
    write_toy(directory.path());
    const json big =
        train(directory, {"model.hidden=512", "model.layers=9", "model.heads=8", "model.feed_forward=2048",
                          "train_batch_size=1", "train_micro_batch_size_per_gpu=1", "gradient_accumulation_steps=1",
                          "memory.host_budget=80MiB", "memory.tile_elements=131072", "run.sample.tokens=0"});
    ASSERT_FALSE(big.is_null());
    const double budget = big["pool_budget_bytes"].get<double>();
    const double weights_and_states = 12.0 * big["params"].get<double>();
    EXPECT_EQ(budget, 80 * mib);
    EXPECT_GE(weights_and_states / budget, 4.0);
    EXPECT_LE(big["pool_peak_bytes"].get<double>(), budget);

    const double constant = constant_mib();
    const double beside = big["peak_rss_bytes"].get<double>() / mib - big["pool_peak_bytes"].get<double>() / mib;
    std::printf(
        "weights and states %.1f MiB, budget %.0f MiB (ratio %.2f), pool peak %.1f MiB, peak RSS %.1f MiB: "
        "pool + %.1f MiB; a toy takes its pool + %.1f MiB\n",
        weights_and_states / mib, budget / mib, weights_and_states / budget, big["pool_peak_bytes"].get<double>() / mib,
        big["peak_rss_bytes"].get<double>() / mib, beside, constant);
    // Activations and gradients of one unit on their way (3.1 M parameters), and what torch's matrix kernels keep.
    EXPECT_LE(beside, constant + 64);
    // Far less than the model in memory would add.
    EXPECT_LE(beside + budget / mib, constant + weights_and_states / mib / 2);
}

}  // namespace
}  // namespace penstock::testing
