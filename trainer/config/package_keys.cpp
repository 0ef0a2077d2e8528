// What the Python package reads beside the keys that it shares with the program (key_table.cpp): DeepSpeed's.
#include "trainer/config/key_table.h"

#include <array>

namespace penstock::trainer {
namespace {

using enum KeyType;
using enum AtResume;

constexpr std::string_view one_process = "there is one process";
constexpr std::string_view own_memory = "memory is planned from memory.host_budget and the order of units";
constexpr std::string_view own_io =
    "one thread hands all I/O to the kernel as soon as it may, and takes what has ended";
constexpr std::string_view own_reads = "drives are read into host memory, also for a GPU";
constexpr std::string_view pinned = "memory that a device copies from is always pinned";
constexpr std::string_view units_decide = "memory.activations says which units' forward runs again in backward";
constexpr std::string_view no_log = "it changes nothing of the training, and the package has no such report";

constexpr PackageRule automatic(std::string_view value) {
    return {.effect = Effect::obeyed, .automatic = value};
}

constexpr PackageRule offload(std::string_view becomes) {
    return {.effect = Effect::translated, .automatic = "false", .becomes = becomes, .value = "cpu"};
}

constexpr KeySpec unlooked(std::string_view path, Effect effect, std::string_view why) {
    return KeySpec{path, anything, "(DeepSpeed's)", {}, {}, free, "DeepSpeed's"}.package_only(
        {.effect = effect, .why = why});
}

constexpr KeySpec without(std::string_view path, std::string_view why) {
    return unlooked(path, Effect::without, why);
}

constexpr KeySpec off(std::string_view path, std::string_view why) {
    return unlooked(path, Effect::off, why);
}

// clang-format off
constexpr std::array key_list = {
    // Precision.
    KeySpec{"fp16.enabled", boolean, "false", {}, {}, layout, "compute in fp16 with fp32 masters and a loss scale"}
        .package_only(automatic("false")),
    KeySpec{"fp16.loss_scale", number, "0", {0, 1e30}, {}, fixed, "a fixed loss scale; 0: dynamic"}
        .package_only(automatic("0, dynamic")),
    KeySpec{"fp16.initial_scale_power", integer, "16", {0, 100}, {}, fixed, "the dynamic scale begins at 2 to this"}
        .package_only(automatic("16")),
    KeySpec{"fp16.loss_scale_window", integer, "1000", {1, 1e12}, {}, fixed, "steps without overflow until it doubles"}
        .package_only(automatic("1000")),
    KeySpec{"fp16.hysteresis", integer, "2", {1, 1e12}, {}, fixed, "overflows until it is halved"}
        .package_only(automatic("2")),
    KeySpec{"fp16.consecutive_hysteresis", boolean, "false", {}, {}, fixed,
            "overflows are counted from the last step without one"}
        .package_only(automatic("false")),
    KeySpec{"fp16.min_loss_scale", number, "1", {0, 1e30}, {}, fixed, "it is not halved below"}
        .package_only(automatic("1")),
    KeySpec{"bfloat16.enabled", boolean, "(false)", {}, {}, layout, "the old spelling of bf16.enabled"}
        .package_only({.effect = Effect::translated, .automatic = "false", .becomes = "bf16.enabled"}),
    without("fp16.auto_cast", "the model computes in the type of its weights, and its inputs are the caller's"),
    without("fp16.opt_level", "it is NVIDIA Apex's"),
    without("fp16.fp16_master_weights_and_grads", "masters are kept in fp32"),
    without("bf16.loss_scale", "bf16 has the range of fp32 and needs no loss scale"),
    without("bf16.initial_scale_power", "bf16 has the range of fp32 and needs no loss scale"),
    without("bf16.loss_scale_window", "bf16 has the range of fp32 and needs no loss scale"),
    without("bf16.hysteresis", "bf16 has the range of fp32 and needs no loss scale"),
    without("bf16.min_loss_scale", "bf16 has the range of fp32 and needs no loss scale"),
    without("bf16.auto_cast", "bf16 has the range of fp32 and needs no loss scale"),
    without("bf16.immediate_grad_update",
            "gradients are summed by the core, which looks at all of them before an update"),
    without("bf16.check_grad_overflow",
            "gradients are summed by the core, which looks at all of them before an update"),
    without("bf16.bf16_master_weights_and_grads",
            "masters and moments are kept in fp32; memory.codec \"compact\" stores less"),
    without("bf16.bf16_optimizer_states",
            "masters and moments are kept in fp32; memory.codec \"compact\" stores less"),
    off("amp", "mixed precision by NVIDIA Apex is not there; use bf16 or fp16"),
    off("torch_autocast", "the model computes in the type of its weights; wrap the forward in torch.autocast instead"),
    off("fp8", "there is no fp8"),
    off("weight_quantization", "weights would be quantized in training"),
    off("quantize_training", "weights would be quantized in training"),
    without("data_types.param_dtype", "types are the model's, or those of fp16 and bf16"),
    without("data_types.buffer_dtype", "types are the model's, or those of fp16 and bf16"),
    without("data_types.keep_in_fp32_modules", "types are the model's, or those of fp16 and bf16"),

    // Optimizer.
    without("optimizer.params.torch_adam", "there is one Adam, with torch's arithmetic"),
    without("optimizer.params.fused", "there is one kernel for each optimizer"),
    without("optimizer.params.foreach", "there is one kernel for each optimizer"),
    without("optimizer.params.set_grad_none", "gradients are the core's"),
    without("optimizer.params.cuda_aware", one_process),
    without("optimizer.params.comm_backend_name", one_process),
    without("optimizer.legacy_fusion", one_process),
    off("optimizer.params.amsgrad", "amsgrad keeps a third moment, which the core has not"),
    off("optimizer.params.maximize", "the core's optimizers minimize"),
    off("optimizer.params.max_grad_norm", "DeepSpeed does not take it here; say gradient_clipping"),
    KeySpec{"optimizer.params.bias_correction", boolean, "(true)", {}, {}, fixed,
            "Adam's moments are corrected, as always"}
        .package_only(automatic("true")),

    // Schedulers that the program has not.
    KeySpec{"scheduler.params.cycle_min_lr", number, "(required by OneCycle)", {0, 1000}, {}, fixed,
            "OneCycle: rate where the cycle begins and ends"}
        .package_only({.effect = Effect::obeyed}),
    KeySpec{"scheduler.params.cycle_max_lr", number, "(required by OneCycle)", {0, 1000}, {}, fixed,
            "OneCycle: rate in the middle of the cycle"}
        .package_only({.effect = Effect::obeyed}),
    KeySpec{"scheduler.params.decay_lr_rate", number, "0", {0, 1e6}, {}, fixed,
            "OneCycle: of the decay after the cycle"}
        .package_only(automatic("0")),
    KeySpec{"scheduler.params.cycle_first_step_size", integer, "2000", {1, 1e12}, {}, fixed,
            "OneCycle: steps of the rising half"}
        .package_only(automatic("2000")),
    KeySpec{"scheduler.params.cycle_second_step_size", integer, "(cycle_first_step_size)", {0, 1e12}, {}, fixed,
            "OneCycle: steps of the falling half"}
        .package_only(automatic("cycle_first_step_size")),
    KeySpec{"scheduler.params.cycle_first_stair_count", integer, "0", {0, 1e12}, {}, fixed,
            "OneCycle: stairs of the rising half; 0: none"}
        .package_only(automatic("0")),
    KeySpec{"scheduler.params.cycle_second_stair_count", integer, "(cycle_first_stair_count)", {0, 1e12}, {}, fixed,
            "OneCycle: stairs of the falling half"}
        .package_only(automatic("cycle_first_stair_count")),
    KeySpec{"scheduler.params.decay_step_size", integer, "0", {0, 1e12}, {}, fixed,
            "OneCycle: steps of one interval of the decay; 0: no decay"}
        .package_only(automatic("0")),
    KeySpec{"scheduler.params.cycle_momentum", boolean, "true", {}, {}, fixed,
            "OneCycle: the first beta goes the other way"}
        .package_only(automatic("true")),
    KeySpec{"scheduler.params.cycle_min_mom", number, "0.8", {0, 1}, {}, fixed, "OneCycle: least first beta"}
        .package_only(automatic("0.8")),
    KeySpec{"scheduler.params.cycle_max_mom", number, "0.9", {0, 1}, {}, fixed, "OneCycle: largest first beta"}
        .package_only(automatic("0.9")),
    KeySpec{"scheduler.params.decay_mom_rate", number, "0", {0, 1e6}, {}, fixed,
            "OneCycle: of the decay after the cycle"}
        .package_only(automatic("0")),
    KeySpec{"scheduler.params.lr_range_test_min_lr", number, "0.001", {0, 1000}, {}, fixed, "LRRangeTest: first rate"}
        .package_only(automatic("0.001")),
    KeySpec{"scheduler.params.lr_range_test_step_size", integer, "2000", {1, 1e12}, {}, fixed,
            "LRRangeTest: steps of one interval"}
        .package_only(automatic("2000")),
    KeySpec{"scheduler.params.lr_range_test_step_rate", number, "1", {0, 1e6}, {}, fixed,
            "LRRangeTest: growth of an interval"}
        .package_only(automatic("1")),
    KeySpec{"scheduler.params.lr_range_test_staircase", boolean, "false", {}, {}, fixed, "LRRangeTest: in stairs"}
        .package_only(automatic("false")),
    without("scheduler.params.last_batch_iteration", "a resumed run goes on from its checkpoint"),

    // Where things are kept.
    KeySpec{"zero_optimization.cpu_offload", boolean, "(false)", {}, {}, free, "the old spelling of offload_optimizer"}
        .package_only(offload("zero_optimization.offload_optimizer.device")),
    KeySpec{"zero_optimization.cpu_offload_params", boolean, "(false)", {}, {}, free,
            "the old spelling of offload_param"}
        .package_only(offload("zero_optimization.offload_param.device")),
    KeySpec{"zero_optimization.cpu_offload_param", boolean, "(false)", {}, {}, free,
            "the old spelling of offload_param"}
        .package_only(offload("zero_optimization.offload_param.device")),
    without("zero_optimization.cpu_offload_use_pin_memory", pinned),
    without("zero_optimization.offload_param.pin_memory", pinned),
    without("zero_optimization.offload_optimizer.pin_memory", pinned),
    without("zero_optimization.offload_param.buffer_count", own_memory),
    without("zero_optimization.offload_param.buffer_size", own_memory),
    without("zero_optimization.offload_param.max_in_cpu", own_memory),
    without("zero_optimization.offload_optimizer.buffer_count", own_memory),
    without("zero_optimization.offload_optimizer.pipeline_read", own_memory),
    without("zero_optimization.offload_optimizer.pipeline_write", own_memory),
    without("zero_optimization.offload_optimizer.pipeline", own_memory),
    without("zero_optimization.offload_optimizer.fast_init", own_memory),
    without("zero_optimization.offload_optimizer.ratio", own_memory),
    without("zero_optimization.offload_optimizer.super_offload", "the update has run.threads threads"),
    without("zero_optimization.offload_optimizer.cpuadam_cores_perc", "the update has run.threads threads"),
    without("zero_optimization.contiguous_gradients", one_process),
    without("zero_optimization.reduce_scatter", one_process),
    without("zero_optimization.reduce_bucket_size", one_process),
    without("zero_optimization.use_multi_rank_bucket_allreduce", one_process),
    without("zero_optimization.allgather_partitions", one_process),
    without("zero_optimization.allgather_bucket_size", one_process),
    without("zero_optimization.overlap_comm", one_process),
    without("zero_optimization.round_robin_gradients", one_process),
    without("zero_optimization.zero_hpz_partition_size", one_process),
    without("zero_optimization.stage3_use_all_reduce_for_fetch_params", one_process),
    without("zero_optimization.stage3_allgather_sequential", one_process),
    without("zero_optimization.load_from_fp32_weights", one_process),
    without("zero_optimization.mics_shard_size", one_process),
    without("zero_optimization.mics_hierarchical_params_gather", one_process),
    without("zero_optimization.sub_group_size", own_memory),
    without("zero_optimization.stage3_prefetch_bucket_size", own_memory),
    without("zero_optimization.prefetch_bucket_size", own_memory),
    without("zero_optimization.stage3_param_persistence_threshold", own_memory),
    without("zero_optimization.param_persistence_threshold", own_memory),
    without("zero_optimization.stage3_param_persitance_threshold", own_memory),  // as examples spell it
    without("zero_optimization.stage3_param_persitence_threshold", own_memory),
    without("zero_optimization.stage3_model_persistence_threshold", own_memory),
    without("zero_optimization.stage3_max_live_parameters", own_memory),
    without("zero_optimization.max_live_parameters", own_memory),
    without("zero_optimization.stage3_max_reuse_distance", own_memory),
    without("zero_optimization.max_reuse_distance", own_memory),
    without("zero_optimization.stage3_module_granularity_threshold", own_memory),
    without("zero_optimization.memory_efficient_linear", own_memory),
    without("zero_optimization.parameter_alignment", own_memory),
    without("zero_optimization.grad_partitioned", own_memory),
    without("zero_optimization.pipeline_loading_checkpoint", own_memory),
    without("zero_optimization.stage3_gather_16bit_weights_on_model_save",
            "weights are written out of the store, whole and one unit at a time"),
    without("zero_optimization.stage3_gather_fp16_weights_on_model_save",
            "weights are written out of the store, whole and one unit at a time"),
    without("zero_optimization.gather_16bit_weights_on_model_save",
            "weights are written out of the store, whole and one unit at a time"),
    without("zero_optimization.elastic_checkpoint",
            "weights are written out of the store, whole and one unit at a time"),
    without("zero_optimization.ignore_unused_parameters",
            "units are found by the package, and gradients are looked at by the core"),
    without("zero_optimization.override_module_apply",
            "units are found by the package, and gradients are looked at by the core"),
    without("zero_optimization.leaf_module", "units are found by the package, and gradients are looked at by the core"),
    without("zero_optimization.log_trace_cache_warnings",
            "units are found by the package, and gradients are looked at by the core"),
    without("zero_optimization.enable_sanity_checks",
            "units are found by the package, and gradients are looked at by the core"),
    without("zero_optimization.compute_grad_norm",
            "units are found by the package, and gradients are looked at by the core"),
    without("zero_optimization.legacy_stage1",
            "units are found by the package, and gradients are looked at by the core"),
    without("zero_optimization.save_muon_momentum_buffer_in_memory",
            "units are found by the package, and gradients are looked at by the core"),
    off("zero_optimization.zero_quantized_weights", "numbers would be quantized on their way"),
    off("zero_optimization.zero_quantized_nontrainable_weights", "numbers would be quantized on their way"),
    off("zero_optimization.zero_quantized_gradients", "numbers would be quantized on their way"),
    off("zero_optimization.zenflow", "its updates are late and selective, and weights would be others"),

    // The device.
    without("aio.thread_count", own_io),
    without("aio.intra_op_parallelism", own_io),
    without("aio.single_submit", own_io),
    without("aio.overlap_events", own_io),
    without("aio.use_gds", own_reads),

    // Activations.
    without("activation_checkpointing.partition_activations", units_decide),
    without("activation_checkpointing.cpu_checkpointing", units_decide),
    without("activation_checkpointing.contiguous_memory_optimization", units_decide),
    without("activation_checkpointing.number_checkpoints", units_decide),
    without("activation_checkpointing.synchronize_checkpoint_boundary", units_decide),
    without("activation_checkpointing.profile", units_decide),

    // What one process does not do, and logs that the package does not write.
    without("communication_data_type", one_process),
    without("seq_parallel_communication_data_type", one_process),
    without("prescale_gradients", one_process),
    without("gradient_predivide_factor", one_process),
    without("gradient_allreduce_op", one_process),
    without("disable_allgather", one_process),
    without("sparse_gradients", one_process),
    without("pipeline", one_process),
    without("sequence_parallel_size", one_process),
    without("data_parallel_size", one_process),
    without("tensor_parallel", one_process),
    without("expert_parallel", one_process),
    without("use_data_before_expert_parallelism", one_process),
    without("communication_data_types", one_process),
    without("comms_logger", one_process),
    without("comms_config", one_process),
    without("elasticity", one_process),
    without("nebula", one_process),
    without("managed_gradient_accumulation", "steps are counted by engine.step()"),
    without("zero_allow_untested_optimizer", "optimizers are mapped to the core's, or refused"),
    without("zero_force_ds_cpu_optimizer", "optimizers are mapped to the core's, or refused"),
    KeySpec{"steps_per_print", integer, "(never)", {1, 1e12}, {}, free, "steps from one line of progress to the next"}
        .package_only(automatic("never")),
    KeySpec{"wall_clock_breakdown", boolean, "false", {}, {}, free,
            "seconds of forward, backward and step, and how many of them waited for I/O: a line with that of progress; "
            "without steps_per_print, of each step"}
        .package_only(automatic("false")),
    without("memory_breakdown", no_log),
    without("dump_state", no_log),
    without("log_level", no_log),
    without("flops_profiler", no_log),
    without("comet", no_log),
    without("monitor_config", no_log),
    without("timers", no_log),
    without("autotuning", no_log),
    without("disable_python_gc", no_log),
    without("vocabulary_size", no_log),
    KeySpec{"dataloader_drop_last", boolean, "false", {}, {}, free, "a last micro-batch with fewer rows is left out"}
        .package_only(automatic("false")),
    without("checkpoint", "checkpoints are the store's generations"),
    without("datastates_ckpt", "checkpoints are the store's generations"),
    without("load_universal_checkpoint", "checkpoints are the store's generations"),
    without("compile", "units are compiled by torch.compile where the caller says so"),
    without("zero_compile", "units are compiled by torch.compile where the caller says so"),
    without("seed", "random states are torch's"),

    // Who sees a training: DeepSpeed's events, and the core's, by the samples that were trained with.
    KeySpec{"tensorboard.enabled", boolean, "false", {}, {}, free, "events go to TensorBoard's files"}
        .package_only(obeyed),
    KeySpec{"tensorboard.output_path", any_text, "\"\"", {}, {}, free,
            "directory for directories of jobs; empty: where the program was started"}
        .package_only(obeyed),
    KeySpec{"tensorboard.job_name", text, "\"DeepSpeedJobName\"", {}, {}, free, "directory of this job"}
        .package_only(obeyed),
    KeySpec{"csv_monitor.enabled", boolean, "false", {}, {}, free, "events go to files of CSV, one for each name"}
        .package_only(obeyed),
    KeySpec{"csv_monitor.output_path", any_text, "\"\"", {}, {}, free,
            "directory for directories of jobs; empty: where the program was started"}
        .package_only(obeyed),
    KeySpec{"csv_monitor.job_name", text, "\"DeepSpeedJobName\"", {}, {}, free, "directory of this job"}
        .package_only(obeyed),
    KeySpec{"wandb.enabled", boolean, "false", {}, {}, free, "events go to a run of Weights & Biases"}
        .package_only(obeyed),
    KeySpec{"wandb.group", text, "(none)", {}, {}, free, "group of runs"}.package_only(obeyed),
    KeySpec{"wandb.team", text, "(that of the account)", {}, {}, free, "whose run it is"}.package_only(obeyed),
    KeySpec{"wandb.project", text, "\"deepspeed\"", {}, {}, free, "project of the run"}.package_only(obeyed),

    // What would make other weights.
    off("curriculum_learning", "the order of the data is the loader's"),
    off("data_efficiency", "the order of the data is the loader's"),
    off("compression_training", "it changes the model"),
    off("eigenvalue", "it changes the model"),
    off("progressive_layer_drop", "it changes the model"),
    off("sparse_attention", "it changes the model"),
    off("hybrid_engine", "it changes the model"),
};
// clang-format on

}  // namespace

std::span<const KeySpec> package_keys() noexcept {
    return key_list;
}

}  // namespace penstock::trainer
