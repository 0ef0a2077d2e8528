#include "trainer/config/session_options.h"

namespace penstock::trainer {
namespace {

const char* codec_name(const TrainConfig& config) {
    if (config.codec == CodecChoice::compact) return "compact";
    return config.compute_type == ComputeType::bf16 ? "split" : "plain_fp32";
}

std::optional<aio::BackendKind> backend(IoChoice choice) {
    switch (choice) {
        case IoChoice::automatic:
            break;
        case IoChoice::io_uring:
            return aio::BackendKind::io_uring;
        case IoChoice::libaio:
            return aio::BackendKind::libaio;
        case IoChoice::threads:
            return aio::BackendKind::threads;
    }
    return std::nullopt;
}

// So that refusals name the keys that are to be changed.
zero::SettingNames setting_names() {
    return {.host_budget = "memory.host_budget",
            .device_budget = "memory.device_budget",
            .prefetch_depth = "memory.prefetch_depth",
            .staging = "memory.staging_tiles",
            .gradient_type = "data_types.grad_accum_dtype",
            .resident_weights = "zero_optimization.offload_param.device",
            .resident_states = "zero_optimization.offload_optimizer.device",
            .keep = "keep.every and keep.folder"};
}

}  // namespace

engine::SessionOptions session_options(const TrainConfig& config, unsigned threads, const aio::IoLimits& io) {
    engine::SessionOptions options;
    for (const SettingDirectory& directory : config.swap_directories)
        options.swap_directories.push_back(directory.path);
    options.keeping = config.keep.planned;
    options.job = config.name;
    options.host_budget_bytes = config.host_budget_bytes;
    options.prefetch_depth = config.prefetch_depth;
    options.staging_tiles = config.staging_tiles;
    options.tile_numel = config.tile_numel;
    options.residency = config.residency;
    options.device = config.device;
    options.codec = codec_name(config);
    options.gradient_type = config.gradient_type;
    options.seed = config.seed;
    options.engine.gradient_clipping = config.gradient_clipping;
    options.engine.activations =
        config.activations == ActivationChoice::recompute ? engine::Activations::recompute : engine::Activations::keep;
    options.engine.durability = config.durability;
    options.verify = config.verify;
    options.worker_threads = threads;
    options.backend = backend(config.io);
    options.io = io;
    options.names = setting_names();
    return options;
}

}  // namespace penstock::trainer
