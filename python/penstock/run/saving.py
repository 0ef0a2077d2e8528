"""A snapshot that is copied while training goes on, and what is done when it is whole."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..core import Core


class Saving:
    """One at a time, of one core. Owned by its engine; called by the thread that uses that."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._then: Callable[[], None] | None = None  # of the one under way
        self._newest: _Copied | None = None  # once it is whole

    def begin(self, path: str, then: Callable[[], None]) -> None:
        """Into the new directory `path`. `then` is called by a later call here. REQUIRES: no pass, and finish() was called:
        none is under way."""
        self._newest = None
        self._core.begin_snapshot(path)
        self._path, self._changes, self._then = Path(path), self._core.changes, then

    def copy_in(self, directory: Path) -> str | None:
        """The name of the snapshot there that another one would be equal to: it was made last and is as it was, and so is
        the core."""
        newest = self._newest
        if newest is None or newest.path.parent != directory or newest != _copied(newest.path, self._core.changes):
            return None
        return newest.path.name

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
            self._newest = _copied(self._path, self._changes)
            then()


@dataclass(frozen=True)
class _Copied:
    path: Path
    changes: int  # the core's
    directory: tuple[int, int]  # its number and when a name within it has changed


def _copied(path: Path, changes: int) -> _Copied | None:
    try:
        there = path.stat()
    except OSError:
        return None
    return _Copied(path, changes, (there.st_ino, there.st_mtime_ns))
