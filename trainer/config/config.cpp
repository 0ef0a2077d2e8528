#include "trainer/config/config.h"

#include "aio/words/error.h"
#include "swap/directory/snapshot_list.h"
#include "trainer/cli/remedies.h"
#include "trainer/config/derived_settings.h"
#include "trainer/config/key_table.h"
#include "trainer/config/program_place.h"
#include "zero_infinity/codec/codec.h"
#include "zero_infinity/layout/unit.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

namespace penstock::trainer {
namespace {

constexpr std::uint32_t most_inputs = 10'000'000;  // that are laid aside in a step

[[noreturn]] void refuse(const TrainConfig& config, const std::string& problem) {
    throw Error(ExitCode::usage, config.settings.file() + ": " + problem);
}

void check_model(const TrainConfig& config) {
    const GptOptions& model = config.model;
    if (model.hidden % model.heads != 0) {
        refuse(config, fmt::format("model.hidden {} is not a multiple of model.heads {}", model.hidden, model.heads));
    }
    if (model.positions == PositionKind::rotary && model.hidden / model.heads % 2 != 0) {
        refuse(config, fmt::format("model.positions \"{}\" needs an even model.hidden / model.heads; it is {}",
                                   word_of(model.positions), model.hidden / model.heads));
    }
}

void check_io(const TrainConfig& config) {
    if (config.io_block_bytes && !std::has_single_bit(*config.io_block_bytes))
        refuse(config, fmt::format("aio.block_size {} is not a power of two", *config.io_block_bytes));
}

void check_memory(const TrainConfig& config) {
    const engine::SessionOptions& session = config.session;
    if (session.tile_numel % zero::tile_alignment != 0) {
        refuse(config, fmt::format("memory.tile_elements {} is not a multiple of {}", session.tile_numel,
                                   zero::tile_alignment));
    }
    if (session.device.kind == zero::DeviceKind::emulated && session.device.budget_bytes == 0)
        refuse(config, "memory.device \"emulated\" needs memory.device_budget");
    if (session.engine.graph_budget_bytes != engine::unbounded_graphs &&
        session.engine.activations == engine::Activations::recompute)
        refuse(config,
               "memory.graph_budget has no effect with memory.activations \"recompute\": leave one of them out");
}

// What a step keeps for backward: more than any machine has would not be counted right.
void check_activations(const TrainConfig& config) {
    const GptOptions& model = config.model;
    const double tokens = static_cast<double>(config.micro_batch_rows) * static_cast<double>(config.micro_batches) *
                          static_cast<double>(model.context);
    const double bytes = tokens * static_cast<double>(model.hidden) * 4 * unit_count(model);
    if (bytes > 0x1p60)
        refuse(config, fmt::format("{:.0f} tokens a step (train_micro_batch_size_per_gpu {}, "
                                   "gradient_accumulation_steps {}, model.context {}) keep more than 1 EiB for "
                                   "backward: take less of one of them",
                                   tokens, config.micro_batch_rows, config.micro_batches, model.context));
    const double inputs = static_cast<double>(config.micro_batches) * unit_count(model);
    if (config.session.activation_bytes > 0 && inputs > most_inputs)
        refuse(config, fmt::format("memory.activation_budget with gradient_accumulation_steps {} and {} units: {:.0f} "
                                   "inputs are kept for backward, and no plan is made of more than {}; take more rows "
                                   "in each micro-batch",
                                   config.micro_batches, unit_count(model), inputs, most_inputs));
}

// Which codec stores what memory.codec and bf16.enabled say.
const zero::Codec& codec_of(const TrainConfig& config) {
    const bool bf16 = config.settings.boolean("bf16.enabled");
    if (config.settings.text("memory.codec") == word_of(CodecChoice::exact))
        return bf16 ? zero::split_codec() : zero::plain_fp32_codec();
    if (!bf16) refuse(config, "memory.codec \"compact\" needs bf16.enabled; compute is in fp32");
    if (never_forgets(make_optimizers(config.optimizer).others()))
        refuse(config, fmt::format("memory.codec \"compact\" with optimizer.type \"{}\": its sum of squares never "
                                   "forgets, and rounded to 8 bits it would stop growing; use \"exact\"",
                                   config.optimizer.kind->word));
    return zero::compact_codec();
}

// Planned where either key says that snapshots are wanted.
void complete_snapshot(TrainConfig& config) {
    SnapshotOptions& snapshots = config.snapshots;
    snapshots.planned = !snapshots.folder.empty() || snapshots.every > 0;
    if (snapshots.folder.empty()) snapshots.folder = config.swap_directory() + "/" + store::snapshot_folder_name;
    if (!snapshots.planned && snapshots.last > 0)
        refuse(config, "keep.last has no effect without keep.every or keep.folder; leave it out");
    if (snapshots.planned && !config.durable())
        refuse(config, "keep.every and keep.folder need commits, and run.commit_every is \"scratch\"; leave them out");
}

// So that refusals of the session name the keys that are to be changed.
zero::SettingNames setting_names() {
    return {.host_budget = "memory.host_budget",
            .device_budget = "memory.device_budget",
            .prefetch_depth = "memory.prefetch_depth",
            .staging = "memory.staging_tiles",
            .gradient_type = "data_types.grad_accum_dtype",
            .gradient_memory = "memory.gradients",
            .resident_weights = "zero_optimization.offload_param.device",
            .resident_states = "zero_optimization.offload_optimizer.device",
            .activations = "memory.activation_budget",
            .snapshots = "keep.every and keep.folder",
            .codec = "memory.codec",
            .fill = "memory.fill_host_budget",
            .deferred_share = "run.deferred_share",
            .update_order = "run.update_order",
            .clipping = "gradient_clipping",
            .commits = "run.commit_every 1"};
}

void check_update_order(const TrainConfig& config) {
    const std::string why = zero::refusal_of_order(engine::core_options(config.session));
    if (!why.empty()) refuse(config, why);
}

// The keys that are members as they stand.
TrainConfig filled(Settings settings) {
    TrainConfig config;
    for (const KeySpec& key : keys())
        if (key.place.fill != nullptr && settings.has(key.path)) fill(key, settings.value(key.path), config);
    config.optimizer.groups = optimizer_groups(settings, config.optimizer.others);
    config.settings = std::move(settings);
    return config;
}

}  // namespace

TrainConfig make_config(Settings settings, std::int64_t ranks) {
    TrainConfig config = filled(with_derived(std::move(settings), ranks));
    config.ranks = ranks;
    config.session.names = setting_names();
    check_model(config);
    make_optimizers(config.optimizer);  // to refuse what makes no sense before anything is opened
    check_io(config);
    check_memory(config);
    check_activations(config);
    check_update_order(config);
    complete_snapshot(config);
    config.schedule.learning_rate = config.optimizer.others.learning_rate;
    for (const SettingDirectory& directory : config.swap_directories)
        config.session.swap_directories.push_back(directory.path);
    config.session.codec = codec_of(config).name;
    config.session.snapshots = config.snapshots.planned;
    config.session.engine.activations_setting = "memory.activations";
    config.session.remedies =
        remedies_of_store({.directories = config.session.swap_directories, .snapshots = config.snapshots.folder});
    config.session.snapshot_remedies = remedies_of_snapshot();
    return config;
}

}  // namespace penstock::trainer
