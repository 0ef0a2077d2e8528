"""What is known of a step that has ended, for whoever tells of it: the log, monitors, callbacks of trainers."""
from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from ..core import Core, UpdateReport, figures_of
from ..loss_scale import LossScale
from .stopwatch import Part, Stopwatch


@dataclass(frozen=True)
class Memory:
    """What a training takes of each tier, in bytes. `host`: of host memory, pinned, at most so far; `host_uses`: what
    it is planned for ("weights", "resident weights", "resident states", "staging" of states, "gradients",
    "activations", "keep" of snapshots). `nvme`: of the store, weights and states. `device`: of a GPU's memory, for
    weights; `torch`: of the same GPU's memory, torch's own, at most so far."""

    host: int = 0
    host_uses: Mapping[str, int] = field(default_factory=dict)
    nvme: int = 0
    device: int = 0
    torch: int = 0


@dataclass(frozen=True)
class StepRecord:
    """`step`: engine.global_steps behind it. `samples`: rows of all steps of a model, over all its lives, with those
    that were skipped. Seconds and bytes are from the end of the step before to the end of this one. `losses`: of the
    micro-batches that engine.backward() had; none where the program called loss.backward(). `loss_scale`: of the next
    step, in fp16. `rate`: of the first group, in this step. `parts`: with wall_clock_breakdown. `own_seconds`: of each of
    several processes, until its update began, which waits for all."""

    step: int
    updated: bool = True
    updated_again: bool = False
    committed: int | None = None  # the newest step
    losses: tuple[torch.Tensor, ...] = field(default=(), repr=False, compare=False)
    gradient_norm: float | None = None
    rate: float = 0.0
    loss_scale: float | None = None
    batch: int = 0  # rows of this step
    samples: int = 0
    seconds: float = 0.0
    wait_seconds: float = 0.0  # compute and the update, for I/O
    read_bytes: int = 0  # of NVMe
    write_bytes: int = 0
    memory: Memory = Memory()
    parts: Mapping[str, Part] = field(default_factory=dict)
    own_seconds: tuple[float, ...] = ()

    @functools.cached_property
    def loss(self) -> float | None:
        """Their mean. A GPU is waited for when it is first asked for."""
        return sum(each.item() for each in self.losses) / len(self.losses) if self.losses else None


class StepMeter:
    """Of one engine; `watch` is of its core. A core's counts begin anew where it goes back to a snapshot: such a step
    has none."""

    def __init__(self, core: Core, watch: Stopwatch) -> None:
        self._core, self._watch = core, watch
        self._losses: list[torch.Tensor] = []  # of the micro-batches of this step
        self._committed: int | None = None
        self.own_seconds = 0.0
        self.begin()

    def begin(self) -> None:
        """Seconds and bytes are counted from now on."""
        self._at, self._figures = time.monotonic(), figures_of(self._core)

    def begin_update(self) -> None:
        """What this process does by itself in this step is done: `own_seconds` are known."""
        self.own_seconds = time.monotonic() - self._at

    def loss(self, loss: torch.Tensor) -> None:
        """Of a micro-batch."""
        self._losses.append(loss.detach().clone())  # which the program may change

    def measure(self, step: int, report: UpdateReport, rate: float, scale: LossScale | None, batch: int, samples: int,
                own_seconds: tuple[float, ...] = ()) -> StepRecord:
        """Of the step that has just ended. REQUIRES: one call for each step."""
        losses, self._losses = self._losses, []
        before, at = self._figures, self._at
        self.begin()
        now = self._figures
        if report.committed or report.committed_before:
            self._committed = step if report.committed else step - 1
        return StepRecord(
            step, report.updated, report.updated_again, self._committed, tuple(losses), report.gradient_norm, rate,
            None if scale is None else scale.value, batch, samples, self._at - at,
            max(now.waited_ns - before.waited_ns, 0) / 1e9, max(now.read_bytes - before.read_bytes, 0),
            max(now.write_bytes - before.write_bytes, 0),
            Memory(now.host_bytes, now.host_uses, now.nvme_bytes, now.device_bytes, self._of_torch()),
            self._watch.take(), own_seconds)

    def _of_torch(self) -> int:
        device = self._core.device
        return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
