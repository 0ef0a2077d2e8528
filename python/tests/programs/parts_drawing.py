"""Parts that draw random numbers, from each generator that a program may have."""
from __future__ import annotations

import random
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn import functional as F

from .part import PARTS, WIDTH, Given, Part

Tensor = torch.Tensor


@PARTS.of(5)
class Dropout(Part):
    """Dropout from torch's global generator."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.rate = draw.choice((0.1, 0.5))
        self.dropout = nn.Dropout(self.rate, inplace=draw.random() < 0.3)

    def forward(self, x: Tensor, given: Given) -> Tensor:
        return x + self.dropout(torch.tanh(self.linear(F.dropout(x, self.rate, self.training))) * 1.0)


@PARTS.of(4)
class GlobalNoise(Part):
    """Python's, numpy's or torch's global generator: single numbers, numpy's normal ones, which come in pairs."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.whose = draw.choice(("python", "numpy", "numpy pairs", "torch", "python choice"))

    def _number(self) -> float:
        if self.whose == "python":
            return random.random()
        if self.whose == "python choice":
            return random.choice((0.5, 1.0, 2.0)) * random.gauss(1, 0.1)
        if self.whose == "torch":
            return float(torch.rand(()))
        return float(numpy.random.rand() if self.whose == "numpy" else numpy.random.randn())

    def forward(self, x: Tensor, given: Given) -> Tensor:
        return x + torch.tanh(self.linear(x * self._number()))


@PARTS.of(5)
class OwnGenerator(Part):
    """A generator of its own, in an attribute, in a list or a dict in one: torch's, numpy's, or Python's."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        seed = draw.randrange(100)
        self.whose = draw.choice(("torch", "numpy", "old numpy", "python"))
        self.where = draw.choice(("", "list", "dict"))
        makers: Any = {"torch": lambda: torch.Generator().manual_seed(seed),
                       "numpy": lambda: numpy.random.default_rng(seed),
                       "old numpy": lambda: numpy.random.RandomState(seed), "python": lambda: random.Random(seed)}
        made = makers[self.whose]()
        self.generator: Any = {"": made, "list": [made], "dict": {"it": made}}[self.where]

    def forward(self, x: Tensor, given: Given) -> Tensor:
        own = self.generator
        own = own[0] if self.where == "list" else own["it"] if self.where == "dict" else own
        if self.whose == "torch":
            noise: Any = torch.rand(WIDTH, generator=own)
        elif self.whose == "python":
            noise = own.random()
        else:
            noise = torch.from_numpy(own.standard_normal(WIDTH)).float()
        return x + torch.tanh(self.linear(x * noise))


@PARTS.of(2)
class SkipsByChance(Part):
    """Whether it computes at all is drawn."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.python = draw.random() < 0.5

    def forward(self, x: Tensor, given: Given) -> Tensor:
        number = random.random() if self.python else float(torch.rand(()))
        return x + torch.tanh(self.linear(x)) if number < 0.6 else x + 0.0


@PARTS.of(2)
class SeedsWithin(Part):
    """It forks or seeds torch's global generator within its forward."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.forks = draw.random() < 0.5

    def forward(self, x: Tensor, given: Given) -> Tensor:
        if self.forks:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(5)
                noise = torch.rand(WIDTH)
        else:
            before = torch.get_rng_state()
            noise = torch.rand(WIDTH) + torch.rand(())
            torch.set_rng_state(before)
        return x + torch.tanh(self.linear(x)) * noise * torch.rand(())
