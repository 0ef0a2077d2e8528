"""A directory: its room, its file system, whether files there are read past the page cache, and how fast, at first
sight. What is written has no name, or loses it before anything is written."""
from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import mmap
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ..machine.cgroups import text_of
from ..machine.sizes import size
from .finding import Finding, in_the_way, ok, worth_knowing

IN_MEMORY = ("tmpfs", "ramfs")
OVER_A_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse", "fuse.sshfs", "lustre", "ceph")
LITTLE_BYTES, SLOW = 16 << 30, 500e6  # of a second
BLOCK, MOST_BYTES, SECONDS = 1 << 20, 1 << 30, 0.5  # of writing, and of reading
DEPTH = 16  # blocks at once, as `penstock bench io` has them: one after the other is the drive's latency, not its worth
ELSEWHERE = "name a directory on an NVMe drive: --dir DIRECTORY"


def look(directory: str) -> list[Finding]:
    """Takes about a second, or as long as the device lets calls wait."""
    if not os.path.isdir(directory):
        return [in_the_way("disk", f"{directory} is no directory", f"mkdir -p {directory}, or {ELSEWHERE}", 4)]
    try:
        return [_room(directory), *_speed(directory)]
    except OSError as problem:
        return [in_the_way("disk", f"{directory}: {problem.strerror}", f"make it writable, or {ELSEWHERE}", 4)]


def _room(directory: str) -> Finding:
    there = os.statvfs(directory)
    free, system = there.f_bavail * there.f_frsize, FileSystem.of(directory)
    whole = there.f_blocks * there.f_frsize
    seen = f"{size(free)} free of {size(whole)} in {directory}, {system.kind} on {system.source}"
    if free < 4 * BLOCK:
        return in_the_way("disk", seen, f"free some room there, or {ELSEWHERE}", 3)
    if system.kind in IN_MEMORY:
        return worth_knowing("disk", f"{seen}, which is memory itself", ELSEWHERE)
    if system.kind == "overlay":
        return worth_knowing("disk", f"{seen}: it goes with its container", "give the container a directory of the "
                             f"drive (docker run -v /nvme:/nvme), and {ELSEWHERE}")
    if system.kind in OVER_A_NETWORK:
        return worth_knowing("disk", f"{seen}, a network's", ELSEWHERE)
    if free < LITTLE_BYTES:
        return worth_knowing("disk", seen,
                             f"`penstock plan MODEL --store {directory}` says what a model takes; {ELSEWHERE}")
    return ok("disk", seen)


@dataclass(frozen=True)
class FileSystem:
    """`kind` as mount(8) says it."""

    kind: str
    source: str

    @staticmethod
    def of(directory: str, root: str = "") -> FileSystem:
        """By the longest mount point above; a later one lies over an earlier one."""
        found, longest = FileSystem("an unknown file system", "?"), -1
        place = os.path.realpath(directory)
        for line in text_of(f"{root}/proc/self/mountinfo").splitlines():
            before, _, behind = line.partition(" - ")
            if len(before.split()) < 5 or len(behind.split()) < 2:
                continue
            point = before.split()[4].replace("\\040", " ")
            if (place + "/").startswith(point.rstrip("/") + "/") and len(point) >= longest:
                found, longest = FileSystem(*behind.split()[:2]), len(point)
        return found


def _speed(directory: str) -> Iterator[Finding]:
    with _nameless(directory) as file, mmap.mmap(-1, BLOCK) as memory:  # which begins at a page
        memory.write(os.urandom(BLOCK))
        direct = _direct(file)
        yield ok("O_DIRECT", "works") if direct else worth_knowing(
            "O_DIRECT", f"{directory}: the file system refuses it, and I/O goes through the page cache",
            "name a directory on ext4 or xfs: --dir DIRECTORY")
        there = os.statvfs(directory)
        most = max(BLOCK, min(MOST_BYTES, there.f_bavail * there.f_frsize // 4) // BLOCK * BLOCK)
        written, write_rate = _rate(lambda at: os.pwrite(file, memory, at), lambda: os.fdatasync(file), most)
        if not direct:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        pages = threading.local()  # each thread reads into memory of its own
        _, read_rate = _rate(lambda at: os.preadv(file, [_own(pages)], at), lambda: None, written)
        seen = (f"{write_rate / 1e9:.2f} GB/s written and {read_rate / 1e9:.2f} read, {DEPTH} blocks of {size(BLOCK)} "
                f"at once, {size(written)}")
        yield ok("disk speed", seen) if min(write_rate, read_rate) >= SLOW else worth_knowing(
            "disk speed", seen, f"`penstock bench io --dir {directory}` measures longer, by block and depth; {ELSEWHERE}")


def _rate(move: Callable[[int], int], end: Callable[[], None], most: int) -> tuple[int, float]:
    """Of blocks, DEPTH at once and in order: how many bytes, and bytes of a second. Raises OSError."""
    began, turn = time.monotonic(), itertools.count()

    def moves() -> int:
        done = 0
        while (at := next(turn) * BLOCK) < most and (at == 0 or time.monotonic() - began < SECONDS):
            if move(at) != BLOCK:
                raise OSError(errno.EIO, "a block was moved in part")
            done += BLOCK
        return done
    with ThreadPoolExecutor(DEPTH) as threads:
        done = sum(each.result() for each in [threads.submit(moves) for _ in range(DEPTH)])
    end()
    return done, done / max(time.monotonic() - began, 1e-9)


def _own(pages: threading.local) -> mmap.mmap:
    if not hasattr(pages, "memory"):
        pages.memory = mmap.mmap(-1, BLOCK)
    memory: mmap.mmap = pages.memory
    return memory


def _direct(file: int) -> bool:
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, flags | os.O_DIRECT)
        with mmap.mmap(-1, mmap.PAGESIZE) as page:
            os.pwrite(file, page, 0)
        return True
    except OSError:
        fcntl.fcntl(file, fcntl.F_SETFL, flags)
        return False


@contextlib.contextmanager
def _nameless(directory: str) -> Iterator[int]:
    try:
        file = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError:  # the file system has none
        file, path = tempfile.mkstemp(prefix="penstock-doctor-", dir=directory)
        Path(path).unlink()
    try:
        yield file
    finally:
        os.close(file)
