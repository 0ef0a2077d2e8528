"""What a script does with modes and modules from outside, beside its steps."""
from __future__ import annotations

import contextlib
import gc
import random
import types
from typing import Any

import torch
from torch.autograd.graph import save_on_cpu
from torch.nn import functional as F

from .script import OUTSIDE, Outside
from .world import World

Tensor = torch.Tensor


# Modes.
@OUTSIDE.of(4)
class Evaluation(Outside):
    """an evaluation between steps, under no_grad or inference_mode, in eval() or not"""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.grad_mode = draw.choice((torch.no_grad, torch.inference_mode))
        self.evaluates, self.first = draw.random() < 0.6, draw.choice((0, 0, 1))

    def before(self, world: World, step: int) -> None:
        if step < self.first:
            return
        world.model.train(not self.evaluates)
        with self.grad_mode():
            world.note("evaluation", world(world.example(step)).clone())
        world.model.train()


@OUTSIDE.of(2)
class EvaluationWithin(Outside):
    """an evaluation between a step's forward and its backward"""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.grad_mode, self.evaluates = draw.choice((torch.no_grad, torch.inference_mode)), draw.random() < 0.5

    def between(self, world: World, step: int) -> None:
        world.model.train(not self.evaluates)
        with self.grad_mode():
            world.note("evaluation", world(world.example(step)).clone())
        world.model.train()


@OUTSIDE.of(2)
class EvalBeforeBackward(Outside):
    """the model, or one of its parts, is put in eval() between forward and backward, and in train() after it"""

    def between(self, world: World, step: int) -> None:
        (world.model if self.draw.random() < 0.5 else self.draw.choice(world.model.all_parts())).eval()

    def afterwards(self, world: World, step: int) -> None:
        world.model.train()


@OUTSIDE.of(2)
class FrozenMode(Outside):
    """a part is in eval() for some steps"""

    def before(self, world: World, step: int) -> None:
        self.draw.choice(world.model.all_parts()).train(step % 2 == 0)


@OUTSIDE.of(2)
class Autocast(Outside):
    """forwards are within autocast to bfloat16"""

    def around(self, world: World, step: int) -> Any:
        return torch.autocast("cpu", dtype=torch.bfloat16)


@OUTSIDE.of(2)
class SavedHooksAround(Outside):
    """forwards are within the program's own hooks for saved tensors"""

    def around(self, world: World, step: int) -> Any:
        if self.draw.random() < 0.5:
            return save_on_cpu()
        return torch.autograd.graph.saved_tensors_hooks(lambda each: each * 1, lambda each: each)


@OUTSIDE.of(1)
class Anomaly(Outside):
    """anomaly detection around forward and backward"""

    def around(self, world: World, step: int) -> Any:
        return torch.autograd.set_detect_anomaly(True)

    around_backward = around


@OUTSIDE.of(2)
class Seeded(Outside):
    """the script seeds or draws from torch's generator between forward and backward"""

    def between(self, world: World, step: int) -> None:
        if self.draw.random() < 0.5:
            torch.manual_seed(step)
        else:
            world.note("drawn", torch.rand(2))


# Modules.
@OUTSIDE.of(3)
class PatchedForward(Outside):
    """a part's or a unit's forward is replaced on the instance, before or after the model is managed"""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.is_early, self.of_unit = draw.random() < 0.3, draw.random() < 0.4

    def _patch(self, world: World) -> None:
        if self.of_unit:
            unit: Any = self.draw.choice(list(world.model.units))
            inner = unit.forward

            def around(*args: Any, **kwargs: Any) -> Any:
                world.see("called")
                return inner(*args, **kwargs)
            unit.forward = around
            return
        part: Any = self.draw.choice(world.model.all_parts())

        def forward(self: Any, x: Tensor, given: Any) -> Tensor:
            return x + torch.tanh(F.linear(x, self.linear.weight))
        part.forward = types.MethodType(forward, part)

    def early(self, world: World) -> None:
        if self.is_early:
            self._patch(world)

    def prepare(self, world: World) -> None:
        if not self.is_early:
            self._patch(world)


@OUTSIDE.of(3)
class Switched(Outside):
    """attributes of parts are changed between steps, or between forward and backward"""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.within = draw.random() < 0.5

    def before(self, world: World, step: int) -> None:
        if not self.within:
            for each in world.model.all_parts():
                each.switch()

    def between(self, world: World, step: int) -> None:
        if self.within:
            for each in world.model.all_parts():
                each.switch()


@OUTSIDE.of(3)
class OtherRoute(Outside):
    """in some steps units are left out, called in another order, or twice"""

    def before(self, world: World, step: int) -> None:
        route = list(world.program.route)
        if step % 2:
            self.draw.shuffle(route)
            route = route[:-1] or route
        world.model.route = tuple(route)


@OUTSIDE.of(2)
class CaughtErrors(Outside):
    """parts that can raise do so in a forward of some steps, or a hook does in a backward; the script catches it"""

    one_backward = False

    def before(self, world: World, step: int) -> None:
        raising = [each for each in world.model.all_parts() if hasattr(each, "fails")]
        if step % 2:
            return
        for each in raising:
            each.fails = True
        with contextlib.suppress(KeyError):
            out = world(world.example(step))
            if not raising:
                out.register_hook(_raise)
                out.sum().backward()
        for each in raising:
            each.fails = False
        world.optimizer.zero_grad()


def _raise(gradient: Tensor) -> None:
    raise KeyError("raised in a backward")


@OUTSIDE.of(2)
class UnusedForward(Outside):
    """a forward with gradients whose output nobody uses, dropped at once or kept until the next step"""

    kept: Any = None

    def before(self, world: World, step: int) -> None:
        out = world(world.example(step))
        self.kept = out if self.draw.random() < 0.5 else None


@OUTSIDE.of(2)
class GradientOfInput(Outside):
    """the input requires a gradient, which is read after backward"""

    given: Any = None

    def data(self, world: World, step: int, data: Tensor) -> Tensor:
        if data.is_floating_point() and torch.is_grad_enabled():
            self.given = data.requires_grad_()
        return data

    def afterwards(self, world: World, step: int) -> None:
        if self.given is not None and self.given.grad is not None:
            world.note("gradient of input", self.given.grad)


@OUTSIDE.of(1)
class Collected(Outside):
    """the garbage collector runs between forward and backward"""

    def between(self, world: World, step: int) -> None:
        gc.collect()
