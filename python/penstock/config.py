"""What penstock.initialize() takes out of a configuration that was written for DeepSpeed: batch, accumulation,
clipping, optimizer, scheduler, types. Where things are kept is the core's part of the same file."""
from __future__ import annotations

import difflib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from .errors import UsageError
from .loss_scale import LossScale
from .settings import Settings

Found = TypeVar("Found")
OPTIMIZERS = {"adamw": torch.optim.AdamW, "adam": torch.optim.AdamW, "sgd": torch.optim.SGD,
              "adagrad": torch.optim.Adagrad}  # DeepSpeed's "Adam" decays as AdamW unless adam_w_mode is false
READ = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping",
        "optimizer", "scheduler", "fp16", "bf16", "bfloat16")
# The core's, or without effect where there is one process and no log of ours.
OTHERS = ("zero_optimization", "aio", "activation_checkpointing", "steps_per_print", "wall_clock_breakdown",
          "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "dump_state", "prescale_gradients",
          "gradient_predivide_factor", "communication_data_type", "data_types", "checkpoint", "tensorboard", "wandb",
          "csv_monitor", "flops_profiler", "memory_breakdown", "sparse_gradients", "disable_allgather", "amp", "seed")


@dataclass(frozen=True)
class Config:
    settings: Settings
    optimizer: Callable[[Any], torch.optim.Optimizer] | None
    scheduler: Callable[[torch.optim.Optimizer], Any] | None
    not_read: tuple[str, ...]


def read_config(given: Mapping[str, Any] | str | os.PathLike[str]) -> Config:
    """A dictionary or a file of JSON. All that is wrong is said at once."""
    config = given if isinstance(given, Mapping) else _file(Path(given))
    wrong = [_unknown(key) for key in config if key not in READ + OTHERS]

    def tried(part: Callable[[Mapping[str, Any]], Found], otherwise: Found) -> Found:
        try:
            return part(config)
        except UsageError as error:
            wrong.append(str(error))
            return otherwise
    accumulation, clip, micro = tried(_batch, (1, 0.0, None))
    dtype, loss_scale = tried(_types, (None, None))
    optimizer, scheduler = tried(_optimizer, None), tried(_scheduler, None)
    if wrong:
        raise UsageError("configuration: " + "; ".join(wrong))
    settings = Settings(accumulation, clip, micro, dtype, loss_scale)
    return Config(settings, optimizer, scheduler, tuple(key for key in config if key in OTHERS))


def _file(path: Path) -> dict[str, Any]:
    try:
        loaded: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise UsageError(f"configuration {path}: no such file") from error
    except ValueError as error:
        raise UsageError(f"configuration {path}: {error}") from error
    return loaded


def _unknown(key: str) -> str:
    near = difflib.get_close_matches(key, READ + OTHERS, 1)
    return f"unknown key '{key}'" + (f", did you mean '{near[0]}'?" if near else "")


def _value(config: Mapping[str, Any], key: str, otherwise: Any) -> Any:
    """'auto' is as if it were not said."""
    value = config.get(key, otherwise)
    return otherwise if value == "auto" else value


def _section(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = _value(config, key, {})
    if not isinstance(value, Mapping):
        raise UsageError(f"{key}: an object is wanted, not {value!r}")
    return value


def _number(config: Mapping[str, Any], key: str, otherwise: Any, least: float = 0) -> Any:
    value = _value(config, key, otherwise)
    if value is otherwise:
        return value
    whole = isinstance(least, int) and least == 1
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or value < least:
        raise UsageError(f"{key}: {value!r} is not a {'whole ' if whole else ''}number of {least} or more")
    return value


def _batch(config: Mapping[str, Any]) -> tuple[int, float, int | None]:
    total = _number(config, "train_batch_size", None, 1)
    micro = _number(config, "train_micro_batch_size_per_gpu", None, 1)
    accumulation = _number(config, "gradient_accumulation_steps", None, 1)
    if total is not None and micro is None and accumulation is not None:
        micro = total // accumulation
    if total is not None and accumulation is None:
        micro = micro or total
        accumulation = total // micro
    accumulation = accumulation or 1
    if total is not None and micro is not None and micro * accumulation != total:
        raise UsageError(f"train_batch_size {total} is not train_micro_batch_size_per_gpu {micro} x "
                         f"gradient_accumulation_steps {accumulation} (there is one process)")
    return accumulation, float(_number(config, "gradient_clipping", 0.0)), micro


def _types(config: Mapping[str, Any]) -> tuple[torch.dtype | None, LossScale | None]:
    fp16, bf16 = _section(config, "fp16"), _section(config, "bf16" if "bf16" in config else "bfloat16")
    if _value(fp16, "enabled", False) and _value(bf16, "enabled", False):
        raise UsageError("fp16 and bf16 are both enabled: choose one")
    if _value(bf16, "enabled", False):
        return torch.bfloat16, None
    if not _value(fp16, "enabled", False):
        return None, None
    fixed = float(_number(fp16, "loss_scale", 0))
    if fixed:
        return torch.float16, LossScale(fixed, fixed=True)
    return torch.float16, LossScale.dynamic(
        _number(fp16, "initial_scale_power", 16), _number(fp16, "loss_scale_window", 1000, 1),
        _number(fp16, "hysteresis", 2, 1), float(_number(fp16, "min_loss_scale", 1)))


def _optimizer(config: Mapping[str, Any]) -> Callable[[Any], torch.optim.Optimizer] | None:
    given = _section(config, "optimizer")
    if not given:
        return None
    name = str(given.get("type", "")).lower()
    if name not in OPTIMIZERS:
        raise UsageError(f"optimizer.type '{given.get('type')}' is none of AdamW, Adam, SGD, Adagrad")
    options = {key: value for key, value in _section(given, "params").items() if value != "auto"}
    cls: Any = OPTIMIZERS[name]
    if name == "adam" and not options.pop("adam_w_mode", True):
        cls = torch.optim.Adam
    options.pop("torch_adam", None)
    if name == "adam":
        options.setdefault("weight_decay", 0.0)

    def make(parameters: Any) -> torch.optim.Optimizer:
        try:
            made: torch.optim.Optimizer = cls(parameters, **options)
        except TypeError as error:
            raise UsageError(f"optimizer.params: {error}") from error
        return made
    return make


def _scheduler(config: Mapping[str, Any]) -> Callable[[torch.optim.Optimizer], Any] | None:
    given = _section(config, "scheduler")
    if not given:
        return None
    options = {key: value for key, value in _section(given, "params").items() if value != "auto"}
    kind = given.get("type")
    if kind not in ("WarmupLR", "WarmupDecayLR"):
        raise UsageError(f"scheduler.type '{kind}' is none of WarmupLR, WarmupDecayLR; give a scheduler of torch "
                         "instead: penstock.initialize(lr_scheduler=...)")
    if kind == "WarmupDecayLR" and "total_num_steps" not in options:
        raise UsageError("scheduler.params.total_num_steps is missing: it says when the rate has decayed to 0")
    return lambda optimizer: torch.optim.lr_scheduler.LambdaLR(
        optimizer, [_rate_over_time(options, group["lr"]) for group in optimizer.param_groups])


def _rate_over_time(options: Mapping[str, Any], base: float) -> Callable[[int], float]:
    least, most = options.get("warmup_min_lr", 0.0), options.get("warmup_max_lr", base)
    warm = max(2, options.get("warmup_num_steps", 1000))
    total = options.get("total_num_steps")
    linear = options.get("warmup_type", "log") == "linear"

    def factor(step: int) -> float:
        if step < warm:
            part = step / warm if linear else math.log(step + 1) / math.log(warm)
        elif total is None:
            part = 1.0
        else:
            part = max(0.0, (total - step) / max(1.0, total - warm))
        return float(least + (most - least) * part) / base if base else 0.0
    return factor
