"""What a script does with weights, modes and modules from outside, beside its steps."""
from __future__ import annotations

import contextlib
import copy
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


# Terms of the loss.
@OUTSIDE.of(4)
class PenaltyOnWeights(Outside):
    """a penalty over all weights, some, or one, as squares, absolute values, or one concatenation"""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.which, self.how = draw.choice(("all", "all", "some", "one")), draw.choice(("square", "abs", "cat", "gram"))

    def loss(self, world: World, step: int, loss: Tensor) -> Tensor:
        parameters = list(world.model.parameters())
        if self.which != "all":
            parameters = parameters[1:4] if self.which == "some" else parameters[-1:]
        if self.how == "cat":
            return loss + 1e-3 * torch.cat([each.reshape(-1) for each in parameters]).square().sum()
        if self.how == "gram":
            return loss + 1e-3 * sum((each @ each.t()).square().sum() for each in parameters if each.dim() == 2)
        return loss + 1e-3 * sum((each.square() if self.how == "square" else each.abs()).sum() for each in parameters)


@OUTSIDE.of(2)
class Anchored(Outside):
    """weights are held to what they were at the first step (EWC), by copies that the script took"""

    def before(self, world: World, step: int) -> None:
        if step == 0:
            self.anchors = {name: world.weight(name) for name in world.names()[:4]}

    def loss(self, world: World, step: int, loss: Tensor) -> Tensor:
        for name, anchor in self.anchors.items():
            loss = loss + 0.01 * (world.model.get_parameter(name) - anchor).square().sum()
        return loss


@OUTSIDE.of(2)
class WeightInLoss(Outside):
    """the loss uses a weight of a unit by a function, without calling the unit"""

    def loss(self, world: World, step: int, loss: Tensor) -> Tensor:
        weight = self.draw.choice(world.model.all_parts()).linear.weight
        return loss + 0.01 * F.linear(torch.ones(2, weight.shape[1]), weight).square().mean()


@OUTSIDE.of(2)
class Distilled(Outside):
    """the loss is held to what the model gives without gradients, or to a detached output of an earlier step"""

    last: Any = None

    def loss(self, world: World, step: int, loss: Tensor) -> Tensor:
        with torch.no_grad():
            out = world.model(world.example(step)).float()
        self.last, last = out.mean(0), self.last
        return loss + (0 if last is None else 0.1 * (last - out).square().mean())


# Weights and gradients.
@OUTSIDE.of(3)
class Toggled(Outside):
    """requires_grad_ of a module is switched off for some steps and on again"""

    def before(self, world: World, step: int) -> None:
        if step == 0:
            self.module = self.draw.choice([*world.model.units, *world.model.all_parts(), world.model.head])
        self.module.requires_grad_(step % 2 == 0)

    def after(self, world: World, step: int) -> None:
        if step == world.program.steps - 1:
            self.module.requires_grad_(True)


@OUTSIDE.of(2)
class Clipped(Outside):
    """clip_grad_norm_ or clip_grad_value_ after backward"""

    one_backward = False

    def afterwards(self, world: World, step: int) -> None:
        if self.draw.random() < 0.5:
            world.note("norm", torch.nn.utils.clip_grad_norm_(world.model.parameters(), 0.5, foreach=False))
        else:
            torch.nn.utils.clip_grad_value_(world.model.parameters(), 0.05, foreach=False)


@OUTSIDE.of(2)
class GradientsRead(Outside):
    """norms of gradients are written down, and one is changed in place, assigned or set to None, after backward"""

    one_backward = False

    def afterwards(self, world: World, step: int) -> None:
        parameters = [each for each in world.model.parameters() if each.grad is not None]
        for each in parameters:
            assert each.grad is not None
            world.note("gradient", each.grad.norm())
        one, how = self.draw.choice(parameters), self.draw.choice(("in place", "assigned", "none"))
        assert one.grad is not None
        if how == "in place":
            one.grad.mul_(0.5)
        else:
            one.grad = None if how == "none" else one.grad * 0.5


@OUTSIDE.of(2)
class WeightsLogged(Outside):
    """weights are read between a step's forward and its backward"""

    def between(self, world: World, step: int) -> None:
        with torch.no_grad():
            for each in list(world.model.parameters())[step::2]:
                world.note("norm", each.norm())


@OUTSIDE.of(2)
class WeightsReadBetween(Outside):
    """weights are read between steps, one or the whole state_dict"""

    def after(self, world: World, step: int) -> None:
        world.note("weight", world.weight(self.draw.choice(world.names())))
        if self.draw.random() < 0.5:
            world.note("sum", sum(float(each.double().sum()) for _, each in world.state()))


@OUTSIDE.of(2)
class WeightsChanged(Outside):
    """weights are changed between steps, as the package wants it, or loaded from a state_dict"""

    def after(self, world: World, step: int) -> None:
        if self.draw.random() < 0.6:
            world.change(self.draw.choice(world.names()), 0.9)
        else:
            state = {name: each * 0.99 if each.is_floating_point() else each for name, each in world.state()}
            world.model.load_state_dict(state)


@OUTSIDE.of(1)
class DataAssigned(Outside):
    """.data of a weight is assigned between steps"""

    def after(self, world: World, step: int) -> None:
        name = self.draw.choice(world.names())
        world.model.get_parameter(name).data = world.weight(name) * 0.9


@OUTSIDE.of(2)
class Likes(Outside):
    """what asks a weight for its shape alone: zeros_like, new_zeros, to("meta"), str, shape"""

    def between(self, world: World, step: int) -> None:
        for each in world.model.parameters():
            made = torch.zeros_like(each), each.new_zeros(2), each.to("meta")
            world.note("shapes", [str(tuple(one.shape)) for one in made] + [each.dim(), len(str(each)) > 3])

    after = between


@OUTSIDE.of(1)
class CopiedModel(Outside):
    """copy.deepcopy of the model between steps (target networks, EMA), which is then called"""

    def before(self, world: World, step: int) -> None:
        if step == 1:
            other = copy.deepcopy(world.model)
            with torch.no_grad():
                world.note("copy", other(world.example(step)))


@OUTSIDE.of(2)
class Rates(Outside):
    """the script changes rates and weight decay of the optimizer's groups"""

    def before(self, world: World, step: int) -> None:
        for group in world.optimizer.param_groups:
            group["lr"] = group["lr"] * (0.9 if step else 1.0)
            group["weight_decay"] = 0.01 * step


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
