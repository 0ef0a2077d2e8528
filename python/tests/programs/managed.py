"""The same world, managed by the package."""
from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import torch

import penstock
from cores import NATIVE, WAYS, OpenNativeCore, test_core

from .program import Program
from .world import World

# How what a forward leaves is kept: as it is by default; the same, with graphs given up at random; not at all.
Mode = Literal["auto", "room", "recompute"]
MODES: tuple[Mode, ...] = ("auto", "room", "recompute")


def settings_of(mode: Mode, draw: random.Random) -> penstock.Settings:
    """The settings that ask for a mode; `draw` decides when there is room. The only place that knows them."""
    if mode == "recompute":
        return penstock.Settings(activations="recompute")
    often = draw.choice((0.2, 0.5, 0.9))
    room = (lambda: 0 if draw.random() < often else draw.randrange(1 << 14)) if mode == "room" else (lambda: 1 << 40)
    return penstock.Settings(activations="auto", room=room)


class Managed(World):
    def __init__(self, program: Program, mode: Mode) -> None:
        super().__init__(program)
        self.mode = mode
        self.engine: Any = None

    def manage(self) -> None:
        order = self.program.order
        settings = replace(settings_of(self.mode, random.Random(self.program.seed)), accumulation=self.accumulation)
        if NATIVE and order in ("speculative", "balanced"):
            settings = replace(settings, clip=1e18)  # it clips nothing, and is speculated on
        opener = OpenNativeCore(**WAYS[order]) if NATIVE else test_core()
        self.engine, self.optimizer, _, _ = penstock.initialize(self.model, self.optimizer, core=opener,
                                                                settings=settings, **self._cut())

    def _cut(self) -> dict[str, Any]:
        if self.program.cut == "parts":
            return {"units": [f"units.{at}.parts.{part}" for at, unit in enumerate(self.program.units)
                              for part in range(len(unit.parts))]}
        return {"resident": ["units.0"]} if self.program.cut == "resident" else {}

    def __call__(self, data: torch.Tensor) -> torch.Tensor:
        return (self.engine if self.program.loop == "engine" else self.model)(data)  # type: ignore[no-any-return]

    def backward(self, loss: torch.Tensor, **options: Any) -> None:
        if self.program.loop == "engine" and set(options) <= {"retain_graph"}:
            self.engine.backward(loss, **options)
        else:
            super().backward(loss, **options)

    def update(self) -> None:
        if self.program.loop == "engine":
            self.engine.step()
        else:
            super().update()

    def weight(self, name: str) -> torch.Tensor:
        return self.engine.weight(name)  # type: ignore[no-any-return]

    @torch.no_grad()
    def change(self, name: str, factor: float) -> None:
        parameter = self.model.get_parameter(name)
        with self.engine.gathered(parameter, modify=True):
            parameter.mul_(factor)

    def state(self) -> Iterable[tuple[str, torch.Tensor]]:
        return self.engine.state_dict().items()  # type: ignore[no-any-return]

    def close(self) -> None:
        super().close()
        if self.engine is not None:
            self.engine.close()


