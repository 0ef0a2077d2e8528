#include "trainer/config/config.h"
#include "aio/words/error.h"
#include "tests/refusal.h"
#include "trainer/config/derived_settings.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace penstock::trainer {
namespace {

TrainConfig config_with(const std::vector<std::string>& overrides) {
    return make_config(Settings::parse(R"({"data": {"train": "x"}, "memory": {"host_budget": "64MiB"},
                                           "run": {"directory": "r", "steps": 30}})",
                                       "test.json", overrides));
}

TrainConfig config(std::vector<std::string> overrides) {
    overrides.push_back("run.swap_directory=s");
    return config_with(overrides);
}

std::string refusal(const std::vector<std::string>& overrides) {
    return refusal_of(ExitCode::usage, [&] { config_with(overrides); });
}

TEST(Config, DerivesBatchSizesAsDeepSpeedDoes) {
    const std::string total = "train_batch_size=12";
    const std::string micro = "train_micro_batch_size_per_gpu=3";
    const std::string steps = "gradient_accumulation_steps=4";
    const auto shape = [&](std::vector<std::string> overrides) {
        const TrainConfig made = config(std::move(overrides));
        return std::pair(made.micro_batch_rows, made.micro_batches);
    };
    EXPECT_EQ(shape({}), std::pair(std::int64_t{1}, std::int64_t{1}));
    EXPECT_EQ(shape({total}), std::pair(std::int64_t{12}, std::int64_t{1}));
    EXPECT_EQ(shape({micro}), std::pair(std::int64_t{3}, std::int64_t{1}));
    EXPECT_EQ(shape({steps}), std::pair(std::int64_t{1}, std::int64_t{4}));
    EXPECT_EQ(shape({total, micro}), std::pair(std::int64_t{3}, std::int64_t{4}));
    EXPECT_EQ(shape({total, steps}), std::pair(std::int64_t{3}, std::int64_t{4}));
    EXPECT_EQ(shape({micro, steps}), std::pair(std::int64_t{3}, std::int64_t{4}));
    EXPECT_EQ(shape({total, micro, steps}), std::pair(std::int64_t{3}, std::int64_t{4}));
}

TEST(Config, CommitsEveryStepUnlessToldOtherwise) {
    EXPECT_EQ(config({}).session.durability, zero::Durability::every_step);
    EXPECT_EQ(config({"run.commit_every=7"}).session.durability, zero::Durability{7});
    EXPECT_EQ(config({"run.commit_every=scratch"}).session.durability, zero::Durability::scratch);
    for (const char* bad : {"run.commit_every=0", "run.commit_every=never", "run.commit_every=auto"})
        EXPECT_NE(refusal({bad}).find("or \"scratch\""), std::string::npos) << refusal({bad});
    EXPECT_EQ(config({}).session.verify, store::VerifyScope::all);
    EXPECT_EQ(config({"run.verify=sample"}).session.verify, store::VerifyScope::sample);
    EXPECT_EQ(config({"run.verify=none"}).session.verify, store::VerifyScope::none);
}

TEST(Config, PlansForSnapshotsOnlyWhereTheyAreWanted) {
    EXPECT_FALSE(config({}).snapshots.planned);
    EXPECT_FALSE(config({}).session.snapshots);
    const SnapshotOptions every = config({"keep.every=5", "keep.last=2"}).snapshots;
    EXPECT_TRUE(every.planned);
    EXPECT_EQ(every.every, 5);
    EXPECT_EQ(every.last, 2U);
    EXPECT_EQ(every.folder, "s/kept");
    const TrainConfig folder = config({"keep.folder=f"});
    EXPECT_TRUE(folder.snapshots.planned);
    EXPECT_EQ(folder.snapshots.folder, "f");
    EXPECT_TRUE(folder.session.snapshots);
}

TEST(Config, RefusesBatchSizesThatDisagree) {
    EXPECT_NE(refusal({"train_batch_size=13", "train_micro_batch_size_per_gpu=3"})
                  .find("train_batch_size 13 is not a multiple"),
              std::string::npos);
    EXPECT_NE(
        refusal({"train_batch_size=12", "train_micro_batch_size_per_gpu=3", "gradient_accumulation_steps=5"})
            .find("train_batch_size 12 is not train_micro_batch_size_per_gpu 3 times gradient_accumulation_steps 5"),
        std::string::npos);
}

TEST(Config, KnowsEveryIoBackendByItsWord) {
    EXPECT_EQ(config({}).session.backend, std::nullopt);
    EXPECT_EQ(config({"run.io_backend=io_uring"}).session.backend, aio::BackendKind::io_uring);
    EXPECT_EQ(config({"run.io_backend=libaio"}).session.backend, aio::BackendKind::libaio);
    EXPECT_EQ(config({"run.io_backend=threads"}).session.backend, aio::BackendKind::threads);
}

TEST(Config, FindsTheStoresDirectory) {
    const std::string param = "zero_optimization.offload_param.nvme_path=/a";
    const std::string optimizer = "zero_optimization.offload_optimizer.nvme_path=/a";
    EXPECT_EQ(config_with({param}).swap_directory(), "/a");
    EXPECT_EQ(config_with({optimizer}).swap_directory(), "/a");
    EXPECT_EQ(config_with({param, optimizer}).swap_directory(), "/a");
    EXPECT_EQ(config_with({"run.swap_directory=/b"}).swap_directory(), "/b");
    EXPECT_NE(refusal({param, "zero_optimization.offload_optimizer.nvme_path=/b"}).find("there is one store"),
              std::string::npos);
    EXPECT_NE(refusal({param, "run.swap_directory=/b"}).find("there is one store"), std::string::npos);
    EXPECT_NE(refusal({}).find("no directory for the checkpoint store"), std::string::npos);
}

TEST(Config, AGraphBudgetWithoutKeptGraphsIsRefused) {
    EXPECT_NE(refusal({"run.swap_directory=s", "memory.activations=recompute", "memory.graph_budget=1GiB"})
                  .find("no effect with memory.activations \"recompute\""),
              std::string::npos);
}

TEST(Config, GraphsAreKeptAsFarAsThereIsRoomOrABudget) {
    EXPECT_EQ(config({}).session.engine.activations, engine::Activations::automatic);
    const engine::EngineOptions engine = config({"memory.graph_budget=1GiB"}).session.engine;
    EXPECT_EQ(engine.activations, engine::Activations::automatic);
    EXPECT_EQ(engine.graph_budget_bytes, 1ULL << 30);
    EXPECT_EQ(engine.activations_setting, "memory.activations");
}

TEST(Config, ChoosesTypesAndTiers) {
    const TrainConfig plain = config({});
    EXPECT_EQ(plain.session.gradient_type, zero::PlaneType::fp32);
    EXPECT_EQ(plain.session.residency.weights, zero::Tier::host);
    const TrainConfig split = config({"bf16.enabled=true", "zero_optimization.offload_optimizer.device=nvme"});
    EXPECT_EQ(split.session.gradient_type, zero::PlaneType::bf16);
    EXPECT_EQ(split.session.residency.weights, zero::Tier::host);
    EXPECT_EQ(split.session.residency.states, zero::Tier::nvme);
    EXPECT_EQ(config({"bf16.enabled=true", "data_types.grad_accum_dtype=fp32"}).session.gradient_type,
              zero::PlaneType::fp32);
    // Sums of many micro-batches would stop growing in bf16.
    EXPECT_EQ(config({"bf16.enabled=true", "gradient_accumulation_steps=8"}).session.gradient_type,
              zero::PlaneType::bf16);
    EXPECT_EQ(config({"bf16.enabled=true", "gradient_accumulation_steps=9"}).session.gradient_type,
              zero::PlaneType::fp32);
    EXPECT_EQ(
        config({"bf16.enabled=true", "train_batch_size=36", "train_micro_batch_size_per_gpu=4"}).session.gradient_type,
        zero::PlaneType::fp32);
    EXPECT_EQ(config({"bf16.enabled=true", "gradient_accumulation_steps=9", "data_types.grad_accum_dtype=bf16"})
                  .session.gradient_type,
              zero::PlaneType::bf16);
    EXPECT_NE(refusal({"run.swap_directory=s", "data_types.grad_accum_dtype=bf16"}).find("needs bf16.enabled"),
              std::string::npos);
}

TEST(Config, TheLossyCodecIsAskedForByName) {
    EXPECT_EQ(config({"bf16.enabled=true"}).session.codec, "split");
    EXPECT_EQ(config({}).session.codec, "plain_fp32");
    EXPECT_EQ(config({"bf16.enabled=true", "memory.codec=compact"}).session.codec, "compact");
    EXPECT_NE(refusal({"run.swap_directory=s", "memory.codec=compact"}).find("needs bf16.enabled"), std::string::npos);
    const std::string adagrad =
        refusal({"run.swap_directory=s", "bf16.enabled=true", "memory.codec=compact", "optimizer.type=Adagrad"});
    EXPECT_NE(adagrad.find("never forgets"), std::string::npos) << adagrad;
}

TEST(Config, ClipsAtOneUnlessSaid) {
    EXPECT_EQ(config({}).session.engine.gradient_clipping, 1.0);
    EXPECT_EQ(config({"gradient_clipping=0"}).session.engine.gradient_clipping, 0.0);
}

// Where nothing is lost by it; what is said counts.
TEST(Config, UnitsAreUpdatedWithinBackwardWhereNothingIsClipped) {
    using zero::UpdateOrder;
    const auto order = [](const std::vector<std::string>& overrides) { return config(overrides).session.update_order; };
    EXPECT_EQ(order({}), UpdateOrder::after_backward);
    EXPECT_EQ(order({"gradient_clipping=0"}), UpdateOrder::within);
    EXPECT_EQ(order({"gradient_clipping=0", "run.update_order=deferred"}), UpdateOrder::deferred);
    EXPECT_EQ(order({"gradient_clipping=0", "memory.device=emulated", "memory.device_budget=64MiB"}),
              UpdateOrder::within);
}

TEST(Config, OlderWordsOfUpdateOrdersAreTakenAndSaid) {
    const std::vector<std::string> on_nvme = {"run.swap_directory=s", "zero_optimization.offload_param.device=nvme",
                                              "zero_optimization.offload_optimizer.device=nvme"};
    const auto with = [&](std::vector<std::string> more) {
        more.insert(more.end(), on_nvme.begin(), on_nvme.end());
        return config(more);
    };
    for (const char* word : {"in_backward", "speculative"}) {
        const TrainConfig taken = with({std::string("run.update_order=") + word});
        EXPECT_EQ(taken.session.update_order, zero::UpdateOrder::within);
        EXPECT_EQ(taken.session.deferred_share, 0.0);
        EXPECT_EQ(older_words(taken.settings),
                  std::vector{fmt::format("run.update_order \"{}\" is an older word for \"within\"", word)});
    }
    EXPECT_EQ(older_words(with({"run.update_order=balanced"}).settings),
              std::vector<std::string>{"run.update_order \"balanced\" is an older word for \"within\" with "
                                       "run.deferred_share \"auto\""});
    EXPECT_TRUE(older_words(with({"run.update_order=within"}).settings).empty());
}

TEST(Config, AShareThatNothingIsDeferredOfIsRefused) {
    for (const char* order : {"after_backward", "deferred"})
        EXPECT_NE(refusal({"run.swap_directory=s", "run.deferred_share=0.5", std::string("run.update_order=") + order})
                      .find("run.deferred_share has no effect with run.update_order"),
                  std::string::npos);
}

TEST(Config, WhatMayBeUpdatedAgainStaysOnNvme) {
    EXPECT_TRUE(config({"memory.fill_host_budget=true"}).session.fill_host_budget);
    EXPECT_EQ(config({}).session.gradients, zero::GradientTier::automatic);
    EXPECT_EQ(config({"memory.gradients=nvme"}).session.gradients, zero::GradientTier::nvme);
    const std::string words = refusal(
        {"run.swap_directory=s", "memory.fill_host_budget=true", "run.update_order=within", "run.commit_every=2",
         "zero_optimization.offload_param.device=nvme", "zero_optimization.offload_optimizer.device=cpu"});
    EXPECT_NE(
        words.find("run.update_order \"within\" with gradient_clipping updates a step again, from what was committed "
                   "before it, where the gradient is clipped after all: it needs run.commit_every 1, "
                   "zero_optimization.offload_optimizer.device \"nvme\", no memory.fill_host_budget; or take "
                   "\"deferred\""),
        std::string::npos)
        << words;
}

TEST(Config, MoreThanCanBeCountedIsRefused) {
    const std::vector<std::string> many = {"run.swap_directory=s", "gradient_accumulation_steps=1000000",
                                           "model.layers=1000"};
    EXPECT_EQ(config(many).micro_batches, 1000000);
    std::vector<std::string> laid = many;
    laid.emplace_back("memory.activation_budget=1GiB");
    EXPECT_NE(refusal(laid).find("1002000000 inputs"), std::string::npos) << refusal(laid);
    std::vector<std::string> long_ones = many;
    for (const char* setting :
         {"train_micro_batch_size_per_gpu=1000000", "model.context=1000000", "model.layers=10000"})
        long_ones.emplace_back(setting);
    EXPECT_NE(refusal(long_ones).find("more than 1 EiB"), std::string::npos) << refusal(long_ones);
}

TEST(Config, BalancedUpdatesClipWhereTheyMayBeMadeAgain) {
    const std::vector<std::string> balanced = {"run.swap_directory=s", "run.update_order=balanced",
                                               "zero_optimization.offload_param.device=nvme",
                                               "zero_optimization.offload_optimizer.device=nvme"};
    EXPECT_FALSE(config(balanced).session.deferred_share);
    const auto with = [&](const char* more) {
        std::vector<std::string> all = balanced;
        all.emplace_back(more);
        return all;
    };
    EXPECT_EQ(config(with("run.deferred_share=0.25")).session.deferred_share, 0.25);
    for (const char* setting : {"run.commit_every=2", "memory.fill_host_budget=true"}) {
        EXPECT_NE(refusal(with(setting)).find("or take \"deferred\""), std::string::npos);
        std::vector<std::string> unclipped = with(setting);
        unclipped.emplace_back("gradient_clipping=0");
        EXPECT_FALSE(config(unclipped).session.deferred_share);
    }
    EXPECT_NE(refusal(with("run.deferred_share=1.5")).find("run.deferred_share"), std::string::npos);
}

TEST(Config, RefusesShapesThatCannotBe) {
    EXPECT_NE(refusal({"run.swap_directory=s", "model.hidden=100"}).find("not a multiple of model.heads 8"),
              std::string::npos);
    EXPECT_NE(refusal({"run.swap_directory=s", "model.hidden=24"}).find("needs an even"), std::string::npos);
    EXPECT_EQ(config({"model.hidden=24", "model.positions=learned"}).model.hidden, 24);
    EXPECT_NE(refusal({"run.swap_directory=s", "memory.tile_elements=5000"}).find("not a multiple of 4096"),
              std::string::npos);
    EXPECT_NE(refusal({"run.swap_directory=s", "aio.block_size=5000"}).find("not a power of two"), std::string::npos);
    EXPECT_NE(refusal({"run.swap_directory=s", "aio.block_size=12KiB"}).find("not a power of two"), std::string::npos);
    EXPECT_NE(refusal({"run.swap_directory=s", "memory.device=emulated"}).find("needs memory.device_budget"),
              std::string::npos);
}

TEST(Config, BlocksAndDepthAreLeftToTheProfileUnlessGiven) {
    EXPECT_EQ(config({}).io_block_bytes, std::nullopt);
    EXPECT_EQ(config({}).io_queue_depth, std::nullopt);
    EXPECT_EQ(config({"aio.block_size=auto", "aio.queue_depth=auto"}).io_block_bytes, std::nullopt);
    EXPECT_EQ(config({"aio.block_size=256KiB"}).io_block_bytes, 256U << 10);
    EXPECT_EQ(config({"aio.queue_depth=3"}).io_queue_depth, 3U);
    EXPECT_NE(refusal({"run.swap_directory=s", "aio.block_size=automatic"}).find("\"auto\", or bytes"),
              std::string::npos);
    EXPECT_NE(refusal({"run.swap_directory=s", "aio.queue_depth=deep"}).find("an integer from 1 to 4096, or \"auto\""),
              std::string::npos);
}

TEST(Config, ScheduleFollowsRateAndSteps) {
    const TrainConfig warmup = config({"scheduler.type=WarmupLR", "optimizer.params.lr=0.02"});
    EXPECT_EQ(warmup.schedule.warmup_max_lr, 0.02);
    const TrainConfig cosine = config({"scheduler.type=WarmupCosineLR", "optimizer.params.lr=0.02"});
    EXPECT_EQ(cosine.schedule.total_num_steps, 30);
    EXPECT_EQ(config({"scheduler.type=WarmupCosineLR", "scheduler.params.total_num_steps=99"}).schedule.total_num_steps,
              99);
}

TEST(Config, RefusesSchedulerParametersWithoutEffect) {
    EXPECT_NE(refusal({"run.swap_directory=s", "scheduler.type=WarmupLR", "scheduler.params.cos_min_ratio=0.1"})
                  .find("no effect"),
              std::string::npos);
    EXPECT_NE(refusal({"run.swap_directory=s", "scheduler.params.warmup_num_steps=5"}).find("no effect"),
              std::string::npos);
    EXPECT_NE(
        refusal({"run.swap_directory=s", "scheduler.type=WarmupDecayLR", "optimizer.params.lr=0.02"}).find("say which"),
        std::string::npos);
}

// The options' own, so that a program of one's own and a configuration that says nothing are the same.
TEST(Config, WhatNobodySaysIsAsTheEngineHasIt) {
    const engine::SessionOptions own;
    const engine::SessionOptions made = config({}).session;
    EXPECT_EQ(made.prefetch_depth, own.prefetch_depth);
    EXPECT_EQ(made.staging_tiles, own.staging_tiles);
    EXPECT_EQ(made.tile_numel, own.tile_numel);
    EXPECT_EQ(made.seed, own.seed);
    EXPECT_EQ(made.verify, own.verify);
    EXPECT_EQ(made.engine.activations, own.engine.activations);
    EXPECT_EQ(made.durability, own.durability);
    EXPECT_EQ(made.device.kind, own.device.kind);
}

TEST(Config, EveryMemberOfTheSessionThatHasAKeyIsFilled) {
    const engine::SessionOptions made =
        config({"run.name=n", "memory.host_budget=1GiB", "memory.prefetch_depth=7", "memory.staging_tiles=9",
                "memory.tile_elements=8192", "memory.activations=keep", "memory.graph_budget=3GiB",
                "memory.activation_budget=5MiB", "memory.device=emulated", "memory.device_budget=2GiB",
                "memory.emulated_copy_delay_us=11", "run.seed=13", "run.threads=5"})
            .session;
    EXPECT_EQ(made.swap_directories, std::vector<std::string>{"s"});
    EXPECT_EQ(made.job, "n");
    EXPECT_EQ(made.host_budget_bytes, 1ULL << 30);
    EXPECT_EQ(made.prefetch_depth, 7U);
    EXPECT_EQ(made.staging_tiles, 9U);
    EXPECT_EQ(made.tile_numel, 8192U);
    EXPECT_EQ(made.engine.activations, engine::Activations::retain);
    EXPECT_EQ(made.engine.graph_budget_bytes, 3ULL << 30);
    EXPECT_EQ(made.activation_bytes, 5ULL << 20);
    EXPECT_EQ(made.device.kind, zero::DeviceKind::emulated);
    EXPECT_EQ(made.device.budget_bytes, 2ULL << 30);
    EXPECT_EQ(made.device.copy_delay, std::chrono::microseconds(11));
    EXPECT_EQ(made.seed, 13U);
    EXPECT_EQ(made.worker_threads, 5U);
    EXPECT_EQ(made.names.host_budget, "memory.host_budget");
}

TEST(Config, TheModelIsWhatItsKeysSay) {
    const GptOptions made =
        config({"model.vocabulary=300", "model.layers=3", "model.heads=4", "model.feed_forward=7", "model.context=9",
                "model.norm=layer", "model.positions=learned", "model.tied_head=true", "model.frozen=[\"embedding\"]"})
            .model;
    EXPECT_EQ(made.vocabulary, 300);
    EXPECT_EQ(made.hidden, GptOptions{}.hidden);
    EXPECT_EQ(made.layers, 3);
    EXPECT_EQ(made.heads, 4);
    EXPECT_EQ(made.feed_forward, 7);
    EXPECT_EQ(made.context, 9);
    EXPECT_EQ(made.norm, NormKind::layer);
    EXPECT_EQ(made.positions, PositionKind::learned);
    EXPECT_EQ(made.head, HeadKind::tied);
    EXPECT_EQ(made.frozen, std::vector<std::string>{"embedding"});
}

}  // namespace
}  // namespace penstock::trainer
