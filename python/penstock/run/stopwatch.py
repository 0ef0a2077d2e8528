"""How long the parts of a step take, and how much of that waits for I/O: what wall_clock_breakdown asks for."""
from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from ..core import Core, figures_of

PARTS = ("forward", "backward", "step")


@dataclass(frozen=True)
class Part:
    """Seconds of the wall clock; `wait_seconds` of them nothing was done but to wait for I/O."""

    seconds: float = 0.0
    wait_seconds: float = 0.0

    def __add__(self, other: Part) -> Part:
        return Part(self.seconds + other.seconds, self.wait_seconds + other.wait_seconds)

    def __sub__(self, other: Part) -> Part:
        return Part(self.seconds - other.seconds, max(self.wait_seconds - other.wait_seconds, 0.0))


class Stopwatch:
    """Of one core. A part that is begun within itself goes on. One that is not `on` does nothing: to read the clock,
    a GPU is waited for."""

    def __init__(self, core: Core, on: bool = True) -> None:
        self._core, self._on = core, on
        self._began: dict[str, Part] = {}  # parts that run
        self._sums: dict[str, Part] = {}

    def begin(self, part: str) -> None:
        if self._on and part not in self._began:
            self._began[part] = self._now()

    def end(self, part: str) -> None:
        """Nothing where it does not run."""
        if part in self._began:
            self._sums[part] = self._sums.get(part, Part()) + (self._now() - self._began.pop(part))

    @contextlib.contextmanager
    def timing(self, part: str) -> Iterator[None]:
        self.begin(part)
        try:
            yield
        finally:
            self.end(part)

    def take(self) -> Mapping[str, Part]:
        """What has ended since the last call; each of PARTS, or nothing at all of one that is not on."""
        sums, self._sums = self._sums, {}
        return {part: sums.get(part, Part()) for part in PARTS} if self._on else {}

    def _now(self) -> Part:
        if self._core.device.type == "cuda":
            torch.cuda.synchronize(self._core.device)
        return Part(time.perf_counter(), figures_of(self._core).waited_ns / 1e9)
