#include "trainer/config/config.h"
#include "aio/words/error.h"
#include "tests/refusal.h"
#include "trainer/config/session_options.h"

#include <gtest/gtest.h>

namespace penstock::trainer {
namespace {

TrainConfig config_with(const std::vector<std::string>& overrides) {
    Settings settings = Settings::parse(R"({"data": {"train": "x"}, "memory": {"host_budget": "64MiB"},
                                            "run": {"directory": "r", "steps": 30}})",
                                        "test.json", overrides);
    return make_config(settings);
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
    EXPECT_EQ(config({}).durability, zero::Durability::every_step);
    EXPECT_EQ(config({"run.commit_every=7"}).durability, zero::Durability{7});
    EXPECT_EQ(config({"run.commit_every=scratch"}).durability, zero::Durability::scratch);
    for (const char* bad : {"run.commit_every=0", "run.commit_every=never", "run.commit_every=auto"})
        EXPECT_NE(refusal({bad}).find("or \"scratch\""), std::string::npos) << refusal({bad});
    EXPECT_EQ(config({}).verify, store::VerifyScope::all);
    EXPECT_EQ(config({"run.verify=sample"}).verify, store::VerifyScope::sample);
    EXPECT_EQ(config({"run.verify=none"}).verify, store::VerifyScope::none);
    const engine::SessionOptions options = session_options(config({"run.commit_every=7", "run.verify=sample"}), 1, {});
    EXPECT_EQ(options.engine.durability, zero::Durability{7});
    EXPECT_EQ(options.verify, store::VerifyScope::sample);
}

TEST(Config, PlansForSnapshotsOnlyWhereTheyAreWanted) {
    EXPECT_FALSE(config({}).keep.planned);
    EXPECT_FALSE(session_options(config({}), 1, {}).keeping);
    const KeepOptions every = config({"keep.every=5", "keep.last=2"}).keep;
    EXPECT_TRUE(every.planned);
    EXPECT_EQ(every.every, 5);
    EXPECT_EQ(every.last, 2U);
    EXPECT_EQ(every.folder, "s/kept");
    const TrainConfig folder = config({"keep.folder=f"});
    EXPECT_TRUE(folder.keep.planned);
    EXPECT_EQ(folder.keep.folder, "f");
    EXPECT_TRUE(session_options(folder, 1, {}).keeping);
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
    EXPECT_EQ(config({}).io, IoChoice::automatic);
    EXPECT_EQ(config({"run.io_backend=io_uring"}).io, IoChoice::io_uring);
    EXPECT_EQ(config({"run.io_backend=libaio"}).io, IoChoice::libaio);
    EXPECT_EQ(config({"run.io_backend=threads"}).io, IoChoice::threads);
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

TEST(Config, ChoosesTypesAndTiers) {
    const TrainConfig plain = config({});
    EXPECT_EQ(plain.compute_type, ComputeType::fp32);
    EXPECT_EQ(plain.gradient_type, zero::PlaneType::fp32);
    EXPECT_EQ(plain.residency.weights, zero::Tier::host);
    const TrainConfig split = config({"bf16.enabled=true", "zero_optimization.offload_optimizer.device=nvme"});
    EXPECT_EQ(split.compute_type, ComputeType::bf16);
    EXPECT_EQ(split.gradient_type, zero::PlaneType::bf16);
    EXPECT_EQ(split.residency.weights, zero::Tier::host);
    EXPECT_EQ(split.residency.states, zero::Tier::nvme);
    EXPECT_EQ(config({"bf16.enabled=true", "data_types.grad_accum_dtype=fp32"}).gradient_type, zero::PlaneType::fp32);
    EXPECT_NE(refusal({"run.swap_directory=s", "data_types.grad_accum_dtype=bf16"}).find("needs bf16.enabled"),
              std::string::npos);
}

TEST(Config, TheLossyCodecIsAskedForByName) {
    EXPECT_EQ(config({}).codec, CodecChoice::exact);
    EXPECT_EQ(config({"bf16.enabled=true"}).codec, CodecChoice::exact);
    EXPECT_EQ(session_options(config({"bf16.enabled=true"}), 1, {}).codec, "split");
    EXPECT_EQ(session_options(config({}), 1, {}).codec, "plain_fp32");
    const TrainConfig compact = config({"bf16.enabled=true", "memory.codec=compact"});
    EXPECT_EQ(compact.codec, CodecChoice::compact);
    EXPECT_EQ(session_options(compact, 1, {}).codec, "compact");
    EXPECT_NE(refusal({"run.swap_directory=s", "memory.codec=compact"}).find("needs bf16.enabled"), std::string::npos);
    const std::string adagrad =
        refusal({"run.swap_directory=s", "bf16.enabled=true", "memory.codec=compact", "optimizer.type=Adagrad"});
    EXPECT_NE(adagrad.find("never forgets"), std::string::npos) << adagrad;
}

TEST(Config, ClipsAtOneUnlessSaid) {
    EXPECT_EQ(config({}).gradient_clipping, 1.0);
    EXPECT_EQ(config({"gradient_clipping=0"}).gradient_clipping, 0.0);
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

}  // namespace
}  // namespace penstock::trainer
