#include "zero_infinity/plan/traffic.h"

#include <gtest/gtest.h>

namespace penstock::zero {
namespace {

struct Row {
    const char* codec;
    Residency residency;
    double read_bytes;
    double write_bytes;
};

// The table of the header.
TEST(Traffic, IsTheTableOfTheHeader) {
    constexpr Residency all_nvme{Tier::nvme, Tier::nvme};
    constexpr Residency weights_host{Tier::host, Tier::nvme};
    constexpr Residency states_host{Tier::nvme, Tier::host};
    constexpr Residency all_host{Tier::host, Tier::host};
    const Row rows[] = {
        {"split", all_nvme, 16, 12},         {"plain_fp32", all_nvme, 20, 12},
        {"plain_bf16", all_nvme, 16, 14},    {"split", weights_host, 10, 12},
        {"plain_fp32", weights_host, 8, 12}, {"plain_bf16", weights_host, 12, 14},
        {"split", states_host, 6, 12},       {"plain_fp32", states_host, 12, 12},
        {"plain_bf16", states_host, 4, 14},  {"split", all_host, 0, 12},
        {"plain_fp32", all_host, 0, 12},     {"plain_bf16", all_host, 0, 14},
        {"plain_fp16", all_nvme, 16, 14},    {"plain_fp16", weights_host, 12, 14},
        {"compact", all_nvme, 9.125, 5.125}, {"compact", weights_host, 3.125, 5.125},
        {"compact", states_host, 6, 5.125},  {"compact", all_host, 0, 5.125},
    };
    for (const Row& row : rows) {
        const StateFormat format{find_codec(row.codec), 2};
        const Traffic result = traffic(format, Durability::every_step, row.residency);
        EXPECT_EQ(result.read_bytes, row.read_bytes) << row.codec;
        EXPECT_EQ(result.write_bytes, row.write_bytes) << row.codec;
        EXPECT_EQ(result.total(), row.read_bytes + row.write_bytes) << row.codec;
    }
}

TEST(Traffic, CountsTheMomentsThatTheOptimizerKeeps) {
    const StateFormat one_moment{&split_codec(), 1};
    const Traffic result = traffic(one_moment, Durability::every_step, {});
    EXPECT_EQ(result.total(), 20);
}

TEST(Traffic, GradientsOnNvmeAreWrittenOnceAndReadOnce) {
    const StateFormat format{&split_codec(), 2};
    const Traffic result = traffic(format, Durability::every_step, {}, UpdateOrder::after_backward, 0, 4);
    EXPECT_EQ(result.read_bytes, 16 + 4);
    EXPECT_EQ(result.write_bytes, 12 + 4);
}

double bytes(const char* codec, Durability durability, Residency residency) {
    return traffic({find_codec(codec), 2}, durability, residency).total();
}

TEST(Traffic, ScratchDoesNotWriteWhatHostMemoryHolds) {
    constexpr Residency weights_host{Tier::host, Tier::nvme};
    EXPECT_EQ(bytes("split", Durability::scratch, weights_host), 20);
    EXPECT_EQ(bytes("compact", Durability::scratch, weights_host), 6.25);
    EXPECT_EQ(bytes("split", Durability::scratch, {Tier::host, Tier::host}), 0);
    EXPECT_EQ(bytes("split", Durability::scratch, {Tier::nvme, Tier::nvme}), 28);
    EXPECT_EQ(bytes("split", Durability::scratch, {Tier::nvme, Tier::host}), 6 + 2);
}

TEST(Traffic, CommitsEveryKStepsWriteResidentsOnceInK) {
    EXPECT_EQ(bytes("split", {4}, {Tier::host, Tier::host}), 3);
    EXPECT_EQ(bytes("split", {4}, {Tier::host, Tier::nvme}), 10 + 10 + 0.5);
    EXPECT_EQ(bytes("split", {4}, {Tier::nvme, Tier::nvme}), 28);
    EXPECT_EQ(bytes("compact", {2}, {Tier::host, Tier::nvme}), 3.125 + 3.125 + 1);
}

TEST(Traffic, OfABalancedStepIsBetweenThoseOfItsUnits) {
    const StateFormat plain{find_codec("plain_bf16"), 2};
    const auto total = [&](UpdateOrder order, double share) {
        return traffic(plain, Durability::every_step, {}, order, share).total();
    };
    EXPECT_EQ(total(UpdateOrder::deferred, 0.25), 28);
    EXPECT_EQ(total(UpdateOrder::within, 0), 30);
    EXPECT_EQ(total(UpdateOrder::within, 0.25), 29.5);
    EXPECT_EQ(total(UpdateOrder::within, 1), 28);
}

// Forward moves its part of the bytes.
TEST(Traffic, ABalancedShareDividesBytesAsComputeIsDivided) {
    const StateFormat split{&split_codec(), 2};
    const double recomputed = balanced_share(split, Durability::every_step, {}, forward_part_recomputed);
    EXPECT_NEAR(2 + recomputed * 22, 26.0 / 4, 1e-9);
    const double kept = balanced_share(split, Durability::every_step, {}, forward_part_kept);
    EXPECT_NEAR(2 + kept * 22, 26.0 / 3, 1e-9);
    const Residency weights_host{Tier::host, Tier::nvme};
    EXPECT_NEAR(balanced_share(split, Durability::every_step, weights_host, 0.25), 0.25, 1e-9);
    EXPECT_EQ(balanced_share(split, Durability::scratch, {Tier::host, Tier::host}, 0.25), 0) << "nothing moves";
    EXPECT_EQ(balanced_share(split, Durability::every_step, {}, 0), 0);
    EXPECT_EQ(balanced_share(split, Durability::every_step, {}, 1), 1);
}

}  // namespace
}  // namespace penstock::zero
