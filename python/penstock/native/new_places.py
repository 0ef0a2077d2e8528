"""Directories that an opening makes and that nobody may have meant: a path with a typo is another disk's.

One inside a directory that is there is made silently, because it is on the drive that was named. One that lies in the
root directory is told of, and so is one whose parent is not there: both are what a wrong mount point looks like.
DeepSpeed makes nvme_path with all its parents, too, so none of this is an error.
"""
from __future__ import annotations

import logging
import os
from collections.abc import Iterable

LOGGER = logging.getLogger("penstock")


def tell(notes: Iterable[str]) -> None:
    """Warnings, because programs with a Trainer hear nothing else."""
    for note in notes:
        LOGGER.warning("%s", note)


def notes_of(paths: Iterable[str], kept: bool) -> list[str]:
    """A line for each of them that is not there yet and is told of: before it is made. Of a store that is `kept` the core
    makes no parents, and where it cannot make the directory its error says all."""
    return [_note(path) for path in map(os.path.abspath, paths) if not os.path.exists(path) and _is_told(path)
            and (not kept or os.access(os.path.dirname(path), os.W_OK))]


def _is_told(path: str) -> bool:
    parent = os.path.dirname(path)
    return parent == os.path.sep or not os.path.isdir(parent)


def _note(path: str) -> str:
    there = os.path.dirname(path)
    while not os.path.isdir(there):
        there = os.path.dirname(there)
    mount = there
    while not os.path.ismount(mount):
        mount = os.path.dirname(mount)
    disk = os.statvfs(there)
    free = disk.f_bavail * disk.f_frsize / 1e9
    return f"{path} was not there and is made: it lies on the file system of {mount}, which has {free:,.0f} GB free"
