// What the lossy codec costs: trainings in `compact` and in the exact codec, seed by seed, by the loss that they end
// with. A toy here; with --runs=N the demo's model and text (./run demo makes it), with N seeds.
#include "tests/seeds.h"
#include "tests/trainer/data/text_files.h"
#include "tests/trainer/program/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <vector>

namespace penstock::testing {
namespace {

using Arguments = std::vector<std::string>;

double mean(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// The mean over the last tenth of the steps: single batches differ more than codecs do.
double final_loss(const std::string& log) {
    std::vector<double> losses;
    for (const nlohmann::json& step : read_json_lines(log)) losses.push_back(step["loss"]);
    const auto tenth = static_cast<std::ptrdiff_t>(losses.size() / 10);
    return mean({losses.end() - tenth, losses.end()});
}

double train(const Arguments& config, const char* codec, std::uint64_t seed) {
    const TemporaryDirectory directory;
    Arguments arguments = {"train"};
    arguments.insert(arguments.end(), config.begin(), config.end());
    for (const std::string& setting : {fmt::format("memory.codec={}", codec), fmt::format("run.seed={}", seed),
                                       std::string("run.sample.tokens=0"), "run.directory=" + (directory / "run"),
                                       "zero_optimization.offload_param.nvme_path=" + (directory / "swap")}) {
        arguments.insert(arguments.end(), {"--set", setting});
    }
    const Ended ended = run(directory.path(), arguments);
    EXPECT_EQ(ended.code, 0) << ended.errors;
    return final_loss(directory / "run/log.jsonl");
}

struct Losses {
    std::vector<double> exact;
    std::vector<double> compact;

    double difference() const { return mean(compact) - mean(exact); }
    double spread() const {
        const auto [low, high] = std::minmax_element(exact.begin(), exact.end());
        return *high - *low;
    }
};

Losses train_both(const Arguments& config, std::uint64_t seeds) {
    Losses losses;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        losses.exact.push_back(train(config, "exact", seed));
        losses.compact.push_back(train(config, "compact", seed));
    }
    return losses;
}

TEST(CompactLoss, EndsWithinTheSpreadOfSeeds) {
    if (!seed_options().runs) {
        const TemporaryDirectory toy;
        write_toy(toy.path());
        const Losses losses = train_both(
            {toy / "config.json", "--set", "data.train=" + (toy / "text.tokens"), "--set", "run.steps=60"}, 2);
        EXPECT_LT(std::abs(losses.difference()), std::max(losses.spread(), 0.02 * mean(losses.exact)));
        return;
    }
    const std::string text = PENSTOCK_SOURCE_DIR "/.demo/text.tokens";
    if (!std::filesystem::exists(text)) GTEST_SKIP() << text << " is not there: ./run demo makes it";
    const Losses losses =
        train_both({PENSTOCK_SOURCE_DIR "/trainer/demo.json", "--set", "data.train=" + text}, *seed_options().runs);
    std::printf(
        "RESULT compact loss: the demo's mean loss over its last 20 steps, by seed: exact {%s}, compact {%s}; "
        "difference of the means %+.4f, spread of the exact ones %.4f\n",
        fmt::format("{:.4f}", fmt::join(losses.exact, ", ")).c_str(),
        fmt::format("{:.4f}", fmt::join(losses.compact, ", ")).c_str(), losses.difference(), losses.spread());
    EXPECT_LT(std::abs(losses.difference()), losses.spread());
}

}  // namespace
}  // namespace penstock::testing
