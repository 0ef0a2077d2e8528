"""How much memory this machine can still give the process: the rules of pinned_pool/machine_memory.cpp."""
from __future__ import annotations

import os
from dataclasses import dataclass

from .cgroups import folders, number_in, numbers_in

# The kernel's rule for MemAvailable: of the cache half stays, or the low watermark if that is less; this is about that
# of a machine of 16 GiB.
KEPT_BYTES = 64 << 20
# By version of the controller: the limit, the use, and the lines of memory.stat with the cache that is given back on
# demand; version 2 has slabs beside it.
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
        for folder, version in folders("memory", root):
            limit_name, used_name, cache_names = FILES[version]
            limit, used = number_in(f"{root}{folder}/{limit_name}"), number_in(f"{root}{folder}/{used_name}")
            if limit is None or used is None:
                continue
            stated = numbers_in(f"{root}{folder}/memory.stat")
            cache = _given_back(sum(stated.get(name, 0) for name in cache_names))
            room = max(0, limit - max(0, used - cache - _given_back(stated.get("slab_reclaimable", 0))))
            if room < least.available_bytes:
                least = HostMemory(room, f"cgroup limit {folder}/{limit_name}")
        return least


def _given_back(count: int) -> int:
    return count - min(count // 2, KEPT_BYTES)


def _free_ram(root: str) -> int:
    stated = numbers_in(f"{root}/proc/meminfo")
    if "MemAvailable" in stated:
        return stated["MemAvailable"] * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
