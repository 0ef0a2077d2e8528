"""How much memory this machine can still give the process: the rules of pinned_pool/machine_memory.cpp."""
from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# The kernel's rule for MemAvailable: of the cache half stays, or the low watermark if that is less; this is about that of
# a machine of 16 GiB.
KEPT_BYTES = 64 << 20
# By version of the controller: the limit, the use, and the lines of memory.stat with what is given back on demand.
FILES = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
         2: ("memory.max", "memory.current", ("inactive_file", "active_file"))}


@dataclass(frozen=True)
class HostMemory:
    """`limited_by`: "free RAM", or the cgroup's file."""

    available_bytes: int
    limited_by: str

    @staticmethod
    def read(root: str = "") -> HostMemory:
        least = HostMemory(_free_ram(root), "free RAM")
        for folder, version in _cgroups(root):
            limit_name, used_name, cache_names = FILES[version]
            limit, used = _number_in(f"{root}{folder}/{limit_name}"), _number_in(f"{root}{folder}/{used_name}")
            if limit is None or used is None:
                continue
            stated = _numbers_in(f"{root}{folder}/memory.stat")
            cache = sum(stated.get(name, 0) for name in cache_names)
            room = max(0, limit - max(0, used - (cache - min(cache // 2, KEPT_BYTES))))
            if room < least.available_bytes:
                least = HostMemory(room, f"cgroup limit {folder}/{limit_name}")
        return least


def _free_ram(root: str) -> int:
    stated = _numbers_in(f"{root}/proc/meminfo")
    if "MemAvailable" in stated:
        return stated["MemAvailable"] * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cgroups(root: str) -> Iterator[tuple[str, int]]:
    """Folders of the process's group and of those above it. A line is "4:memory:/user", or "0::/user" of version 2."""
    for line in _text(f"{root}/proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not group.startswith("/"):
            continue
        if not controllers:
            mounts, version = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], 2
        elif "memory" in controllers.split(","):
            mounts, version = ["/sys/fs/cgroup/memory"], 1
        else:
            continue
        for mount in mounts:
            for each in (Path(group), *Path(group).parents):
                yield f"{mount}{each}".rstrip("/"), version


def _number_in(path: str) -> int | None:
    """None where there is no such file, or no number in it ("max")."""
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _numbers_in(path: str) -> dict[str, int]:
    """Of lines "name value", or "name: value kB"."""
    words = [line.split() for line in _text(path).splitlines()]
    return {each[0].rstrip(":"): int(each[1]) for each in words if len(each) > 1 and each[1].isdecimal()}


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
