"""What a script does with weights and gradients from outside: in the loss, within a step, between steps."""
from __future__ import annotations

import copy
import random
from typing import Any

import torch
from torch.nn import functional as F

from .script import OUTSIDE, Outside
from .world import World

Tensor = torch.Tensor


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


@OUTSIDE.of(1)
class FastWeights(Outside):
    """the loss has what the model gives with other weights in the place of its own, which are made of them"""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.every = draw.choice((1, 1, 3))

    def loss(self, world: World, step: int, loss: Tensor) -> Tensor:
        moved = {name: each * 0.9 for name, each in list(world.model.named_parameters())[::self.every]}
        return loss + 0.1 * torch.func.functional_call(world.model, moved, (world.example(step),)).float().square().mean()


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


@OUTSIDE.of(1)
class GradientsAssigned(Outside):
    """tensors of the script's own become gradients, and are scaled afterwards"""

    one_backward = False

    def afterwards(self, world: World, step: int) -> None:
        own = []
        for each in world.model.parameters():
            if each.grad is not None and self.draw.random() < 0.7:
                own.append(each.grad.clone())
                each.grad = own[-1]
        for gradient in own:
            gradient.mul_(0.5)


@OUTSIDE.of(2)
class GradientsKept(Outside):
    """gradients, or parts of them, are kept beyond their step, and read until it alone"""

    one_backward = False

    def afterwards(self, world: World, step: int) -> None:
        self.kept = [each.grad.view(-1)[::2] for each in world.model.parameters() if each.grad is not None]
        for each in self.kept[::3]:
            world.note("sum", each.sum())


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


@OUTSIDE.of(1)
class WrittenWithin(Outside):
    """weights are written between a backward and its update: assigned, or in place"""

    one_backward = False

    def afterwards(self, world: World, step: int) -> None:
        one = world.model.get_parameter(self.draw.choice(world.names()))
        how = self.draw.choice(("assigned", "a part", "whole"))
        if how == "assigned" or world.program.cut == "resident":
            one.data = one.data.clone() * 0.9
            return
        with torch.no_grad():
            if how == "a part":
                one[:1] = 0.1
            else:
                one.mul_(0.9)


@OUTSIDE.of(1)
class WrittenByNumpy(Outside):
    """numpy writes into the memory of a weight between steps"""

    def after(self, world: World, step: int) -> None:
        world.model.get_parameter(self.draw.choice(world.names())).data.numpy()[...] *= 0.9


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
