"""How a training gets on: a line on the terminal that is redrawn, or lines of the logger "penstock". What goes wrong
with that is nothing that a training ends for: then no more is told."""
from __future__ import annotations

import logging
import math
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from ..core import Core, UpdateReport
from ..loss_scale import LossScale

LOGGER = logging.getLogger("penstock")
REDRAWN_SECONDS = 0.1  # at the earliest
PATIENCE_SECONDS = 2.0  # a work that takes less is not told of
LOGGED_SECONDS = 10.0  # between two lines of a long work


class Terminal:
    """The last line of stderr, drawn again and again."""

    def __init__(self) -> None:
        self._drawn, self._at = False, -math.inf

    @staticmethod
    def is_there() -> bool:
        return sys.stderr is not None and sys.stderr.isatty()

    def draw(self, text: str, at_once: bool = False) -> None:
        now = time.monotonic()
        if at_once or now - self._at >= REDRAWN_SECONDS:
            self._at = now
            sys.stderr.write("\r" + text[:shutil.get_terminal_size().columns - 1] + "\x1b[K")
            sys.stderr.flush()
            self._drawn = True

    def leave(self) -> None:
        """What was drawn stays; others may write."""
        if self._drawn:
            sys.stderr.write("\n")
            sys.stderr.flush()
        self._drawn, self._at = False, -math.inf


class Progress:
    """Of one engine, told by it; holds nothing of it. `every`: steps from one line to the next; None: steps are not
    told, but long works and the core's notes are, to the logger."""

    def __init__(self, every: int | None = None) -> None:
        self._every = every
        self._terminal = Terminal() if every is not None and Terminal.is_there() else None
        self._broken = False
        self._losses: list[torch.Tensor] = []  # of the micro-batches of this step
        self._committed: int | None = None  # the newest step
        self._steps, self._since, self._waited = 0, time.monotonic(), 0  # since the last line
        self._work: tuple[str, float, float] | None = None  # and when it began and was told of
        if every is not None and self._terminal is None:
            _listen()

    def loss(self, loss: torch.Tensor) -> None:
        """Of a micro-batch."""
        if self._every is not None:
            self._losses.append(loss.detach())

    def step(self, step: int, report: UpdateReport, rate: float, scale: LossScale | None, core: Core) -> None:
        """A step has ended; notes that the core has are told, too."""
        self._quietly(lambda: self._step(step, report, rate, scale, core))

    def work(self, what: str, done: int, total: int) -> None:
        """Of the core's long works: what a Store takes as its progress."""
        self._quietly(lambda: self._long(what, done, total))

    def note(self, text: str) -> None:
        """Of what the engine has decided."""
        self._quietly(lambda: self._note(text))

    def warn(self, text: str) -> None:
        """What costs time that nobody has asked to spend: also a program without logging hears it."""
        self._quietly(lambda: LOGGER.warning("%s", text))

    def told(self, text: str, differs: bool) -> None:
        """Of an opening that goes on; where that differs from what the script says, also a program without logging
        hears it."""
        self.warn(text) if differs else self.note(text)

    def begin(self, core: Core, warning: str | None = None) -> None:
        """It is open: steps are timed from now on."""
        if warning is not None:
            self.warn(warning)
        self._quietly(lambda: self._notes(core))
        self._quietly(lambda: self._start(core))

    def end(self) -> None:
        """Nothing more is told."""
        if self._terminal is not None:
            self._quietly(self._terminal.leave)

    # Private.
    def _quietly(self, tell: Callable[[], None]) -> None:
        if self._broken:
            return
        try:
            tell()
        except Exception:
            self._broken = True

    def _step(self, step: int, report: UpdateReport, rate: float, scale: LossScale | None, core: Core) -> None:
        losses, self._losses = self._losses, []
        if report.committed or report.committed_before:
            self._committed = step if report.committed else step - 1
        self._steps += 1
        self._notes(core)
        if self._every is None:
            return
        due = step % self._every == 0 or not report.updated
        if self._terminal is None and not due:
            return
        loss = sum(each.item() for each in losses) / len(losses) if losses else None
        text = self._line(step, loss, report, rate, scale, core)
        if self._terminal is None:
            LOGGER.info("%s", text)
        else:
            self._terminal.draw(text, at_once=due)
        if due:
            if self._terminal is not None:
                self._terminal.leave()
            self._start(core)

    def _start(self, core: Core) -> None:
        self._steps, self._since, self._waited = 0, time.monotonic(), waited_ns(core)

    def _line(self, step: int, loss: float | None, report: UpdateReport, rate: float, scale: LossScale | None,
              core: Core) -> str:
        elapsed = time.monotonic() - self._since
        waited = (waited_ns(core) - self._waited) / 1e9
        parts = [f"step {step}"]
        parts += [f"loss {loss:.4f}"] if loss is not None else []
        parts += [f"norm {report.gradient_norm:.3g}"] if report.gradient_norm is not None else []
        parts += [f"lr {rate:.3g}", f"{elapsed / self._steps:.3g} s/step"]
        parts += [f"{min(max(waited / elapsed, 0), 1):.0%} waiting for NVMe"] if elapsed > 0 else []
        parts += [f"committed {self._committed}"] if self._committed is not None else []
        if report.updated_again:
            parts.append("updated again")
        if not report.updated:
            parts.append("skipped: a gradient is not finite" + (f", loss scale {scale.value:g}" if scale else ""))
        return "  ".join(parts)

    def _long(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if self._work is None or self._work[0] != what:
            self._work = what, now, now + PATIENCE_SECONDS - LOGGED_SECONDS
        _, began, told = self._work
        if now - began < PATIENCE_SECONDS:
            return
        text = f"{what}  {done / max(total, 1):.0%} of {total / 1e9:.2f} GB"
        if done > 0:
            text += f"  {done / (now - began) / 1e9:.2f} GB/s  {(total - done) * (now - began) / done:.0f} s left"
        if self._terminal is not None:
            self._terminal.draw(text, at_once=done == total)
            if done == total:
                self._terminal.leave()
        elif now - told >= LOGGED_SECONDS or done == total:
            self._work = what, began, now
            LOGGER.info("%s", text)

    def _notes(self, core: Core) -> None:
        for note in core.notes():
            self._note(note)

    def _note(self, text: str) -> None:
        if self._terminal is not None:
            self._terminal.leave()
        LOGGER.info("%s", text)


def waited_ns(core: Core) -> int:
    """Since it was opened, for NVMe; 0 of one that does not count it."""
    info: Any = getattr(core, "info", None)
    return int(info().waited_ns) if info is not None else 0


class _Unheard(logging.StreamHandler):  # type: ignore[type-arg]
    """To stderr, as long as the program has set up no logging of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            self.stream = sys.stderr  # as it is now
            super().emit(record)


def _listen() -> None:
    """Steps are to be told: a program without logging hears them, too."""
    if not LOGGER.handlers:
        handler = _Unheard()
        handler.setFormatter(logging.Formatter("%(asctime)s penstock: %(message)s"))
        LOGGER.addHandler(handler)
    if LOGGER.level == logging.NOTSET:
        LOGGER.setLevel(logging.INFO)
