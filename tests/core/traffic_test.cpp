#include "zero_infinity/traffic.h"

#include <gtest/gtest.h>

namespace penstock {
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
        {"split", all_nvme, 16, 12},      {"plain_fp32", all_nvme, 20, 12},     {"plain_bf16", all_nvme, 16, 14},
        {"split", weights_host, 10, 12},  {"plain_fp32", weights_host, 8, 12},  {"plain_bf16", weights_host, 12, 14},
        {"split", states_host, 6, 12},    {"plain_fp32", states_host, 12, 12},  {"plain_bf16", states_host, 4, 14},
        {"split", all_host, 0, 12},       {"plain_fp32", all_host, 0, 12},      {"plain_bf16", all_host, 0, 14},
        {"plain_fp16", all_nvme, 16, 14}, {"plain_fp16", weights_host, 12, 14},
    };
    for (const Row& row : rows) {
        const StateFormat format{find_codec(row.codec), 2};
        const Traffic result = traffic(format, UpdateOrder::after_backward, Durability::every_step, row.residency);
        EXPECT_EQ(result.read_bytes, row.read_bytes) << row.codec;
        EXPECT_EQ(result.write_bytes, row.write_bytes) << row.codec;
        EXPECT_EQ(result.total(), row.read_bytes + row.write_bytes) << row.codec;
    }
}

TEST(Traffic, CountsTheMomentsThatTheOptimizerKeeps) {
    const StateFormat one_moment{&split_codec(), 1};
    const Traffic result = traffic(one_moment, UpdateOrder::after_backward, Durability::every_step, {});
    EXPECT_EQ(result.total(), 20);
}

}  // namespace
}  // namespace penstock
