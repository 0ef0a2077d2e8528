#include "trainer/config/optimizer_config.h"
#include "aio/words/error.h"

#include "tests/refusal.h"
#include "trainer/config/config.h"
#include "trainer/config/key_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>

namespace penstock::trainer {
namespace {

TrainConfig config(std::vector<std::string> overrides) {
    overrides.push_back("run.swap_directory=s");
    return make_config(Settings::parse(R"({"data": {"train": "x"}, "memory": {"host_budget": "64MiB"},
                                           "run": {"directory": "r", "steps": 30}})",
                                       "test.json", overrides));
}

std::string refusal(const std::vector<std::string>& overrides) {
    return refusal_of(ExitCode::usage, [&] { config(overrides); });
}

std::string name_of(std::vector<std::string> overrides) {
    return make_optimizers(config(std::move(overrides)).optimizer).others().name();
}

TEST(OptimizerConfig, ChoosesTheOptimizerAsDeepSpeedDoes) {
    EXPECT_EQ(name_of({}), "adamw");
    EXPECT_EQ(name_of({"optimizer.type=AdamW"}), "adamw");
    EXPECT_EQ(name_of({"optimizer.type=Adam"}), "adamw");
    EXPECT_EQ(name_of({"optimizer.type=Adam", "optimizer.params.adam_w_mode=true"}), "adamw");
    EXPECT_EQ(name_of({"optimizer.type=Adam", "optimizer.params.adam_w_mode=false"}), "adam");
    EXPECT_EQ(name_of({"optimizer.type=SGD"}), "sgd");
    EXPECT_EQ(name_of({"optimizer.type=Lion"}), "lion");
    EXPECT_EQ(name_of({"optimizer.type=Adagrad"}), "adagrad");
}

TEST(OptimizerConfig, DefaultsFollowTheType) {
    EXPECT_EQ(config({}).optimizer.others.betas[1], 0.999);
    EXPECT_EQ(config({}).optimizer.others.epsilon, 1e-8);
    EXPECT_EQ(config({"optimizer.type=Lion"}).optimizer.others.betas[1], 0.99);
    EXPECT_EQ(config({"optimizer.type=Adagrad"}).optimizer.others.epsilon, 1e-10);
    EXPECT_EQ(config({"optimizer.type=Lion", "optimizer.params.betas=[0.8, 0.7]"}).optimizer.others.betas[1], 0.7);
}

// A parameter of a row that is no key could never be said, and a key of no row would be refused whatever the optimizer.
TEST(OptimizerConfig, TheParametersOfAllOptimizersAreTheKeys) {
    std::set<std::string_view> params{"lr", "adam_w_mode"};
    for (const zero::OptimizerKind& kind : zero::optimizer_kinds)
        std::ranges::copy_if(kind.params, std::inserter(params, params.end()), [](auto name) { return !name.empty(); });
    const std::vector<std::string_view> known = words_of_section("optimizer.params", Client::program);
    EXPECT_EQ(params, std::set<std::string_view>(known.begin(), known.end()));
}

TEST(OptimizerConfig, EveryParameterReachesItsOptimizer) {
    const OptimizerParams sgd =
        config({"optimizer.type=SGD", "optimizer.params.lr=0.5", "optimizer.params.weight_decay=0.1",
                "optimizer.params.momentum=0.9", "optimizer.params.dampening=0.2"})
            .optimizer.others;
    EXPECT_EQ(sgd.learning_rate, 0.5);
    EXPECT_EQ(sgd.weight_decay, 0.1);
    EXPECT_EQ(sgd.momentum, 0.9);
    EXPECT_EQ(sgd.dampening, 0.2);
    const TrainConfig nesterov =
        config({"optimizer.type=SGD", "optimizer.params.momentum=0.9", "optimizer.params.nesterov=true"});
    EXPECT_TRUE(nesterov.optimizer.others.nesterov);
    EXPECT_EQ(make_optimizers(nesterov.optimizer).moments(), 1U);
    const OptimizerConfig adagrad = config({"optimizer.type=Adagrad", "optimizer.params.lr_decay=0.1",
                                            "optimizer.params.initial_accumulator_value=0.5"})
                                        .optimizer;
    EXPECT_EQ(adagrad.others.lr_decay, 0.1);
    EXPECT_EQ(make_optimizers(adagrad).others().initial_moment(0), 0.5F);
}

TEST(OptimizerConfig, RefusesWhatTheTypeDoesNotHaveWithTheListOfWhatItHas) {
    EXPECT_EQ(refusal({"optimizer.params.momentum=0.9"}),
              "test.json: optimizer.params.momentum is no parameter of optimizer.type \"AdamW\", which has lr, betas, "
              "eps, weight_decay");
    EXPECT_EQ(refusal({"optimizer.type=Lion", "optimizer.params.eps=1e-8"}),
              "test.json: optimizer.params.eps is no parameter of optimizer.type \"Lion\", which has lr, betas, "
              "weight_decay");
    EXPECT_NE(refusal({"optimizer.type=SGD", R"(optimizer.groups=[{"params": "*", "lr": 1, "eps": 1e-8}])"})
                  .find("optimizer.groups[0].eps is no parameter of optimizer.type \"SGD\""),
              std::string::npos);
    EXPECT_NE(refusal({"optimizer.type=RMSprop"})
                  .find("expected \"AdamW\" or \"Adam\" or \"SGD\" or \"Adagrad\" or \"Lion\""),
              std::string::npos);
}

TEST(OptimizerConfig, RefusesOptionsThatMakeNoSenseTogether) {
    EXPECT_NE(refusal({"optimizer.type=SGD", "optimizer.params.nesterov=true"}).find("optimizer sgd: momentum"),
              std::string::npos);
    EXPECT_NE(refusal({"optimizer.type=SGD", R"(optimizer.groups=[{"params": "*.norm", "momentum": 0.9}])"})
                  .find("'*.norm' keeps 1 moments and the others keep 0"),
              std::string::npos);
    EXPECT_NE(refusal({"optimizer.params.lr=0", R"(optimizer.groups=[{"params": "*.norm", "lr": 0.9}])"})
                  .find("needs an optimizer.params.lr greater than 0"),
              std::string::npos);
    EXPECT_EQ(refusal({"optimizer.params.lr=0", R"(optimizer.groups=[{"params": "*.norm", "weight_decay": 0.9}])"}),
              "accepted");
}

TEST(OptimizerConfig, AGroupHasItsOwnOptionsAndTheOthersForTheRest) {
    const OptimizerConfig made = config({"optimizer.params.lr=0.002", "optimizer.params.weight_decay=0.1",
                                         R"(optimizer.groups=[{"params": "*.norm", "weight_decay": 0},
                                     {"params": "head.*", "lr": 0.001, "betas": [0.8, 0.9], "eps": 1e-6}])"})
                                     .optimizer;
    ASSERT_EQ(made.groups.size(), 2U);
    EXPECT_EQ(made.groups[0].pattern, "*.norm");
    EXPECT_EQ(made.groups[0].options.weight_decay, 0.0);
    EXPECT_EQ(made.groups[0].options.betas[1], 0.999);
    EXPECT_EQ(made.groups[1].options.weight_decay, 0.1);
    EXPECT_EQ(made.groups[1].options.betas[0], 0.8);
    EXPECT_EQ(made.groups[1].options.betas[1], 0.9);
    EXPECT_EQ(made.groups[1].options.epsilon, 1e-6);
    const zero::ParameterGroups groups = make_optimizers(made);
    EXPECT_EQ(groups.group_of("blocks.1", "norm").learning_rate_factor, 1.0);
    EXPECT_EQ(groups.group_of("head", "weight").learning_rate_factor, 0.5);
    EXPECT_EQ(groups.group_of("blocks.1", "qkv").optimizer.get(), &groups.others());
}

}  // namespace
}  // namespace penstock::trainer
