"""How a training ends: what was done is committed, however the program comes to its end, and an interrupt finds a step
done or not begun."""
from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import weakref
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from ..core import Core
from ..errors import EndedError, UsageError
from .saving import Saving
from .stop_signals import StopSignals


class Ending:
    """Commits and closes a core once: when told to, when its engine is collected, or when the interpreter ends (after
    an exception, an interrupt, sys.exit()). Not after os._exit() or a signal that kills. `last`: the engine's method
    that is called before, as long as there is an engine. A snapshot that is being copied is finished first."""

    def __init__(self, engine: object, core: Core, last: Callable[[], None], saving: Saving) -> None:
        self._finalizer = weakref.finalize(engine, _end_quietly, core, os.getpid(), weakref.WeakMethod(last), saving)
        self._core, self._saving = core, saving

    @property
    def to_come(self) -> bool:
        return self._finalizer.alive

    def now(self) -> None:
        """Raises what goes wrong, which the end of the interpreter does not try again."""
        if self._finalizer.detach() is not None:
            with contextlib.ExitStack() as parts:  # each whatever becomes of the one before
                parts.callback(self._core.close)
                parts.callback(settle, self._core)
                self._saving.finish()


def settle(core: Core) -> None:
    """Whoever was interrupted has not ended the pass."""
    try:
        core.settle()
    except UsageError:
        core.end_pass()
        if core.begun is not None:
            logging.getLogger("penstock").warning(
                "step %d ended while its units were updated: it is not made; the store stays at the newest committed one",
                core.begun)
            return
        core.settle()


def _end_quietly(core: Core, process: int, last: Callable[[], Callable[[], None] | None], saving: Saving) -> None:
    if os.getpid() != process:
        return  # a fork has the memory, not the threads
    try:
        method = last()
        if method is not None:
            method()
    except Exception as error:
        logging.getLogger("penstock").error("what was changed since the newest step is not kept: %s", error)
    try:
        saving.finish()
    except EndedError:
        pass
    except Exception as error:
        logging.getLogger("penstock").error("the checkpoint that was being written is not made: %s", error)
    try:
        settle(core)
        core.close()
    except EndedError:
        pass  # which was told when it came
    except Exception as error:
        logging.getLogger("penstock").error("the newest step was not committed: %s", error)


class Undisturbed:
    """An interrupt from the keyboard that comes within has its effect at the end: within an update it would be raised
    after the core has taken the step and before anybody knows. One that ends the training behind its step waits by
    itself."""

    def __enter__(self) -> Undisturbed:
        self._before: Any = None
        self._came: tuple[int, FrameType | None] | None = None
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(handler) and not isinstance(
                handler, StopSignals):
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            if self._came is not None:
                self._before(*self._came)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = number, frame
