"""What is not whole yet lies beside its place, in a directory that is one process's alone."""
from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..errors import StorageError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def unfinished(place: Path, done: str = "nothing is written") -> Iterator[Path]:
    """A new directory, within; it may be renamed. What a process that was stopped has left there goes. An OSError is a
    StorageError, which says how much is `done`, and so is another process that writes there."""
    path = place.with_name(f".{place.name}.penstock-unfinished")
    try:
        lock = _locked(path, place)
        try:
            yield path
        finally:
            if _is(path, lock):
                shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
    except OSError as error:
        remedy = "; see that there is room for the weights" if error.errno in NO_ROOM else ""
        raise StorageError(f"{place}: {done} ({error}){remedy}") from error


def _locked(path: Path, place: Path) -> int:
    """Empty, and what holds its lock. One that its process has just renamed or removed is made anew."""
    while True:
        with contextlib.suppress(FileExistsError):
            path.mkdir(parents=True)
        try:
            lock = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise StorageError(f"{place}: another export is writing there now; wait until it ends, or name another place") from None
        except OSError:  # a file system without locks
            pass
        if _is(path, lock):
            for each in path.iterdir():
                shutil.rmtree(each) if each.is_dir() else each.unlink()
            return lock
        os.close(lock)


def _is(path: Path, lock: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), os.fstat(lock))
    return False
