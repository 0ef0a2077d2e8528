// Bytes that the devices moved against the formula of codec, order, durability and residency.
#include "tests/engine/run.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>

namespace penstock::testing {
namespace {

// A model large enough that granules and manifests are below a per cent, of many units so that the turn is small.
RunOptions traffic_run(const std::string& directory, Residency residency) {
    RunOptions options = toy_run(directory);
    options.model = {.vocabulary = 64, .width = 128, .heads = 4, .layers = 24};
    options.session.tile_numel = 65536;
    options.session.host_budget_bytes = 128 << 20;
    options.session.prefetch_depth = 0;
    options.session.residency = residency;
    options.steps = 3;
    return options;
}

struct Expected {
    const char* name;
    const char* codec;
    Residency residency;
    double bytes_per_param;
};

class TrafficOf : public ::testing::TestWithParam<Expected> {};

TEST_P(TrafficOf, CodecMovesTheBytesOfTheFormula) {
    const TemporaryDirectory directory;
    RunOptions options = traffic_run(directory.path(), GetParam().residency);
    options.session.codec = GetParam().codec;
    const RunResult run = run_toy(options);
    const double steps = static_cast<double>(options.steps);
    const double measured = static_cast<double>(run.read_bytes + run.write_bytes) / steps;
    EXPECT_NEAR(measured / run.planned_bytes, 1.0, 0.01);
    EXPECT_EQ(run.read_bytes, run.predicted.read * options.steps) << "reads are predicted to the byte";
    const double per_param = measured / static_cast<double>(run.trainable_numel);
    std::printf("%s: %.3f bytes per parameter and step, formula %.3f\n", GetParam().name, per_param,
                GetParam().bytes_per_param);
    EXPECT_NEAR(per_param / GetParam().bytes_per_param, 1.0, 0.01);
}

// The mean over four steps, of which the last commits.
TEST(TrafficOf, DurabilityWritesResidentsWhereTheFormulaSays) {
    for (const Residency residency : {Residency{Tier::nvme, Tier::nvme}, Residency{Tier::host, Tier::nvme},
                                      Residency{Tier::nvme, Tier::host}, Residency{Tier::host, Tier::host}}) {
        for (const Durability durability : {Durability::every_step, Durability{4}, Durability::scratch}) {
            const TemporaryDirectory directory;
            RunOptions options = traffic_run(directory.path(), residency);
            options.session.engine.durability = durability;
            options.steps = 4;
            const RunResult run = run_toy(options);
            SCOPED_TRACE(durability.commit_steps);
            EXPECT_EQ(run.read_bytes, 4 * run.predicted.read);
            const double measured = static_cast<double>(run.read_bytes + run.write_bytes) / 4;
            const double planned = run.planned_bytes;
            EXPECT_NEAR(measured - planned, 0, 0.01 * planned) << "the manifests are on top";
            const double formula =
                traffic({&split_codec(), 2}, UpdateOrder::after_backward, durability, residency).total();
            EXPECT_EQ(run.formula_bytes, formula);
            const double per_param = measured / static_cast<double>(run.trainable_numel);
            EXPECT_NEAR(per_param, formula, 0.01 * formula);
        }
    }
}

constexpr Residency on_nvme{Tier::nvme, Tier::nvme};
constexpr Residency weights_in_host_memory{Tier::host, Tier::nvme};
constexpr Residency in_host_memory{Tier::host, Tier::host};

INSTANTIATE_TEST_SUITE_P(
    Residencies, TrafficOf,
    ::testing::Values(Expected{"split_on_nvme", "split", on_nvme, 28},
                      Expected{"split_weights_in_host_memory", "split", weights_in_host_memory, 22},
                      Expected{"split_in_host_memory", "split", in_host_memory, 12},
                      Expected{"compact_on_nvme", "compact", on_nvme, 14.25},
                      Expected{"compact_weights_in_host_memory", "compact", weights_in_host_memory, 8.25},
                      Expected{"compact_in_host_memory", "compact", in_host_memory, 5.125}),
    [](const auto& instance) { return std::string(instance.param.name); });

std::uint64_t process_io(const std::string& key) {
    std::ifstream file("/proc/self/io");
    std::string name;
    std::uint64_t value = 0;
    while (file >> name >> value)
        if (name == key + ":") return value;
    return 0;
}

// The counters of Io are those of the kernel's block layer.
TEST(TrafficOf, TheKernelCountsTheSameBytes) {
    const TemporaryDirectory directory;
    RunOptions options = traffic_run(directory.path(), {Tier::nvme, Tier::nvme});
    run_toy(options);  // initialise
    options.steps = 6;
    const std::uint64_t read_before = process_io("read_bytes");
    const std::uint64_t written_before = process_io("write_bytes");
    const RunResult run = run_toy(options);
    const auto read = static_cast<double>(process_io("read_bytes") - read_before);
    const auto written = static_cast<double>(process_io("write_bytes") - written_before);
    if (read == 0) GTEST_SKIP() << "this file system is not counted in /proc/self/io";
    EXPECT_NEAR(read / static_cast<double>(run.read_bytes), 1.0, 0.01);
    EXPECT_NEAR(written / static_cast<double>(run.write_bytes), 1.0, 0.01);
}

}  // namespace
}  // namespace penstock::testing
