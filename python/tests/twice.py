"""A program that trains a model of its own, run by plain torch and managed: the same bits, or an error by name."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import penstock
import small_models as small
from compare import adamw
from cores import test_core
from penstock.weights.bits import same_bits
from penstock.weights.parameter import Released

RESIDENT = pytest.mark.parametrize("resident", [(), ("*",), ("head",), ("*.bias",)])
Program = Callable[[nn.Module, torch.optim.Optimizer], Any]


def managed(make: Callable[[], nn.Module] = small.Stack, optimizer: Any = adamw, **options: Any) -> penstock.Engine:
    """An engine over a model that is made with the same draws each time."""
    torch.manual_seed(0)
    model = make()
    return penstock.initialize(model, optimizer(model.parameters()), core=test_core(), **options)[0]


def released(engine: penstock.Engine) -> bool:
    """None of its weights is there."""
    return all(isinstance(each, Released) for each in engine.module.parameters())


def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int,
         loss_of: Callable[[nn.Module, Any], torch.Tensor] = small.loss, batch: Callable[[int], Any] = small.ids) -> float:
    loss = loss_of(model, batch(number))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def run(program: Program, managed: bool, make: Callable[[], nn.Module] = small.Stack, optimizer: Any = adamw,
        **options: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """What it gives, and the weights at its end."""
    torch.manual_seed(0)
    model = make()
    used = optimizer(model.parameters())
    if managed:
        _, used, _, _ = penstock.initialize(model, used, core=test_core(), **options)
    torch.manual_seed(1)
    return program(model, used), dict(model.state_dict())


def check(program: Program, **options: Any) -> None:
    """Bit for bit what plain torch does."""
    found, weights = run(program, True, **options)
    expected, plain = run(program, False, **{key: value for key, value in options.items() if key in ("make", "optimizer")})
    assert found == expected
    assert weights.keys() == plain.keys()
    different = [name for name, each in plain.items() if not same_bits(each, weights[name])]
    assert not different, different
