"""A program's script: its features outside of the model, and its steps."""
from __future__ import annotations

import contextlib
import random
from typing import Any

import torch
from torch.nn import functional as F

from .named import Named
from .program import Program
from .world import World

OUTSIDE: Named[Outside] = Named()
BACKWARDS: Named[Backward] = Named()


class Outside:
    """What a script does beside its steps. `one_backward`: it also may where units are updated within backward."""

    one_backward = True

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def early(self, world: World) -> None:
        """Before the model is managed."""

    def prepare(self, world: World) -> None:
        """Before the first step."""

    def before(self, world: World, step: int) -> None:
        """Between steps."""

    def around(self, world: World, step: int) -> contextlib.AbstractContextManager[Any]:
        """Around each forward of a step."""
        return contextlib.nullcontext()

    def around_backward(self, world: World, step: int) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def data(self, world: World, step: int, data: torch.Tensor) -> torch.Tensor:
        return data

    def loss(self, world: World, step: int, loss: torch.Tensor) -> torch.Tensor:
        return loss

    def between(self, world: World, step: int) -> None:
        """After the forward, before backward."""

    def afterwards(self, world: World, step: int) -> None:
        """After backward, before the update."""

    def after(self, world: World, step: int) -> None:
        """After the update."""


class Backward:
    """What a step's forwards and backwards are."""

    one_backward = False  # a step has one backward only, or the engine is told how many
    loop = ""  # the only one in which it can be; "": either
    accumulation = 1

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def step(self, script: Script, step: int) -> None:
        raise NotImplementedError


class Script:
    def __init__(self, program: Program, world: World) -> None:
        self.world, self.steps = world, program.steps
        self.outside = [OUTSIDE.make(each) for each in program.outside]
        self.way = BACKWARDS.make(program.backward)
        world.accumulation = self.way.accumulation

    def run(self) -> None:
        world = self.world
        for each in self.outside:
            each.early(world)
        world.manage()
        for each in self.outside:
            each.prepare(world)
        for step in range(self.steps):
            for part in world.model.all_parts():
                part.begin(step)
            for each in self.outside:
                each.before(world, step)
            self.way.step(self, step)
            for each in self.outside:
                each.after(world, step)

    # What a way is made of.
    def example(self, step: int) -> torch.Tensor:
        data = self.world.example(step)
        for each in self.outside:
            data = each.data(self.world, step, data)
        return data

    def forward(self, step: int, data: torch.Tensor | None = None) -> torch.Tensor:
        with contextlib.ExitStack() as stack:
            for each in self.outside:
                stack.enter_context(each.around(self.world, step))
            return self.world(self.example(step) if data is None else data)

    def loss(self, step: int, out: torch.Tensor) -> torch.Tensor:
        target = torch.arange(out.shape[0]) % out.shape[1]
        loss = F.cross_entropy(8 * torch.tanh(out.float() / 8), target)  # so that few programs' numbers become none
        for each in self.outside:
            loss = each.loss(self.world, step, loss)
        self.world.note("loss", loss)
        return loss

    def backward(self, step: int, loss: torch.Tensor, **options: Any) -> None:
        for each in self.outside:
            each.between(self.world, step)
        with contextlib.ExitStack() as stack:
            for each in self.outside:
                stack.enter_context(each.around_backward(self.world, step))
            self.world.backward(loss, **options)

    def update(self, step: int) -> None:
        for each in self.outside:
            each.afterwards(self.world, step)
        self.world.update()

    def switch(self) -> None:
        for part in self.world.model.all_parts():
            part.switch()
