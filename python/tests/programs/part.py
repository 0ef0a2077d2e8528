"""A step of a unit's forward: from (rows, WIDTH) to the same shape."""
from __future__ import annotations

import functools
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from .named import Named

WIDTH = 8
PARTS: Named[Part] = Named()
# How often each module's forward ran, by label. It is no module's attribute, so that no recompute puts it back.
RAN: Counter[str] = Counter()


@dataclass
class Given:
    """What a unit was given beside x."""

    scale: torch.Tensor | None = None
    generators: tuple[Any, ...] = ()
    fills: list[Any] | None = None  # the caller's own
    box: Any = None  # an object of the caller's, whose fields may be changed


class Counted(nn.Module):
    """Each run of its forward is counted."""

    label = "?"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "forward" in vars(cls):
            cls.forward = _counted(vars(cls)["forward"])


def _counted(forward: Any) -> Any:
    @functools.wraps(forward)
    def run(self: Counted, *args: Any, **kwargs: Any) -> Any:
        RAN[self.label] += 1
        return forward(self, *args, **kwargs)
    return run


class Part(Counted):
    """`draw` is its own. `join` gives it what it reads of the model, `begin` is called before each step, `switch`
    between two forwards of one backward."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def join(self, model: Any, unit: int) -> None:
        pass

    def begin(self, step: int) -> None:
        pass

    def switch(self) -> None:
        pass

    def forward(self, x: torch.Tensor, given: Given) -> torch.Tensor:
        raise NotImplementedError
