"""How much memory is free for what graphs keep: of the host, or of a GPU."""
from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import torch

Room = Callable[[], float]  # bytes

PROCESS = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")
SERVES_SECONDS = 0.005  # of a reading: memory is not filled faster than some 10 GB/s


def room_of(device: torch.device) -> Room:
    """Of where a model's activations are."""
    return GpuRoom(device) if device.type == "cuda" else HostRoom()


class HostRoom:
    """The least of what the kernel says is available and of what each group of control groups has left to its limit, where
    pages of files that can be dropped at once do not count as used."""

    def __init__(self, groups: list[Group] | None = None) -> None:
        self._groups = groups_of_this_process() if groups is None else groups
        self._meminfo = os.open("/proc/meminfo", os.O_RDONLY | os.O_CLOEXEC)
        self._read_at, self._free = 0.0, 0.0

    def __call__(self) -> float:
        now = time.monotonic()
        if now - self._read_at > SERVES_SECONDS:
            self._read_at, self._free = now, min([self._available(), *(each.left() for each in self._groups)])
        return self._free

    def forget(self) -> None:
        """Memory was given back: the next call reads anew."""
        self._read_at = 0.0

    def __del__(self) -> None:
        os.close(self._meminfo)

    # Private.
    def _available(self) -> float:
        for line in os.pread(self._meminfo, 512, 0).splitlines():
            if line.startswith(b"MemAvailable:"):
                return 1024.0 * int(line.split()[1])
        return float("inf")


class Group:
    """A control group that has a limit."""

    def __init__(self, limit: Path, used: Path, dropped: str) -> None:
        """`dropped` is the name in memory.stat of what can be dropped."""
        self._limit, self._used, self._stat, self._dropped = limit, used, used.with_name("memory.stat"), dropped

    def left(self) -> float:
        limit, used = _number(self._limit), _number(self._used)
        if limit is None or used is None:
            return float("inf")
        return limit - used + self._can_be_dropped()

    # Private.
    def _can_be_dropped(self) -> int:
        try:
            lines = self._stat.read_text().splitlines()
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.split()[0] == self._dropped), 0)


def groups_of_this_process(process: Path = PROCESS, groups: Path = GROUPS) -> list[Group]:
    """Those with a limit of memory: its own and all around it; of either version."""
    found: list[Group] = []
    try:
        lines = process.read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            found += _limited(groups, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            found += _limited(groups / "memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes",
                              "total_inactive_file")
    return found


def _limited(root: Path, path: str, limit: str, used: str, dropped: str) -> list[Group]:
    """From the process's group up to the root. Within a container the path may be that of the host: then its root is
    what is seen."""
    own = root / path.lstrip("/")
    if not (own / used).exists():
        own = root
    found = []
    while True:
        number = _number(own / limit)
        if number is not None and number < 1 << 62 and (own / used).exists():
            found.append(Group(own / limit, own / used, dropped))
        if own == root:
            return found
        own = own.parent


def _number(path: Path) -> int | None:
    """None where there is none: no such file, or "max"."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


class GpuRoom:
    """What the GPU has free, and what torch's allocator holds of it unused."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def __call__(self) -> float:
        free, _ = torch.cuda.mem_get_info(self._device)
        return float(free + torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device))

    def forget(self) -> None: ...


# What must stay free of a machine's memory, whatever calls take: a reading may be some milliseconds old.
LEAST_BYTES: dict[type, int] = {HostRoom: 64 << 20, GpuRoom: 64 << 20}
