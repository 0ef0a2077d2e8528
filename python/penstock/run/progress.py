"""How a training gets on: a line on the terminal that is redrawn, or lines of the logger "penstock". What goes wrong
with that is nothing that a training ends for: then no more is told."""
from __future__ import annotations

import logging
import math
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from ..core import Core
from .step_record import StepRecord
from .stopwatch import PARTS, Part

LOGGER = logging.getLogger("penstock")
REDRAWN_SECONDS = 0.1  # at the earliest
PATIENCE_SECONDS = 2.0  # a work that takes less is not told of
LOGGED_SECONDS = 10.0  # between two lines of a long work
LEVEL = 0.05  # by so much one process may be slower than another before it is named


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
    told, but long works and the core's notes are, to the logger. Records with parts have a second line, of these; with
    `every` None of each step. `silent`: another process tells of it."""

    def __init__(self, every: int | None = None, silent: bool = False) -> None:
        every = None if silent else every
        self._every = every
        self._terminal = Terminal() if every is not None and Terminal.is_there() else None
        self._broken = silent
        self._start()
        self._work: tuple[str, float, float] | None = None  # and when it began and was told of
        if every is not None and self._terminal is None:
            listen()

    def step(self, record: StepRecord, core: Core) -> None:
        """A step has ended; notes that the core has are told, too."""
        self._quietly(lambda: self._step(record, core))

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
        """Of an opening that goes on: a program without logging hears it, too, for who meant to begin anew would not
        see it otherwise. A warning where it differs from what the script says."""
        if differs:
            self.warn(text)
            return
        self.note(text)
        if not LOGGER.hasHandlers() and not LOGGER.isEnabledFor(logging.INFO):
            self._quietly(lambda: print(f"penstock: {text}", file=sys.stderr, flush=True))

    def begin(self, core: Core, warning: str | None = None) -> None:
        """It is open."""
        if warning is not None:
            self.warn(warning)
        self._quietly(lambda: self._notes(core))

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

    def _step(self, record: StepRecord, core: Core) -> None:
        self._notes(core)
        if self._every is None and not record.parts:
            return
        self._add(record)
        due = record.step % (self._every or 1) == 0 or not record.updated
        if self._every is not None:
            self._tell(line_of(record, self._steps, self._taken, self._own), due)
        if due and record.parts:
            listen()
            self._note(line_of_parts(record, self._steps, self._parts))
        if due:
            self._start()

    def _start(self) -> None:
        self._steps, self._taken = 0, Part()  # since the last line
        self._own: tuple[float, ...] = ()
        self._parts = dict.fromkeys(PARTS, Part())

    def _add(self, record: StepRecord) -> None:
        self._steps, self._taken = self._steps + 1, self._taken + Part(record.seconds, record.wait_seconds)
        for name, part in record.parts.items():
            self._parts[name] += part
        self._own = tuple(map(sum, zip(self._own, record.own_seconds))) if self._own else record.own_seconds

    def _tell(self, text: str, due: bool) -> None:
        if self._terminal is not None:
            self._terminal.draw(text, at_once=due)
            if due:
                self._terminal.leave()
        elif due:
            LOGGER.info("%s", text)

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


def line_of(newest: StepRecord, steps: int, taken: Part, own: Sequence[float] = ()) -> str:
    """`taken`: by so many steps. `own`: of that by each of several processes alone."""
    parts = [f"step {newest.step}"]
    parts += [f"loss {newest.loss:.4f}"] if newest.loss is not None else []
    parts += [f"norm {newest.gradient_norm:.3g}"] if newest.gradient_norm is not None else []
    parts += [f"lr {newest.rate:.3g}", f"{taken.seconds / steps:.3g} s/step"]
    parts += [f"{min(taken.wait_seconds / taken.seconds, 1):.0%} waiting for NVMe"] if taken.seconds > 0 else []
    parts += [slowest(own)] if own and min(own) > 0 else []
    parts += [f"committed {newest.committed}"] if newest.committed is not None else []
    if newest.updated_again:
        parts.append("updated again")
    if not newest.updated:
        scale = f", loss scale {newest.loss_scale:g}" if newest.loss_scale is not None else ""
        parts.append("skipped: a gradient is not finite" + scale)
    return "  ".join(parts)


def slowest(own: Sequence[float]) -> str:
    """Whom the others wait for."""
    most = max(own)
    ahead = most / min(own) - 1
    return f"ranks level within {ahead:.0%}" if ahead < LEVEL else f"rank {own.index(most)} slowest, by {ahead:.0%}"


def line_of_parts(newest: StepRecord, steps: int, parts: Mapping[str, Part]) -> str:
    """A step's means. Waits are those within each part."""
    told = (f"{name} {part.seconds / steps:.3g} s ({part.wait_seconds / steps:.3g} s waiting for NVMe)"
            for name, part in parts.items())
    return "  ".join((f"step {newest.step}", *told))


class _Unheard(logging.StreamHandler):  # type: ignore[type-arg]
    """To stderr, as long as the program has set up no logging of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            self.stream = sys.stderr  # as it is now
            super().emit(record)


def listen() -> None:
    """From now on a program without logging hears what is told, too."""
    if not LOGGER.handlers:
        handler = _Unheard()
        handler.setFormatter(logging.Formatter("%(asctime)s penstock: %(message)s"))
        LOGGER.addHandler(handler)
    if LOGGER.level == logging.NOTSET:
        LOGGER.setLevel(logging.INFO)
