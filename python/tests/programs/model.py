"""The model of a program: a stem, units in a ModuleList, a head, a module that units share."""
from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .arguments import GIVES, TAKES
from .calls import CALLS
from .part import PARTS, WIDTH, Counted, Part
from .program import Program, UnitPlan

CLASSES = 11


class Unit(Counted):
    def __init__(self, plan: UnitPlan, takes: Any) -> None:
        super().__init__()
        self.parts = nn.ModuleList(PARTS.make(each) for each in plan.parts)
        self.takes, self.gives = takes, GIVES.make(plan.gives)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        x, given = self.takes.unpack(*args, **kwargs)
        if given.scale is not None:
            x = x * given.scale
        for each in given.generators:
            x = x * (1 + (torch.rand((), generator=each) if isinstance(each, torch.Generator) else each.random()))
        for part in self.parts:
            x = part(x, given)
        return self.gives.pack(x, self)


class Projection(Counted, nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.Linear.forward(self, x)


class Table(Counted, nn.Embedding):
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return nn.Embedding.forward(self, tokens)


class Model(Counted):
    def __init__(self, program: Program) -> None:
        super().__init__()
        self.reads_tokens = program.stem in ("tokens", "tied")
        self.stem = Table(CLASSES, WIDTH) if self.reads_tokens else Projection(WIDTH, WIDTH)
        self.takes = TAKES.make(program.takes)
        self.units = nn.ModuleList(Unit(each, self.takes) for each in program.units)
        self.shared = Projection(WIDTH, WIDTH)
        self.bias = nn.Parameter(torch.full((WIDTH,), 0.1))
        self.head = Projection(WIDTH, CLASSES, bias=False)
        if program.stem == "tied":
            self.head.weight = self.stem.weight
        if program.stem == "aliased":
            self.again = self.units[0]  # one module under two names
        self.route, self.calls = program.route, [CALLS.make(each.call) for each in program.units]
        for name, module in self.named_modules():
            if isinstance(module, Counted):
                module.label = name or "model"
        for at, unit in enumerate(self.units):
            for part in unit.parts:
                part.join(self, at)

    def all_parts(self) -> list[Part]:
        return [part for unit in self.units for part in unit.parts]

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        self.takes.begin()
        x = self.stem(data) + 0.0
        for at in self.route:
            x = self.calls[at](self, self.units[at], x)
        return self.head(x)  # type: ignore[no-any-return]

    def example(self, rows: int, generator: torch.Generator | None) -> torch.Tensor:
        if self.reads_tokens:
            return torch.randint(0, CLASSES, (rows,), generator=generator)
        return torch.randn(rows, WIDTH, generator=generator)
