"""How the model calls a unit."""
from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from .named import RARE, Named

Tensor = torch.Tensor
Call = Callable[[Any, Any, Tensor], Tensor]  # the model, the unit, x
CALLS: Named[Call] = Named()


def through(model: Any, unit: Any, x: Tensor, call: Callable[..., Any] | None = None) -> Tensor:
    """x goes into the container that the unit takes, and comes out of the one that it gives."""
    args, kwargs = model.takes.pack(x)
    return unit.gives.read((call or unit)(*args, **kwargs))  # type: ignore[no-any-return]


@CALLS.of(12)
def called(draw: random.Random) -> Call:
    """it is called"""
    return through


@CALLS.of(1)
def its_forward(draw: random.Random) -> Call:
    """its forward is called directly"""
    return lambda model, unit, x: through(model, unit, x, unit.forward)


@CALLS.of(1)
def functional(draw: random.Random) -> Call:
    """torch.func.functional_call calls it, with nothing replaced"""
    return lambda model, unit, x: through(
        model, unit, x, lambda *args, **kwargs: torch.func.functional_call(unit, {}, args, kwargs))


@CALLS.of(RARE)
def functional_with_bias(draw: random.Random) -> Call:
    """torch.func.functional_call calls it, with a bias of the model's in the place of its own"""
    return lambda model, unit, x: through(model, unit, x, lambda *args, **kwargs: torch.func.functional_call(
        unit, {"parts.0.linear.bias": model.bias} if hasattr(unit.parts[0].linear, "bias") else {}, args, kwargs))


@CALLS.of(2)
def checkpointed(draw: random.Random) -> Call:
    """within torch's checkpoint, which is not reentrant"""
    return lambda model, unit, x: checkpoint(lambda y: through(model, unit, y), x, use_reentrant=False)


@CALLS.of(1)
def reentrant(draw: random.Random) -> Call:
    """within torch's reentrant checkpoint"""
    return lambda model, unit, x: checkpoint(lambda y: through(model, unit, y), x, use_reentrant=True)


@CALLS.of(1)
def checkpointed_with_shared(draw: random.Random) -> Call:
    """within one checkpoint with the shared module, not reentrant"""
    return lambda model, unit, x: checkpoint(lambda y: through(model, unit, torch.tanh(model.shared(y))), x,
                                             use_reentrant=False)


@CALLS.of(1)
def reentrant_with_shared(draw: random.Random) -> Call:
    """within one reentrant checkpoint with the shared module"""
    return lambda model, unit, x: checkpoint(lambda y: through(model, unit, torch.tanh(model.shared(y))), x,
                                             use_reentrant=True)


@CALLS.of(2)
def within_saved_hooks(draw: random.Random) -> Call:
    """within the program's own hooks for saved tensors"""
    how = draw.randrange(3)

    def call(model: Any, unit: Any, x: Tensor) -> Tensor:
        kept: list[Tensor] = []

        def put(each: Tensor) -> int:
            kept.append(each.detach().clone())
            return len(kept) - 1
        hooks: Any = (save_on_cpu, lambda: saved_tensors_hooks(lambda each: each * 1, lambda each: each),
                      lambda: saved_tensors_hooks(put, lambda at: kept[at]))[how]
        with hooks():
            return through(model, unit, x)
    return call


@CALLS.of(2)
def within_autocast(draw: random.Random) -> Call:
    """within autocast to bfloat16"""
    def call(model: Any, unit: Any, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return through(model, unit, x).float()
    return call


@CALLS.of(1)
def without_gradients(draw: random.Random) -> Call:
    """under no_grad, its output added to x"""
    def call(model: Any, unit: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            y = through(model, unit, x.clone())
        return x + y
    return call


@CALLS.of(2)
def twice(draw: random.Random) -> Call:
    """twice, the second time with what came out"""
    return lambda model, unit, x: through(model, unit, through(model, unit, x))


@CALLS.of(2)
def two_inputs(draw: random.Random) -> Call:
    """with x and with x / 2, switched in between; the outputs are added"""
    def call(model: Any, unit: Any, x: Tensor) -> Tensor:
        one = through(model, unit, x.clone())
        for part in unit.parts:
            part.switch()
        two = through(model, unit, x * 0.5)
        for part in unit.parts:
            part.switch()
        return one + two
    return call


@CALLS.of(2)
def changed_after(draw: random.Random) -> Call:
    """its output is changed in place afterwards"""
    return lambda model, unit, x: through(model, unit, x).mul_(0.9)


@CALLS.of(1)
def copied_argument(draw: random.Random) -> Call:
    """with a deep copy of x's container, detached; the gradient goes around it"""
    def call(model: Any, unit: Any, x: Tensor) -> Tensor:
        held = copy.deepcopy({"x": x.detach()})
        return x + through(model, unit, held["x"])
    return call


@CALLS.of(2)
def by_chance(draw: random.Random) -> Call:
    """or left out, as torch's or Python's generator says (LayerDrop)"""
    python = draw.random() < 0.5

    def call(model: Any, unit: Any, x: Tensor) -> Tensor:
        number = random.random() if python else float(torch.rand(()))
        return through(model, unit, x) if number < 0.6 else x
    return call


@CALLS.of(1)
def in_evaluation(draw: random.Random) -> Call:
    """in training, and beside that in eval() for its second output"""
    def call(model: Any, unit: Any, x: Tensor) -> Tensor:
        one, trains = through(model, unit, x.clone()), unit.training
        two = through(model, unit.eval(), x * 0.7)
        unit.train(trains)
        return one + two
    return call


@CALLS.of(1)
def with_anothers_weight(draw: random.Random) -> Call:
    """and then the weight of another unit is used without that unit being called"""
    at = draw.randrange(3)

    def call(model: Any, unit: Any, x: Tensor) -> Tensor:
        other = model.units[at % len(model.units)]
        return torch.tanh(torch.nn.functional.linear(through(model, unit, x), other.parts[0].linear.weight))
    return call


@CALLS.of(1)
def tries_it(draw: random.Random) -> Call:
    """first with an argument that it cannot take, whose error is caught"""
    def call(model: Any, unit: Any, x: Tensor) -> Tensor:
        try:
            unit(x[:, :3])
        except Exception:
            pass
        return through(model, unit, x)
    return call
