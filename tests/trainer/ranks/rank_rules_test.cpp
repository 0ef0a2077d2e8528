#include "trainer/ranks/rank_rules.h"

#include "aio/words/error.h"
#include "tests/refusal.h"
#include "tests/zero_infinity/ranks/thread_ranks.h"
#include "trainer/config/settings.h"
#include "zero_infinity/ranks/collectives.h"

#include <gtest/gtest.h>

namespace penstock::trainer {
namespace {

TrainConfig config_of(std::int64_t ranks, const std::vector<std::string>& more = {}) {
    return make_config(Settings::parse(R"({"data": {"train": "x"}, "memory": {"host_budget": "64MiB"},
        "run": {"swap_directory": "swap", "directory": "run", "steps": 3}})",
                                       "c.json", more),
                       ranks);
}

TEST(RankRules, OneProcessKeepsWhatItHas) {
    TrainConfig config = config_of(1, {"keep.every=2", "memory.gradients=nvme", "gradient_clipping=0"});
    EXPECT_TRUE(fit_to_ranks(config, {"--plan"}).empty());
    EXPECT_EQ(config.session.gradients, zero::GradientTier::nvme);
    EXPECT_EQ(config.session.update_order, zero::UpdateOrder::within);
}

TEST(RankRules, WhatComesLaterIsNamed) {
    TrainConfig config = config_of(2, {"keep.every=2", "memory.gradients=nvme"});
    EXPECT_EQ(refusal_of(ExitCode::usage, [&] { fit_to_ranks(config, {"--plan"}); }),
              "--plan, memory.gradients \"nvme\" with 2 processes: comes later; leave out what is named");
}

TEST(RankRules, WhatDecidesNoBitIsTakenAsItIsDoneAndTold) {
    TrainConfig config = config_of(
        2, {"gradient_clipping=0", "run.update_order=deferred", "zero_optimization.offload_param.device=nvme"});
    const std::vector<std::string> lines = fit_to_ranks(config, {});
    EXPECT_EQ(config.session.update_order, zero::UpdateOrder::after_backward);
    EXPECT_EQ(config.session.gradients, zero::GradientTier::host);
    ASSERT_EQ(lines.size(), 2U);
    EXPECT_EQ(lines[0],
              "with 2 processes each keeps all weights in host memory, and 1/2 of the states in a store of its own");
    EXPECT_EQ(lines[1], "run.update_order is \"after_backward\" with 2 processes: the bits are the same");
}

TEST(RankRules, TheTotalBatchIsOfAllRanks) {
    const TrainConfig config = config_of(3, {"train_batch_size=24", "train_micro_batch_size_per_gpu=2"});
    EXPECT_EQ(config.micro_batches, 4);
    EXPECT_EQ(config.tokens_per_step(), 24 * config.model.context);
}

// Each rank hears the same words.
TEST(RankRules, KeysDataAndPlacesThatDifferAreNamed) {
    testing::ThreadRanks transports(3);
    const auto agreed = [&](const std::function<void(std::uint32_t rank, TrainConfig&, std::string & hash)>& change) {
        return testing::run_ranks(3, [&](std::uint32_t rank) {
            TrainConfig config = config_of(3);
            std::string hash = "abc";
            change(rank, config, hash);
            zero::Collectives all(transports.of(rank));
            agree_on_run(all, config, hash);
        });
    };
    EXPECT_EQ(agreed([](std::uint32_t, TrainConfig&, std::string&) {}), std::vector<std::string>(3));
    const auto other_data = agreed([](std::uint32_t rank, TrainConfig&, std::string& hash) {
        if (rank == 1) hash = "abd";
    });
    EXPECT_NE(other_data[0].find("the contents of data.train abd, the others have abc"), std::string::npos)
        << other_data[0];
    EXPECT_EQ(other_data, std::vector<std::string>(3, other_data[0]));
    const auto other_key = agreed([](std::uint32_t rank, TrainConfig& config, std::string&) {
        if (rank == 2) config = config_of(3, {"run.seed=7"});
    });
    EXPECT_NE(other_key[0].find("run.seed 7, the others have 1"), std::string::npos) << other_key[0];
}

TEST(RankRules, RanksThatMayUseTheSameCoresShareThem) {
    zero::LocalCommunicator alone;
    const unsigned all = cores_of_rank(alone);
    testing::ThreadRanks transports(2);
    std::vector<unsigned> shares(2);
    testing::run_ranks(2, [&](std::uint32_t rank) {
        zero::Collectives both(transports.of(rank));
        shares[rank] = cores_of_rank(both);
    });
    EXPECT_EQ(shares, std::vector<unsigned>(2, std::max(1U, all / 2)));
}

}  // namespace
}  // namespace penstock::trainer
