// A model whose weights and states are at least four times the pool's budget trains within it, and the process stays
// within the budget and a stated constant.
#include "tests/trainer/data/text_files.h"
#include "tests/trainer/program/program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>

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

// A control group of its own under a limit, where this machine lets us make one; gone with it.
class LimitedGroup {
   public:
    explicit LimitedGroup(std::uint64_t limit_bytes) {
        for (const auto& [root, file] :
             {std::pair{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, std::pair{"/sys/fs/cgroup", "memory.max"}}) {
            const std::string path = std::string(root) + "/penstock-test-" + std::to_string(::getpid());
            std::error_code refused;
            if (!std::filesystem::create_directory(path, refused)) continue;
            if (std::ofstream limit(path + "/" + file); limit << limit_bytes << std::flush) {
                path_ = path;
                return;
            }
            std::filesystem::remove(path, refused);
        }
    }
    ~LimitedGroup() {
        if (path_) ::rmdir(path_->c_str());
    }
    LimitedGroup(const LimitedGroup&) = delete;
    LimitedGroup& operator=(const LimitedGroup&) = delete;

    bool is_there() const { return path_.has_value(); }
    std::vector<std::string> within(const std::vector<std::string>& command) const {
        std::vector<std::string> all{"/bin/sh", "-c", "echo $$ > " + *path_ + "/cgroup.procs && exec \"$@\"", "sh"};
        all.insert(all.end(), command.begin(), command.end());
        return all;
    }

   private:
    std::optional<std::string> path_;
};

// Narrow and deep, of many rows: what it computes for backward is most of what it takes.
TEST(Memory, AMachineWithHalfOfWhatItWantsTrainsOnToTheSameBits) {
    const TemporaryDirectory directory;
    write_toy(directory.path());
    std::vector<std::string> arguments{"train", "config.json", "--json", "--steps", "2"};
    for (const char* setting : {"model.hidden=128", "model.layers=24", "model.heads=4", "model.feed_forward=512",
                                "model.context=128", "train_batch_size=32", "train_micro_batch_size_per_gpu=16",
                                "gradient_accumulation_steps=2", "run.sample.tokens=0"})
        arguments.insert(arguments.end(), {"--set", setting});
    const Ended whole = run(directory.path(), arguments);
    ASSERT_EQ(whole.code, 0) << whole.errors;
    EXPECT_EQ(whole.errors.find("given up"), std::string::npos) << whole.errors;
    const json wanted = json::parse(whole.output);

    const LimitedGroup group(wanted["peak_rss_bytes"].get<std::uint64_t>() / 2);
    if (!group.is_there()) GTEST_SKIP() << "no control group with a limit can be made here";
    std::filesystem::remove_all(directory / "run");
    std::filesystem::remove_all(directory / "swap");
    const Ended half = run_command(directory.path(), group.within(penstock(arguments)));
    ASSERT_EQ(half.code, 0) << half.errors;
    EXPECT_NE(half.errors.find("calls of units were given up"), std::string::npos) << half.errors;
    EXPECT_EQ(json::parse(half.output)["final_loss"], wanted["final_loss"]);
    std::printf("wants %.0f MiB; within %.0f MiB: peak RSS %.0f MiB\n", wanted["peak_rss_bytes"].get<double>() / mib,
                wanted["peak_rss_bytes"].get<double>() / mib / 2,
                json::parse(half.output)["peak_rss_bytes"].get<double>() / mib);
}

}  // namespace
}  // namespace penstock::testing
