// Bytes that the devices moved against the formula of codec, order, durability and residency.
#include "tests/zero_infinity/engine/run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <string>

namespace penstock::testing {
namespace {

// A model large enough that granules and manifests are below a per cent, of many units so that the turn is small.
RunOptions traffic_run(const std::string& directory, zero::Residency residency) {
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
    zero::Residency residency;
    double bytes_per_param;
};

void tell(const std::string& name, const RunResult& run, std::uint64_t steps, double formula) {
    const auto per_param = [&](std::uint64_t bytes) {
        return static_cast<double>(bytes) / static_cast<double>(steps) / static_cast<double>(run.trainable_numel);
    };
    std::printf("%s: %.3f bytes per parameter and step, %.3f as the kernel counts, formula %.3f\n", name.c_str(),
                per_param(run.read_bytes + run.write_bytes), per_param(run.kernel_read_bytes + run.kernel_write_bytes),
                formula);
}

const char* tier_name(zero::Tier tier) {
    return tier == zero::Tier::nvme ? "NVMe" : "host";
}

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
    EXPECT_NEAR(per_param / GetParam().bytes_per_param, 1.0, 0.01);
    tell(GetParam().name, run, options.steps, GetParam().bytes_per_param);
}

// The mean over four steps, of which the last commits.
TEST(TrafficOf, DurabilityWritesResidentsWhereTheFormulaSays) {
    for (const zero::Residency residency :
         {zero::Residency{zero::Tier::nvme, zero::Tier::nvme}, zero::Residency{zero::Tier::host, zero::Tier::nvme},
          zero::Residency{zero::Tier::nvme, zero::Tier::host}, zero::Residency{zero::Tier::host, zero::Tier::host}}) {
        for (const zero::Durability durability :
             {zero::Durability::every_step, zero::Durability{4}, zero::Durability::scratch}) {
            const TemporaryDirectory directory;
            RunOptions options = traffic_run(directory.path(), residency);
            options.session.durability = durability;
            options.steps = 4;
            const RunResult run = run_toy(options);
            SCOPED_TRACE(durability.commit_steps);
            EXPECT_EQ(run.read_bytes, 4 * run.predicted.read);
            const double measured = static_cast<double>(run.read_bytes + run.write_bytes) / 4;
            const double planned = run.planned_bytes;
            EXPECT_NEAR(measured - planned, 0, 0.01 * planned) << "the manifests are on top";
            const double formula = traffic({&zero::split_codec(), 2}, durability, residency).total();
            EXPECT_EQ(run.formula_bytes, formula);
            const double per_param = measured / static_cast<double>(run.trainable_numel);
            EXPECT_NEAR(per_param, formula, 0.01 * formula);
            tell(fmt::format("split, weights {}, states {}, commits every {} steps (0: scratch)",
                             tier_name(residency.weights), tier_name(residency.states), durability.commit_steps),
                 run, options.steps, formula);
        }
    }
}

constexpr zero::Residency on_nvme{zero::Tier::nvme, zero::Tier::nvme};
constexpr zero::Residency weights_in_host_memory{zero::Tier::host, zero::Tier::nvme};
constexpr zero::Residency in_host_memory{zero::Tier::host, zero::Tier::host};

INSTANTIATE_TEST_SUITE_P(
    Residencies, TrafficOf,
    ::testing::Values(Expected{"split_on_nvme", "split", on_nvme, 28},
                      Expected{"split_weights_in_host_memory", "split", weights_in_host_memory, 22},
                      Expected{"split_in_host_memory", "split", in_host_memory, 12},
                      Expected{"compact_on_nvme", "compact", on_nvme, 14.25},
                      Expected{"compact_weights_in_host_memory", "compact", weights_in_host_memory, 8.25},
                      Expected{"compact_in_host_memory", "compact", in_host_memory, 5.125}),
    [](const auto& instance) { return std::string(instance.param.name); });

// Forward and update read weights once for both, or forward finds them made; but for the last update, which no forward
// follows, or the first forward.
class DeferredTraffic : public ::testing::TestWithParam<Expected> {};

TEST_P(DeferredTraffic, ReadsWeightsOnceLess) {
    const TemporaryDirectory directory;
    RunOptions options = traffic_run(directory.path(), GetParam().residency);
    options.session.codec = GetParam().codec;
    options.session.update_order = zero::UpdateOrder::deferred;
    run_toy(options);  // as below: no code is loaded from here on
    const std::uint64_t before = options.steps;
    options.steps = before + 20;
    const RunResult run = run_toy(options);
    EXPECT_EQ(run.formula_bytes, GetParam().bytes_per_param);
    const auto last = static_cast<double>(run.read_bytes - 20 * run.predicted.read);
    EXPECT_NEAR(last / static_cast<double>(run.trainable_numel), 2, 0.02) << "of the last update";
    const double numel = static_cast<double>(run.trainable_numel) * 20;
    EXPECT_NEAR(static_cast<double>(run.read_bytes + run.write_bytes) / numel / run.formula_bytes, 1, 0.01);
    if (run.kernel_read_bytes == 0) GTEST_SKIP() << "this file system is not counted in /proc/self/io";
    EXPECT_NEAR(static_cast<double>(run.kernel_read_bytes + run.kernel_write_bytes) / numel / run.formula_bytes, 1,
                0.01);
    tell(std::string(GetParam().name) + ", deferred", run, 20, run.formula_bytes);
}

INSTANTIATE_TEST_SUITE_P(Codecs, DeferredTraffic,
                         ::testing::Values(Expected{"split", "split", on_nvme, 26},
                                           Expected{"plain_bf16", "plain_bf16", on_nvme, 28}),
                         [](const auto& instance) { return std::string(instance.param.name); });

// It finds the weights where backward has them, a device's memory included.
TEST(TrafficOf, AnUpdateInBackwardReadsStatesOnly) {
    for (const zero::DeviceKind device : {zero::DeviceKind::cpu, zero::DeviceKind::emulated}) {
        for (const auto& [codec, bytes] : {std::pair{"split", 26.0}, {"plain_bf16", 30.0}}) {
            const TemporaryDirectory directory;
            RunOptions options = traffic_run(directory.path(), on_nvme);
            options.session.codec = codec;
            options.session.update_order = zero::UpdateOrder::within;
            options.session.engine.gradient_clipping = 0;
            options.session.device.kind = device;
            if (device != zero::DeviceKind::cpu) options.session.device.budget_bytes = 2 << 20;  // of some units
            const RunResult run = run_toy(options);
            EXPECT_EQ(run.formula_bytes, bytes);
            EXPECT_EQ(run.read_bytes, options.steps * run.predicted.read);
            const double numel = static_cast<double>(run.trainable_numel) * static_cast<double>(options.steps);
            EXPECT_NEAR(static_cast<double>(run.read_bytes + run.write_bytes) / numel / bytes, 1, 0.01);
            tell(fmt::format("{}, in backward, {}", codec, word_of(device)), run, options.steps, bytes);
        }
    }
}

// Each unit moves what its order says; what was deferred of the last step, of which no forward comes, is read at the
// end.
TEST(TrafficOf, ABalancedStepReadsWhatItsUnitsOrdersSay) {
    for (const auto& [codec, bytes] : {std::pair{"split", 26.0}, {"plain_bf16", 29.0}}) {
        const TemporaryDirectory directory;
        RunOptions options = traffic_run(directory.path(), on_nvme);
        options.session.codec = codec;
        options.session.update_order = zero::UpdateOrder::within;
        options.session.deferred_share = 0.5;
        options.session.engine.gradient_clipping = 0;
        options.steps = 10;
        const RunResult run = run_toy(options);
        EXPECT_NEAR(run.formula_bytes, bytes, 0.05);
        const auto of_last = static_cast<double>(run.read_bytes - options.steps * run.predicted.read);
        EXPECT_NEAR(of_last / static_cast<double>(run.trainable_numel), 1, 0.05) << "weights of half of the units";
        const double numel = static_cast<double>(run.trainable_numel) * static_cast<double>(options.steps);
        EXPECT_NEAR((static_cast<double>(run.read_bytes + run.write_bytes) - of_last) / numel / run.formula_bytes, 1,
                    0.01);
        tell(std::string(codec) + ", balanced", run, options.steps, run.formula_bytes);
    }
}

TEST(TrafficOf, GradientsOnNvmeAreWrittenOnceAndReadOnce) {
    for (const std::size_t micro_batches : {1, 4}) {
        const TemporaryDirectory directory;
        RunOptions options = traffic_run(directory.path(), on_nvme);
        options.session.codec = "split";
        options.session.gradient_type = zero::PlaneType::bf16;
        options.session.gradients = zero::GradientTier::nvme;
        options.micro_batches = micro_batches;
        const RunResult run = run_toy(options);
        EXPECT_EQ(run.read_bytes, options.steps * run.predicted.read);
        EXPECT_NEAR(run.formula_bytes, 32, 0.5) << "what borrows, or lends later, stays in host memory";
        const double numel = static_cast<double>(run.trainable_numel) * static_cast<double>(options.steps);
        EXPECT_NEAR(static_cast<double>(run.read_bytes + run.write_bytes) / numel / run.formula_bytes, 1, 0.01);
        tell(fmt::format("split, gradients on NVMe, {} micro-batches", micro_batches), run, options.steps,
             run.formula_bytes);
    }
}

// The counters of Io are those of the kernel's block layer.
TEST(TrafficOf, TheKernelCountsTheSameBytes) {
    const TemporaryDirectory directory;
    RunOptions options = traffic_run(directory.path(), {zero::Tier::nvme, zero::Tier::nvme});
    run_toy(options);  // from here on no code is loaded, which would be counted as well
    options.steps = 6;
    const RunResult run = run_toy(options);
    if (run.kernel_read_bytes == 0) GTEST_SKIP() << "this file system is not counted in /proc/self/io";
    const auto ratio = [](std::uint64_t a, std::uint64_t b) { return static_cast<double>(a) / static_cast<double>(b); };
    EXPECT_NEAR(ratio(run.kernel_read_bytes, run.read_bytes), 1.0, 0.01);
    EXPECT_NEAR(ratio(run.kernel_write_bytes, run.write_bytes), 1.0, 0.01);
}

}  // namespace
}  // namespace penstock::testing
