"""Hooks that a script registers: on units, on what is within them, on the model, on tensors, on weights."""
from __future__ import annotations

import random
from typing import Any

import torch
from torch import nn

from .named import RARE
from .script import OUTSIDE, Outside
from .world import World, modules_of

Tensor = torch.Tensor


def only_tensor(given: Any) -> Tensor | None:
    """The first tensor of what a module was given, or gives."""
    if isinstance(given, (tuple, list)) and given:
        given = given[0]
    return given if isinstance(given, Tensor) else None


class Registered(Outside):
    """A hook that is registered before the model is managed, after that, or before a later step, and may be removed."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.when, self.removed = draw.choice((-2, -1, -1, 1)), draw.choice((0, 0, 2))
        self.handles: list[Any] = []

    def register(self, world: World) -> list[Any]:
        raise NotImplementedError

    def early(self, world: World) -> None:
        if self.when == -2:
            self.handles = self.register(world)

    def prepare(self, world: World) -> None:
        if self.when == -1:
            self.handles = self.register(world)

    def before(self, world: World, step: int) -> None:
        if step == self.when:
            self.handles = self.register(world)
        if step == self.removed and step > self.when:
            for each in self.handles:
                each.remove()

    def one(self, world: World) -> nn.Module:
        return self.draw.choice(modules_of(world))


@OUTSIDE.of(5)
class ForwardStatistics(Registered):
    """a forward hook writes down the mean of what a module gives, or how often it is called"""

    def register(self, world: World) -> list[Any]:
        def see(module: Any, given: Any, out: Any) -> None:
            tensor = only_tensor(out)
            world.see(1 if tensor is None else tensor.mean())
        return [self.one(world).register_forward_hook(see, always_call=self.draw.random() < 0.2)]


@OUTSIDE.of(3)
class StatisticInLoss(Registered):
    """the loss is multiplied by a number that counts how often a module's forward hook was called"""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.calls = 0

    def register(self, world: World) -> list[Any]:
        def count(*_: Any) -> None:
            self.calls += 1
        return [self.one(world).register_forward_hook(count)]

    def loss(self, world: World, step: int, loss: Tensor) -> Tensor:
        return loss * (1 + 0.01 * self.calls)


@OUTSIDE.of(RARE)
class RunningStatistic(Registered):
    """a forward pre-hook keeps a running mean of what a module is given, and centres what it is given by it"""

    def register(self, world: World) -> list[Any]:
        kept: list[Tensor] = []

        def centre(module: Any, given: Any) -> Any:
            if not given or not isinstance(given[0], Tensor) or not given[0].is_floating_point():
                return None
            mean = given[0].detach().float().mean(0)
            kept[:] = [mean if not kept else kept[0] * 0.9 + mean * 0.1]
            return (given[0] - 0.1 * kept[0].to(given[0].dtype), *given[1:])
        parts = world.model.all_parts()
        return [self.draw.choice([*parts, *(each.linear for each in parts)]).register_forward_pre_hook(centre)]


@OUTSIDE.of(4)
class OutputChanged(Registered):
    """a forward hook gives another output (steering), by a factor that the script changes with each step, or before
    backward, too"""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.factor, self.restless = 1.1, draw.random() < 0.1

    def register(self, world: World) -> list[Any]:
        def steer(module: Any, given: Any, out: Any) -> Any:
            return out * self.factor if isinstance(out, Tensor) else None
        return [self.one(world).register_forward_hook(steer)]

    def before(self, world: World, step: int) -> None:
        super().before(world, step)
        self.factor = 1.1 + 0.1 * step

    def between(self, world: World, step: int) -> None:
        if self.restless:
            self.factor *= 1.5


@OUTSIDE.of(2)
class ForOneForward(Registered):
    """a hook is there for the first forward of each step and gone before backward (a context of the program's)"""

    def register(self, world: World) -> list[Any]:
        self.module = self.one(world)
        return []

    def around(self, world: World, step: int) -> Any:
        if not hasattr(self, "module"):
            return super().around(world, step)
        handle = self.module.register_forward_hook(
            lambda module, given, out: out * 0.9 if isinstance(out, Tensor) else None)
        return handle  # removed on leaving


@OUTSIDE.of(3)
class FullBackward(Registered):
    """a full backward hook, or pre-hook, writes down norms of gradients or scales them"""

    def register(self, world: World) -> list[Any]:
        scales = self.draw.random() < 0.3

        def after(module: Any, inner: Any, outer: Any) -> Any:
            world.see(sum(each.float().norm() for each in (*inner, *outer) if each is not None))
            return tuple(None if each is None else each * 0.5 for each in inner) if scales else None

        def before(module: Any, outer: Any) -> Any:
            world.see(sum(each.float().norm() for each in outer if each is not None))
            return tuple(None if each is None else each * 0.5 for each in outer) if scales else None
        module = self.one(world)
        if self.draw.random() < 0.5:
            return [module.register_full_backward_hook(after)]
        return [module.register_full_backward_pre_hook(before)]


@OUTSIDE.of(3)
class ActivationHook(Registered):
    """a forward hook puts a hook on what a module gives, which writes down its gradient or scales it"""

    def register(self, world: World) -> list[Any]:
        scales = self.draw.random() < 0.4

        def hook(gradient: Tensor) -> Tensor | None:
            world.see(gradient.float().norm())
            return gradient * 0.5 if scales else None

        def put(module: Any, given: Any, out: Any) -> None:
            tensor = only_tensor(out)
            if tensor is not None and tensor.requires_grad:
                tensor.register_hook(hook)
        return [self.one(world).register_forward_hook(put)]


@OUTSIDE.of(3)
class WeightHook(Registered):
    """a hook on a weight writes down its gradient's norm, or halves it"""

    def register(self, world: World) -> list[Any]:
        halves = self.draw.random() < 0.5

        def hook(gradient: Tensor) -> Tensor | None:
            world.see(gradient.norm())
            return gradient * 0.5 if halves else None
        return [world.model.get_parameter(self.draw.choice(world.names())).register_hook(hook)]


@OUTSIDE.of(1)
class AccumulatedHook(Registered):
    """register_post_accumulate_grad_hook of a weight, which reads and scales .grad"""

    one_backward = False

    def register(self, world: World) -> list[Any]:
        def hook(parameter: Any) -> None:
            world.see(parameter.grad.norm())
            parameter.grad.mul_(0.5)
        return [world.model.get_parameter(self.draw.choice(world.names())).register_post_accumulate_grad_hook(hook)]


@OUTSIDE.of(3)
class WeightsLoggedInHook(Registered):
    """a logger in a forward hook reads all weights, those of a unit, or one of another unit"""

    def register(self, world: World) -> list[Any]:
        which = self.draw.choice(("all", "own", "another"))
        module, other = self.one(world), world.model.get_parameter(self.draw.choice(world.names()))

        def log(module: Any, given: Any, out: Any) -> None:
            read = [other] if which == "another" else (module if which == "own" else world.model).parameters()
            with torch.no_grad():
                world.see([float(each.norm()) for each in read])
        return [module.register_forward_hook(log)]


@OUTSIDE.of(2)
class CallsAnotherInBackward(Registered):
    """a full backward hook of one module calls another one's linear, without gradients"""

    def register(self, world: World) -> list[Any]:
        other = self.draw.choice(world.model.all_parts()).linear

        def call(module: Any, inner: Any, outer: Any) -> None:
            if outer and outer[0] is not None and outer[0].shape[-1] == 8:
                with torch.no_grad():
                    world.see(other(outer[0].float()).mean())
        return [self.draw.choice(world.model.all_parts()).register_full_backward_hook(call)]


@OUTSIDE.of(1)
class GlobalHook(Registered):
    """a hook of all modules of the process counts calls of the model's"""

    def register(self, world: World) -> list[Any]:
        seen, own = [0], set(world.model.modules())

        def count(module: Any, *_: Any) -> None:
            seen[0] += module in own
        handle = nn.modules.module.register_module_forward_hook(count)
        world.undo.append(handle.remove)
        world.undo.append(lambda: world.see(seen[0]))
        return []


@OUTSIDE.of(2)
class HookKeepsOutput(Registered):
    """a forward hook keeps what a module gives, with its graph, and the loss has a term of it"""

    def register(self, world: World) -> list[Any]:
        self.kept: list[Tensor] = []

        def keep(module: Any, given: Any, out: Any) -> None:
            tensor = only_tensor(out)
            if tensor is not None and tensor.requires_grad:
                self.kept.append(tensor)
        return [self.draw.choice(world.model.all_parts()).register_forward_hook(keep)]

    def loss(self, world: World, step: int, loss: Tensor) -> Tensor:
        kept = getattr(self, "kept", [])
        for each in kept:
            loss = loss + 0.01 * each.float().square().mean()
        kept.clear()
        return loss
