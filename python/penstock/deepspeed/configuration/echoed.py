"""What an engine only repeats of its configuration, by DeepSpeed's calls: programs ask, and nothing here depends on it."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ZERO, FP16, BF16, FLOPS, TUNING = "zero_optimization.", "fp16.", "bf16.", "flops_profiler.", "autotuning."
SAMPLING, ROUTING = "data_efficiency.data_sampling.", "data_efficiency.data_routing."
# The call, where it stands in the JSON, and what DeepSpeed 0.19.8 answers where nobody says it.
ECHOED: dict[str, tuple[str, Any]] = {
    "zero_reduce_bucket_size": (ZERO + "reduce_bucket_size", 500_000_000),
    "zero_allgather_bucket_size": (ZERO + "allgather_bucket_size", 500_000_000),
    "zero_prefetch_bucket_size": (ZERO + "stage3_prefetch_bucket_size", 50_000_000),
    "zero_sub_group_size": (ZERO + "sub_group_size", 1_000_000_000),
    "zero_max_live_parameters": (ZERO + "stage3_max_live_parameters", 1_000_000_000),
    "zero_max_reuse_distance": (ZERO + "stage3_max_reuse_distance", 1_000_000_000),
    "zero_param_persistence_threshold": (ZERO + "stage3_param_persistence_threshold", 100_000),
    "zero_model_persistence_threshold": (ZERO + "stage3_model_persistence_threshold", 2**63 - 1),
    "zero_module_granularity_threshold": (ZERO + "stage3_module_granularity_threshold", 0),
    "zero_reduce_scatter": (ZERO + "reduce_scatter", True),
    "zero_allgather_partitions": (ZERO + "allgather_partitions", True),
    "zero_multi_rank_bucket_allreduce": (ZERO + "use_multi_rank_bucket_allreduce", True),
    "zero_overlap_comm": (ZERO + "overlap_comm", False),
    "zero_contiguous_gradients": (ZERO + "contiguous_gradients", True),
    "zero_round_robin_gradients": (ZERO + "round_robin_gradients", False),
    "zero_ignore_unused_parameters": (ZERO + "ignore_unused_parameters", True),
    "zero_load_from_fp32_weights": (ZERO + "load_from_fp32_weights", True),
    "zero_elastic_checkpoint": (ZERO + "elastic_checkpoint", False),
    "zero_legacy_stage1": (ZERO + "legacy_stage1", False),
    "zero_log_trace_cache_warnings": (ZERO + "log_trace_cache_warnings", False),
    "zero_allgather_sequential": (ZERO + "stage3_allgather_sequential", False),
    "zero_hpz_partition_size": (ZERO + "zero_hpz_partition_size", 1),
    "zero_quantized_weights": (ZERO + "zero_quantized_weights", False),
    "zero_quantized_nontrainable_weights": (ZERO + "zero_quantized_nontrainable_weights", False),
    "zero_quantized_gradients": (ZERO + "zero_quantized_gradients", False),
    "zero_partial_offload": (ZERO + "offload_optimizer.ratio", 1.0),
    "zero_allow_untested_optimizer": ("zero_allow_untested_optimizer", False),
    "zero_force_ds_cpu_optimizer": ("zero_force_ds_cpu_optimizer", True),
    "zenflow_config": (ZERO + "zenflow", None),
    "fp16_auto_cast": (FP16 + "auto_cast", False),
    "fp16_master_weights_and_gradients": (FP16 + "fp16_master_weights_and_grads", False),
    "bf16_master_weights_and_gradients": (BF16 + "bf16_master_weights_and_grads", False),
    "bf16_optimizer_states": (BF16 + "bf16_optimizer_states", False),
    "torch_autocast_enabled": ("torch_autocast.enabled", False),
    "dataloader_drop_last": ("dataloader_drop_last", False),
    "dump_state": ("dump_state", False),
    "memory_breakdown": ("memory_breakdown", False),
    "use_node_local_storage": ("checkpoint.use_node_local_storage", False),
    "load_universal_checkpoint": ("checkpoint.load_universal", False),
    "flops_profiler_enabled": (FLOPS + "enabled", False),
    "flops_profiler_recompute_fwd_factor": (FLOPS + "recompute_fwd_factor", 0.0),
    "flops_profiler_module_depth": (FLOPS + "module_depth", -1),
    "flops_profiler_top_modules": (FLOPS + "top_modules", 1),
    "flops_profiler_output_file": (FLOPS + "output_file", None),
    "autotuning_enabled": (TUNING + "enabled", False),
    "autotuning_start_profile_step": (TUNING + "start_profile_step", 3),
    "autotuning_end_profile_step": (TUNING + "end_profile_step", 5),
    "autotuning_metric": (TUNING + "metric", "throughput"),
    "data_efficiency_enabled": ("data_efficiency.enabled", False),
    "data_sampling_enabled": (SAMPLING + "enabled", False),
    "curriculum_learning_enabled": (SAMPLING + "curriculum_learning.enabled", False),
    "random_ltd_enabled": (ROUTING + "random_ltd.enabled", False),
    "is_deepcompile_enabled": ("compile.deepcompile", False),
}


class Echoes:
    """A base of engines: has a method for each of these."""

    config: dict[str, Any]


def _answer(path: str, unsaid: Any) -> Any:
    def echoed(self: Echoes) -> Any:
        said: Any = self.config
        for name in path.split("."):
            said = said.get(name) if isinstance(said, Mapping) else None
        return unsaid if said is None or said == "auto" else said
    return echoed


for _call, (_path, _unsaid) in ECHOED.items():
    setattr(Echoes, _call, _answer(_path, _unsaid))
