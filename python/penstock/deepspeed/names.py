"""Every name of DeepSpeed's that is here, by its module. What it stands for is "module:name", of this package where the
module begins with a dot; or the name of another of these modules; or the reason why it is refused when it is used."""
from __future__ import annotations

import importlib
import types
from collections.abc import Mapping
from typing import Any

from .registered import VERSION

HERE = __name__.rpartition(".")[0]
RANKS = "a model in parts over several processes is not Penstock's"
INFERENCE = "kernels for inference are not Penstock's; call the model as it is, under torch.no_grad()"
OPTIMIZERS = "Penstock's optimizers are AdamW, Adam, SGD, Adagrad and Lion"
TILES = "Penstock has no layers in tiles; a unit of its own is named by penstock.initialize(units=[...])"

LOGGING = {"logger": ".telling:LOGGER", "log_dist": ".telling:log_dist", "log_dist_once": ".telling:log_dist_once",
           "print_rank_0": ".telling:print_rank_0", "warning_once": ".telling:warning_once",
           "set_log_level_from_string": ".telling:set_log_level_from_string"}
SAFE = {f"safe_{verb}_{part}_{what}": f".states:{verb}_{own}" for verb in ("get", "set") for part in ("full", "local")
        for what, own in (("fp32_param", "master"), ("grad", "gradient"), ("optimizer_state", "moment"))}
LEAVES = {each: f".leaves:{each}" for each in (
    "z3_leaf_module", "z3_leaf_parameter", "get_z3_leaf_modules", "set_z3_leaf_modules", "unset_z3_leaf_modules",
    "set_z3_leaf_module")}
# Of groups that divide the data all processes are one; those of other parts are each process's own.
GROUPS = {f"_get_{of}_parallel_{what}": f".comm:{answer}" for of, answers in (
    *((each, ("world_size_of_all", "rank_of_all", "whole_group")) for each in ("data", "expert_data", "sequence_data")),
    *((each, ("alone", "first", "own_group")) for each in ("model", "sequence", "expert")))
    for what, answer in zip(("world_size", "rank", "group"), answers)}
ESTIMATES = {f"estimate_zero{stage}_model_states_mem_needs{kind}": f".estimates:zero{stage}{kind}"
             for stage in (2, 3) for kind in ("", "_all_live", "_all_cold")}
ZERO = {
    "Init": ".zero:Init", "GatheredParameters": ".zero:GatheredParameters",
    "register_external_parameter": ".zero:register_external_parameter",
    "unregister_external_parameter": ".zero:register_external_parameter",
    "ZeroParamStatus": ".zero:ZeroParamStatus", "ZeroParamType": ".zero:ZeroParamType",
    "TiledLinear": TILES, "TiledLinearReturnBias": TILES, "MiCS_Init": RANKS, "MiCS_Optimizer": RANKS,
    "unwrap_model_for_generation": ".zero:unwrap_model_for_generation",
    **{name: where for name, where in ESTIMATES.items() if name.endswith("_all_live")},
}
CHECKPOINTING = {"checkpoint": ".recomputed:checkpoint", "configure": ".recomputed:configure",
                 "is_configured": ".recomputed:is_configured", "reset": ".recomputed:reset",
                 "CheckpointFunction": "it is torch.utils.checkpoint.checkpoint()"}
ADAM = {"DeepSpeedCPUAdam": ".optimizers:DeepSpeedCPUAdam", "FusedAdam": ".optimizers:FusedAdam",
        "ZenFlowCPUAdam": OPTIMIZERS, "ZenFlowSelectiveAdamW": OPTIMIZERS}
LION = {"DeepSpeedCPULion": ".optimizers:DeepSpeedCPULion", "FusedLion": ".optimizers:FusedLion"}
ADAGRAD = {"DeepSpeedCPUAdagrad": ".optimizers:DeepSpeedCPUAdagrad"}
LAMB = {"FusedLamb": OPTIMIZERS}
SCHEDULES = {"VALID_LR_SCHEDULES": ".schedules:VALID", **{each: f".schedules:{each}" for each in (
    "WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "LRRangeTest", "OneCycle")}}
LOADERS = {"DeepSpeedDataLoader": ".loaders:DeepSpeedDataLoader", "RepeatingLoader": ".loaders:RepeatingLoader"}
BUILDERS = {f"{each}Builder": f".optimizers:{each}Builder" for each in ("AsyncIO", "CPUAdam", "FusedAdam")}
WEIGHTS = {each: f"penstock.files.fp32:{each}" for each in (
    "load_state_dict_from_zero_checkpoint", "get_fp32_state_dict_from_zero_checkpoint",
    "convert_zero_checkpoint_to_fp32_state_dict")}
ULYSSES = {each: RANKS for each in ("UlyssesSPAttentionHF", "UlyssesSPDataLoaderAdapter", "TiledMLP",
                                    "TiledFusedLogitsLoss", "SequenceTiledCompute")}

MODULES: Mapping[str, Mapping[str, str]] = {
    "deepspeed": {
        "initialize": ".start:initialize", "add_config_arguments": ".start:add_config_arguments",
        "init_distributed": ".comm:init_distributed", "get_accelerator": ".accelerator:get_accelerator",
        "DeepSpeedEngine": ".engine:DeepSpeedEngine", "DeepSpeedOptimizer": "penstock.optimizer:Optimizer",
        "DeepSpeedConfig": ".start:DeepSpeedConfig", "DeepSpeedConfigError": "penstock.errors:UsageError",
        "OnDevice": ".zero:OnDevice", "dist": "deepspeed.comm", "zero": "deepspeed.runtime.zero",
        "checkpointing": "deepspeed.runtime.activation_checkpointing.checkpointing",
        "init_inference": INFERENCE, "InferenceEngine": INFERENCE, "DeepSpeedInferenceConfig": INFERENCE,
        "DeepSpeedHybridEngine": INFERENCE, "DeepSpeedTransformerLayer": INFERENCE,
        "DeepSpeedTransformerConfig": INFERENCE,
        "PipelineModule": RANKS, "PipelineEngine": RANKS, "tp_model_init": RANKS, "set_optimizer_flags": OPTIMIZERS,
        "add_tuning_arguments": "a schedule is named in the configuration, \"scheduler\"",
        **LOGGING, **LOADERS},
    "deepspeed.accelerator": {"get_accelerator": ".accelerator:get_accelerator"},
    "deepspeed.accelerator.real_accelerator": {"get_accelerator": ".accelerator:get_accelerator"},
    "deepspeed.checkpoint": {},
    "deepspeed.checkpoint.utils": {"clone_tensors_for_torch_save": ".weights:clone_tensors_for_torch_save"},
    "deepspeed.comm": {"*": ".comm"},
    "deepspeed.comm.comm": {"*": ".comm"},
    "deepspeed.launcher": {},
    "deepspeed.launcher.runner": {"DEEPSPEED_ENVIRONMENT_NAME": ".launcher:ENVIRONMENT_FILE", "main": ".launcher:main"},
    "deepspeed.module_inject": {}, "deepspeed.monitor": {},
    "deepspeed.monitor.monitor": {"MonitorMaster": ".monitor:MonitorMaster"},
    "deepspeed.moe": {}, "deepspeed.moe.layer": {"MoE": RANKS},
    "deepspeed.moe.utils": {"split_params_into_different_moe_groups_for_optimizer": RANKS},
    "deepspeed.ops": {"__compatible_ops__": ".optimizers:COMPATIBLE_OPS"},
    "deepspeed.ops.adam": ADAM, "deepspeed.ops.adagrad": ADAGRAD, "deepspeed.ops.lion": LION,
    "deepspeed.ops.lamb": LAMB,
    "deepspeed.ops.adam.cpu_adam": ADAM, "deepspeed.ops.adam.fused_adam": ADAM,
    "deepspeed.ops.aio": BUILDERS, "deepspeed.ops.op_builder": BUILDERS,
    "deepspeed.pipe": {"PipelineModule": RANKS, "LayerSpec": RANKS, "TiedLayerSpec": RANKS},
    "deepspeed.runtime": {},
    "deepspeed.runtime.activation_checkpointing": {},
    "deepspeed.runtime.activation_checkpointing.checkpointing": CHECKPOINTING,
    "deepspeed.runtime.config": {"DeepSpeedConfig": ".start:DeepSpeedConfig"},
    "deepspeed.runtime.dataloader": LOADERS,
    "deepspeed.runtime.engine": {"DeepSpeedEngine": ".engine:DeepSpeedEngine"},
    "deepspeed.runtime.lr_schedules": SCHEDULES,
    "deepspeed.runtime.sequence_parallel": {}, "deepspeed.runtime.sequence_parallel.ulysses_sp": ULYSSES,
    "deepspeed.runtime.utils": {"see_memory_usage": ".telling:see_memory_usage"},
    "deepspeed.runtime.zero": ZERO,
    "deepspeed.runtime.zero.partition_parameters": {
        **ZERO, "_orig_torch_arange": "torch:arange", "get_accelerator": ".accelerator:get_accelerator",
        "zero_wrapper_for_fp_tensor_constructor": ".zero:as_it_is"},
    "deepspeed.runtime.zero.stage3": {name: where for name, where in ESTIMATES.items() if "zero3" in name},
    "deepspeed.runtime.zero.stage_1_and_2": {name: where for name, where in ESTIMATES.items() if "zero2" in name},
    "deepspeed.runtime.zero.utils": {"is_zero_param": ".zero:is_zero_param"},
    "deepspeed.utils": {
        **LOGGING, **SAFE, **LEAVES, "groups": "deepspeed.utils.groups", "is_initialized": ".comm:is_initialized",
        "RepeatingLoader": ".loaders:RepeatingLoader", "OnDevice": ".zero:OnDevice",
        "see_memory_usage": ".telling:see_memory_usage"},
    "deepspeed.utils.groups": {**GROUPS, "_get_global_rank": ".comm:get_rank"},
    "deepspeed.utils.logging": LOGGING,
    "deepspeed.utils.zero_to_fp32": WEIGHTS,
    "deepspeed.zero": ZERO,
}


class Surface(types.ModuleType):
    """One of these modules. A name is found when it is first read."""

    __version__ = VERSION

    def __getattr__(self, name: str) -> Any:
        full, here = f"{self.__name__}.{name}", MODULES[self.__name__]
        if "*" in here and not name.startswith("__"):
            return getattr(importlib.import_module(here["*"], HERE), name)
        if name in here:
            found = found_at(full, here[name])
        elif full in MODULES:
            found = importlib.import_module(full)
        else:
            raise AttributeError(f"{full}: Penstock's deepspeed {VERSION} has no such name; those that it has are in "
                                 "penstock/deepspeed/names.py")
        setattr(self, name, found)
        return found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *MODULES[self.__name__]} - {"*"})


def found_at(full: str, where: str) -> Any:
    """What the name `full` stands for."""
    if where in MODULES:
        return importlib.import_module(where)
    module, colon, name = where.partition(":")
    if not colon or " " in where:
        return refused(full, where)
    return getattr(importlib.import_module(module, HERE if module.startswith(".") else None), name)


def refused(full: str, why: str) -> type:
    """A class, because programs ask isinstance() of it."""
    def refuse(cls: type, *_: Any, **__: Any) -> Any:
        from ..errors import UsageError

        raise UsageError(f"{full}: {why}")
    return type(full.rpartition(".")[2], (), {
        "__new__": refuse, "__doc__": f"Refused: {why}.", "__class_getitem__": classmethod(lambda cls, _: cls)})
