#include "bench/step/step_ideal.h"

#include "tests/zero_infinity/order/small_layout.h"
#include "zero_infinity/codec/codec.h"
#include "zero_infinity/order/step_order.h"

#include <gtest/gtest.h>

namespace penstock::bench {
namespace {

using zero::Durability;
using zero::Residency;
using zero::Tier;

constexpr Residency on_nvme{Tier::nvme, Tier::nvme};

StepTraffic split(StepWay order, Residency residency = on_nvme) {
    return traffic_of({.codec = &zero::split_codec()}, Durability::every_step, residency, order, 10);
}

double sum(std::span<const StepPhase> phases, double StepPhase::*member) {
    double sum = 0;
    for (const StepPhase& phase : phases) sum += phase.*member;
    return sum;
}

TEST(StepIdeal, PhasesMoveWhatTheStepMoves) {
    const StepCompute compute{.forward = 1, .backward = 2, .update = 4, .rest = 0.5};
    for (const zero::Codec* codec : {&zero::split_codec(), &zero::plain_fp32_codec(), &zero::plain_bf16_codec()}) {
        for (const StepWay order : {StepWay::after_backward, StepWay::deferred, StepWay::within}) {
            const StepTraffic traffic = traffic_of({.codec = codec}, Durability::every_step, on_nvme, order, 10);
            const auto phases = phases_of(order, compute, traffic);
            EXPECT_EQ(phases.size(), order == StepWay::after_backward ? 3U : 2U);
            EXPECT_DOUBLE_EQ(sum(phases, &StepPhase::compute), 7.5);
            EXPECT_DOUBLE_EQ(sum(phases, &StepPhase::read), traffic.read);
            EXPECT_DOUBLE_EQ(sum(phases, &StepPhase::write), traffic.write);
            for (const StepPhase& phase : phases) EXPECT_GE(phase.read, 0);
        }
    }
}

// Two seconds of compute and one of transfers, each at half its speed until the transfers are done.
TEST(StepIdeal, WhatSlowsEachOtherDownTakesLonger) {
    const StepPhase phases[] = {{.compute = 2, .read = 100}};
    const DeviceRates rates{.read = 100, .write = 100, .both = 100};
    EXPECT_DOUBLE_EQ(contended_seconds(phases, rates, {}), ideal_seconds(phases, rates));
    EXPECT_DOUBLE_EQ(contended_seconds(phases, rates, {.compute = 0.5, .device = 0.5}), 3);
    EXPECT_DOUBLE_EQ(contended_seconds(phases, rates, {.compute = 0.5, .device = 0.1}), 4 + 0.6);
}

// Four seconds of compute, two of transfers; what is written is on the drive after one second, or after eight.
TEST(StepIdeal, WhatIsWrittenIsDurableAtTheEnd) {
    const StepPhase phases[] = {{.compute = 1, .read = 100}, {.compute = 3, .write = 80}};
    const DeviceRates rates{.read = 100, .write = 80, .both = 100};
    EXPECT_DOUBLE_EQ(durable_seconds(phases, rates, 80), 4);
    EXPECT_DOUBLE_EQ(durable_seconds(phases, rates, 10), 8);
    EXPECT_DOUBLE_EQ(durable_seconds({phases, 1}, rates, 0), 1);
}

// Sees in which phase a StepOrder has the one unit of a model updated: in forward, in backward or after them.
class Watcher final : public zero::StepHands {
   public:
    std::span<const zero::Visit> expected() const override { return visits_; }
    void begin(const zero::BegunUpdate&) override {}
    void update(std::uint32_t) override { of_update = phase; }
    void end_of_residents() override {}
    void end_of_step() override {}
    void begin_commit() override {}
    void finish_commit() override {}
    void finish_writes() override {}
    void undo(const std::vector<std::uint32_t>&) override {}
    std::size_t phase = 0, of_update = 0;

   private:
    std::vector<zero::Visit> visits_{{{0}}, {{0}}};
};

std::size_t phase_of_update(StepWay way) {
    const zero::ModelLayout layout = testing::layout_of({4096});
    Watcher watcher;
    zero::StepOrder steps(layout, {.order = order_of(way)}, watcher);
    for (int step = 0; step < 3; ++step) {
        if (steps.may_begin(false)) steps.begin(true);
        for (watcher.phase = 0; watcher.phase < 2; ++watcher.phase) steps.arrive(watcher.expected()[0].units);
        watcher.phase = 1;
        steps.depart(0);
        watcher.phase = 2;
        steps.finish();
        steps.drop_idle();
        const zero::Ended ended = steps.begun() ? steps.end_begun(false) : steps.end(true, {true});
        if (ended == zero::Ended::whole) steps.finish();
    }
    return watcher.of_update;
}

TEST(StepIdeal, TheUpdateIsInThePhaseInWhichTheOrderOfStepsHasIt) {
    for (const StepWay way : {StepWay::after_backward, StepWay::deferred, StepWay::within}) {
        const auto phases = phases_of(way, {}, split(way));
        for (std::size_t i = 0; i < phases.size(); ++i)
            EXPECT_EQ(phases[i].write > 0, i == phase_of_update(way)) << word_of(way) << " " << i;
    }
}

// Split moves 2 + 2 + 12 bytes of reads per parameter, and 12 of writes.
TEST(StepIdeal, TheUpdateStandsWhereItsOrderHasIt) {
    const StepCompute compute{.forward = 1, .backward = 2, .update = 4};
    const auto after = phases_of(StepWay::after_backward, compute, split(StepWay::after_backward));
    EXPECT_EQ(after[0].read, 20);
    EXPECT_EQ(after[1].read, 20);
    EXPECT_EQ(after[2].read, 120);
    EXPECT_EQ(after[2].write, 120);
    EXPECT_EQ(after[2].compute, 4);
    const auto deferred = phases_of(StepWay::deferred, compute, split(StepWay::deferred));
    EXPECT_EQ(deferred[0].read, 120);
    EXPECT_EQ(deferred[0].write, 120);
    EXPECT_EQ(deferred[0].compute, 5);
    EXPECT_EQ(deferred[1].read, 20);
    const auto within = phases_of(StepWay::within, compute, split(StepWay::within));
    EXPECT_EQ(within[0].read, 20);
    EXPECT_EQ(within[1].read, 120);
    EXPECT_EQ(within[1].compute, 6);
}

TEST(StepIdeal, ABalancedStepIsOnePhase) {
    const StepCompute compute{.forward = 1, .backward = 2, .update = 4, .rest = 0.5};
    for (const double share : {0.0, 0.5}) {
        const StepTraffic traffic = traffic_of({.codec = &zero::plain_bf16_codec()}, Durability::every_step, on_nvme,
                                               StepWay::balanced, 10, share);
        const auto phases = phases_of(StepWay::balanced, compute, traffic);
        ASSERT_EQ(phases.size(), 1U);
        EXPECT_DOUBLE_EQ(phases[0].compute, 7.5);
        EXPECT_DOUBLE_EQ(phases[0].read, 160 - share * 20);
        EXPECT_DOUBLE_EQ(phases[0].write, 140);
    }
}

TEST(StepIdeal, AnUpdateThatIsMadeAgainIsBesideTheNextForward) {
    const StepCompute compute{.forward = 1, .backward = 2, .update = 4};
    const auto phases = phases_of(StepWay::within, compute, split(StepWay::within), 0.25);
    ASSERT_EQ(phases.size(), 3U);
    EXPECT_EQ(phases[0].compute, 0.75);
    EXPECT_EQ(phases[0].read, 15);
    EXPECT_EQ(phases[0].write, 0);
    EXPECT_EQ(phases[2].compute, 0.25 * 5);
    EXPECT_EQ(phases[2].read, 0.25 * (20 + 100));
    EXPECT_EQ(phases[2].write, 30);
}

TEST(StepIdeal, WhatIsInHostMemoryIsNotRead) {
    const auto phases =
        phases_of(StepWay::after_backward, {}, split(StepWay::after_backward, {Tier::host, Tier::nvme}));
    EXPECT_EQ(phases[0].read, 0);
    EXPECT_EQ(phases[1].read, 0);
    EXPECT_EQ(phases[2].read, 100);
}

TEST(StepIdeal, APhaseTakesAsLongAsTheLongerOfItsComputeAndItsTransfers) {
    const DeviceRates rates{.read = 10, .write = 5, .both = 12};
    EXPECT_DOUBLE_EQ(transfer_seconds({.read = 100}, rates), 10);
    EXPECT_DOUBLE_EQ(transfer_seconds({.write = 100}, rates), 20);
    EXPECT_DOUBLE_EQ(transfer_seconds({.read = 100, .write = 50}, rates), 12.5);
    const std::vector<StepPhase> phases = {{.compute = 3, .read = 10}, {.compute = 1, .read = 100}};
    EXPECT_DOUBLE_EQ(ideal_seconds(phases, rates), 13);
    EXPECT_DOUBLE_EQ(least_seconds(phases, rates), 11);
}

TEST(StepIdeal, WhatMovesIsHashed) {
    const StepCompute compute{.forward = 1, .hash_per_byte = 0.1};
    const auto phases = phases_of(StepWay::after_backward, compute, split(StepWay::after_backward));
    EXPECT_DOUBLE_EQ(phases[0].compute, 3);
    EXPECT_DOUBLE_EQ(phases[2].compute, 24);
}

}  // namespace
}  // namespace penstock::bench
