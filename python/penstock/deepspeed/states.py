"""safe_get_full_fp32_param() and its kin: what a store has of one parameter. In one process the local ones are the
same."""
from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..errors import UsageError
from ..weights.parameter import engine_of


def get_master(param: nn.Parameter) -> torch.Tensor | None:
    """A copy in fp32; None of a parameter that is not trained, or no engine's."""
    engine = engine_of(param)
    if engine is None or not engine.binding.learns(param):
        return None
    values: torch.Tensor = engine.weight(engine.binding.names[param], "master")
    return values


def set_master(param: nn.Parameter, value: torch.Tensor) -> None:
    """The weight is its rounding then."""
    engine = _trained_by(param)
    engine.set_weight(engine.binding.names[param], value, "master")


def get_moment(param: nn.Parameter, optim_state_key: str) -> torch.Tensor | None:
    """By torch's names, exp_avg and so on; None as get_master()."""
    engine = engine_of(param)
    if engine is None or not engine.binding.learns(param):
        return None
    values: torch.Tensor = engine.weight(engine.binding.names[param], _moment(engine, optim_state_key))
    return values


def set_moment(param: nn.Parameter, value: torch.Tensor, optim_state_key: str) -> None:
    """Replaces it."""
    engine = _trained_by(param)
    engine.set_weight(engine.binding.names[param], value, _moment(engine, optim_state_key))


def get_gradient(param: nn.Parameter) -> torch.Tensor | None:
    """The sum so far, in fp32; None where none has come."""
    gradient = param.grad
    return None if gradient is None else gradient.detach().float().clone()


def set_gradient(param: nn.Parameter, value: torch.Tensor) -> None:
    """Replaces the sum."""
    param.grad = value.detach().to(param.dtype)


def _trained_by(param: nn.Parameter) -> Any:
    engine = engine_of(param)
    if engine is None:
        raise UsageError("safe_set_...(): this parameter is of no engine of deepspeed.initialize()'s")
    return engine


def _moment(engine: Any, key: str) -> Any:
    there = engine.optimizer.state.moments
    if key not in there:
        raise UsageError(f"there is no optimizer state '{key}'; there are {', '.join(there)}")
    return there[key]
