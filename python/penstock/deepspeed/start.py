"""deepspeed.initialize()."""
from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from . import comm
from ..configuration import deepspeed_calls
from ..configuration.config import read_config
from ..errors import UsageError
from ..opening import initialize as initialize_penstock
from ..run.progress import listen
from ..version import version
from ..weights.parameter import engine_of
from .configuration.given import configuration, section, with_defaults
from .configuration.values import own_keys, resolve
from .engine import DeepSpeedEngine
from .idle import IdleEngine
from .leaves import z3_leaf_module
from .placement import placement_of, taken_otherwise
from .registered import VERSION
from .telling import LOGGER, log_dist
from .zero import answer_of_parameters

Given = tuple[Any, Any, Any, Any]
ELSE = "leave it to transformers or Accelerate, which fill it in for scripts of theirs"


def initialize(args: Any = None, model: nn.Module | None = None, optimizer: Any = None, model_parameters: Any = None,
               training_data: Any = None, lr_scheduler: Any = None, distributed_port: int = 29500, mpu: Any = None,
               dist_init_required: bool | None = None, collate_fn: Callable[..., Any] | None = None, config: Any = None,
               mesh_param: Any = None, config_params: Any = None) -> Given:
    """(engine, optimizer, loader or None, scheduler or None). The configuration is `config`, `config_params`, or what
    `args.deepspeed_config` names. A model that an engine has already is taken from it, as it is then."""
    if not isinstance(model, nn.Module):
        raise UsageError(f"deepspeed.initialize(model=...): a torch.nn.Module, not {type(model).__name__}")
    deepspeed_calls.check_arguments(mpu, mesh_param, None)
    comm.init_distributed(distributed_port=distributed_port, dist_init_required=dist_init_required)
    log_dist(f"DeepSpeed info: version={VERSION}, its surface over Penstock {version()}", ranks=[0])
    given = configuration(deepspeed_calls.config_of(config, config_params, args))
    full = with_defaults(given)
    if callable(optimizer) and not isinstance(optimizer, torch.optim.Optimizer):
        optimizer = optimizer(model_parameters if model_parameters is not None else list(model.parameters()))
    own = [name for name, each in {"optimizer": optimizer, "scheduler": lr_scheduler}.items() if each is not None]
    read = read_config(full, own=own, else_=ELSE, resolve=resolve, ranks=comm.get_world_size())
    answer_of_parameters()
    if optimizer is None and read.optimizer is None:
        idle = IdleEngine(model, given, read.settings, training_data, collate_fn)
        return idle, None, idle.training_dataloader, None
    take_back(model)
    place = placement_of(given, read, comm.get_world_size())
    listen()
    otherwise = taken_otherwise(given, comm.get_world_size())
    if otherwise is not None and comm.get_rank() == 0:
        LOGGER.warning("%s", otherwise)
    engine, made, loader, scheduler = initialize_penstock(
        model, _without_empty_groups(optimizer), None if optimizer is not None else model_parameters, training_data,
        lr_scheduler, config=own_keys(full), store=place.store, collate_fn=collate_fn,
        resident=place.resident(model), units=_leaves(model), engine_class=DeepSpeedEngine)
    assert isinstance(engine, DeepSpeedEngine)
    engine.answer_for(given, loader)
    return engine, made, loader, scheduler


def take_back(model: nn.Module) -> None:
    """From the engine that has it. Raises UsageError where an engine of another module has a part of it."""
    engines = {id(engine): engine for engine in map(engine_of, model.parameters()) if engine is not None}
    for engine in engines.values():
        if engine.module is not model:
            name = next(name for name, each in model.named_parameters() if engine_of(each) is engine)
            raise UsageError(f"deepspeed.initialize(): parameter '{name}' is of another module's engine already, and "
                             "two engines never share one: say destroy() to that engine before")
        engine.release()


def add_config_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Adds --deepspeed and --deepspeed_config."""
    group = parser.add_argument_group("DeepSpeed", "answered by Penstock")
    group.add_argument("--deepspeed", action="store_true", help="for the program's own use")
    group.add_argument("--deepspeed_config", type=str, help="file of JSON")
    group.add_argument("--deepscale", action="store_true", help=argparse.SUPPRESS)
    group.add_argument("--deepscale_config", type=str, help=argparse.SUPPRESS)
    return parser


class DeepSpeedConfig:
    """What programs read of a configuration before there is an engine."""

    def __init__(self, config: Any, mpu: Any = None, mesh_device: Any = None) -> None:
        self._param_dict = configuration(config)
        self.world_size = comm.get_world_size()
        read = read_config(self._param_dict, resolve=resolve, ranks=self.world_size)
        settings = read.settings
        self.monitor_config = read.monitors()
        self.train_micro_batch_size_per_gpu = settings.micro_batch
        self.gradient_accumulation_steps = settings.accumulation
        self.train_batch_size = (settings.micro_batch or 1) * settings.accumulation * self.world_size
        self.gradient_clipping = settings.clip
        self.zero_optimization_stage = int(section(self._param_dict, "zero_optimization").get("stage", 0))


def _without_empty_groups(optimizer: torch.optim.Optimizer | None) -> torch.optim.Optimizer | None:
    if optimizer is not None:
        optimizer.param_groups[:] = [group for group in optimizer.param_groups if group["params"]]
    return optimizer


def _leaves(model: nn.Module) -> list[str]:
    """Modules that are marked to be gathered as a whole, but for those within another one."""
    marked = [name for name, each in model.named_modules() if name and z3_leaf_module(each)]
    return [name for name in marked if not any(name.startswith(f"{other}.") for other in marked)]
