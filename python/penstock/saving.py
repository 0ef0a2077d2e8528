"""A snapshot that is copied while training goes on, and what is done when it is whole."""
from __future__ import annotations

from collections.abc import Callable

from .core import Core


class Saving:
    """One at a time, of one core. Owned by its engine; called by the thread that uses that."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._then: Callable[[], None] | None = None  # of the one under way

    def begin(self, path: str, then: Callable[[], None]) -> None:
        """Into the new directory `path`. `then` is called by a later call here. REQUIRES: no pass, and finish() was called:
        none is under way."""
        self._core.begin_snapshot(path)
        self._then = then

    def finish_if_copied(self) -> None:
        """Does not wait. Raises as finish()."""
        if self._then is not None and not self._core.copies_snapshot():
            self.finish()

    def finish(self) -> None:
        """Blocks until the one under way is whole, if there is one. Raises what became of it: then there is none, and
        training may go on."""
        then, self._then = self._then, None
        if then is not None:
            self._core.finish_snapshot()
            then()
