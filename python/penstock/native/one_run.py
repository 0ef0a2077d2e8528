"""Where a store for one run lies: in a directory of its own that is removed as soon as the session has opened its
files, whose room the system takes back when they are closed, however the process ends.

A process that is killed while it opens them leaves the directory, which the next one to come finds without a lock, and
removes.
"""
from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..errors import StorageError
from ..store import Store

PREFIX = "penstock-one-run-"


@contextlib.contextmanager
def opening(store: Store) -> Iterator[Store]:
    """The store as the session is to open it, within. One that is kept is as it is."""
    if store.keep:
        yield store
        return
    with contextlib.ExitStack() as made:
        yield replace(store, directories=[made.enter_context(_nameless(place)) for place in store.paths()])


@contextlib.contextmanager
def _nameless(place: str) -> Iterator[str]:
    try:
        os.makedirs(place, exist_ok=True)
        _remove_what_was_left(place)
        path, lock = _locked(place)
    except OSError as problem:
        raise StorageError(f"{place}: no directory for one run can be made there ({problem.strerror}); name another "
                           "place, Store(directories, keep=False)") from problem
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _locked(place: str) -> tuple[str, int]:
    """A new directory, and what holds its lock. One that another process took for left is made anew."""
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX, dir=place)
        try:
            lock = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        fcntl.flock(lock, fcntl.LOCK_SH)
        if os.path.isdir(path) and os.stat(path).st_ino == os.fstat(lock).st_ino:
            return path, lock
        os.close(lock)


def _remove_what_was_left(place: str) -> None:
    for each in Path(place).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # its process has just removed it, or it is another user's
            lock = os.open(each, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(each, ignore_errors=True)
            finally:
                os.close(lock)
