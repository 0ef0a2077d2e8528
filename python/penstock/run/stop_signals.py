"""Signals that end a training at the end of a step, with the exit code of the program: trainer/cli/stop_signals.h, for
a process whose signals are the user's."""
from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any, NoReturn

from ..errors import UsageError

STOPPED = 75  # the program's exit code: the same command goes on
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
OF_PYTHON = (signal.SIG_DFL, signal.default_int_handler)  # handlers that nobody has set


class StopSignals:
    """Of one engine, which it does not hold; the handler itself, of the signals that it has taken. Taken and given back
    in the main thread."""

    def __init__(self) -> None:
        self.asked_by: int | None = None  # the signal; None: the training goes on
        self.computes_in: int | None = None  # the thread whose steps are ended
        self.left_to_caller = False
        self._agreed: Sequence[int | None] | None = None  # of several processes, behind their newest step
        self._before: dict[int, Any] = {}  # handlers, by the signals that were taken
        self._process = os.getpid()
        self._main = threading.main_thread().ident
        self._code: int | None = None  # with which another thread has ended the training
        self._over = False

    def take(self, numbers: tuple[int, ...]) -> None:
        """Raises UsageError, and has taken none, where one has a handler, or outside of the main thread."""
        if threading.get_ident() != self._main:
            raise UsageError("engine.stop_on_signals() outside of the main thread, where Python takes no signals: call "
                             "it in the main thread; steps may be made in another")
        before = {number: handler for number in numbers if (handler := self._handler_before(number)) != signal.SIG_IGN}
        for number, handler in before.items():
            signal.signal(number, self)
            self._before.setdefault(number, handler)

    @property
    def listens(self) -> bool:
        return bool(self._before)

    def steps_here(self) -> None:
        """In this thread."""
        self.computes_in = threading.get_ident()

    def leave_to_caller(self, left: bool = True) -> None:
        """Who asks `asked_by` between steps, and calls engine.end_stopped(); or it is so no more."""
        self.left_to_caller = left

    @property
    def ends(self) -> int | None:
        """The signal that ends the training behind the newest step. Of several processes it is one that all have heard of
        there: what comes to one of them since then ends the step after it."""
        if self._agreed is None:
            return self.asked_by
        return next((each for each in self._agreed if each is not None), None)

    def agree(self, wishes: Sequence[int | None]) -> None:
        """`asked_by` of all processes, as they end a step."""
        self._agreed = wishes
        if self.ends is not None:
            self.ask(self.ends)

    def ask(self, number: int) -> None:
        """The end of the step under way is the training's."""
        if self.asked_by is None:
            self.asked_by = number

    def end(self, step: int, kept: bool, checkpoint: str | None = None) -> NoReturn:
        """Behind that step, which was committed where the store is `kept`, or is in a checkpoint."""
        number = self.asked_by or signal.SIGTERM
        name = signal.Signals(number).name
        log = logging.getLogger("penstock")
        if checkpoint is not None:
            log.warning("stopped by %s behind step %d, which is in %s: resume from it", name, step, checkpoint)
        elif kept:
            log.warning("stopped by %s behind step %d, which is committed: the same command goes on", name, step)
        else:
            log.warning("stopped by %s behind step %d: the store was for one run, Store(keep=False), and there is "
                        "nothing to go on from but checkpoints", name, step)
        self._code = STOPPED if kept or checkpoint is not None else 128 + number
        if threading.get_ident() != self._main and self._handles(number):
            signal.pthread_kill(self._main or 0, number)  # it raises SystemExit there, too, which ends the process
        self._ignore_launcher()
        raise SystemExit(self._code)

    def give_back(self) -> None:
        """What the handlers were, unless a signal has come: then the next one ends the process, as it was told."""
        self._over = True
        if threading.get_ident() == self._main and self.asked_by is None:
            self._put_back()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._code is not None:
            self._ignore_launcher()
            raise SystemExit(self._code)
        if os.getpid() != self._process:
            self._in_child(number)
        elif self._over or self.asked_by is not None:
            if self.asked_by is not None:
                self._before = dict.fromkeys(self._before, signal.SIG_DFL)
            self._put_back()
            signal.raise_signal(number)
        else:
            self.ask(number)
            os.write(2, b"\npenstock: stopping after this step; a second signal ends at once\n")
            if self.computes_in in (None, self._main):  # within a step Python may come to no handler for long
                self._before = dict.fromkeys(self._before, signal.SIG_DFL)
                self._put_back()

    # Private.
    def _ignore_launcher(self) -> None:
        """Which ends the others as soon as the first of several processes has ended with 75, as srun does: it would take the
        end of this one for a bad one."""
        if self._agreed is not None and threading.get_ident() == self._main and signal.SIGTERM in self._before:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _handler_before(self, number: int) -> Any:
        handler = signal.getsignal(number)
        if number in (signal.SIGKILL, signal.SIGSTOP):
            raise UsageError(f"engine.stop_on_signals(): {signal.Signals(number).name} comes to no process; name "
                             "others")
        if isinstance(handler, StopSignals):
            if handler is self or handler._over:
                return handler._before[number]
            raise UsageError("engine.stop_on_signals(): another engine of this process ends by its steps already: say it "
                             "of one, whose step is the last of the loop's turn")
        if handler not in (*OF_PYTHON, signal.SIG_IGN):
            name = signal.Signals(number).name
            raise UsageError(f"engine.stop_on_signals(): {name} has a handler already, {_named(handler)}, which would "
                             "be lost. Call engine.stop_after_step() in that handler, and name the other signals here: "
                             "engine.stop_on_signals(signal.SIGINT)")
        return handler

    def _handles(self, number: int) -> bool:
        return signal.getsignal(number) == self

    def _put_back(self) -> None:
        for number, handler in self._before.items():
            if self._handles(number):  # else somebody has set another one since
                signal.signal(number, handler)

    def _in_child(self, number: int) -> None:
        """A fork's, such as a worker of a loader: from the keyboard a signal comes to all, and the first one is the
        parent's affair, whose step needs its workers. Others are as they were."""
        if number == signal.SIGINT and self.asked_by is None:
            self.ask(number)
            return
        self._put_back()
        signal.raise_signal(number)


def _named(handler: Any) -> str:
    if handler is None:
        return "which is not Python's"
    return f"{getattr(handler, '__module__', '?')}.{getattr(handler, '__qualname__', type(handler).__qualname__)}"
