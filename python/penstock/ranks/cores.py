"""Cores of a machine that several ranks have together."""
from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import torch

from ..store import Store
from .group import Group

BOOT = Path("/proc/sys/kernel/random/boot_id")


def with_own_cores(store: Store, group: Group) -> Store:
    """Updates by as many threads as this rank has cores, where neither the store nor OMP_NUM_THREADS says how many. All
    ranks call it."""
    threads = min(torch.get_num_threads(), own_cores(group))
    return store if store.threads or "OMP_NUM_THREADS" in os.environ else replace(store, threads=threads)


def own_cores(group: Group) -> int:
    """Those that this process may use, divided by the ranks of its machine that may use the same."""
    usable = tuple(sorted(os.sched_getaffinity(0)))
    boot = BOOT.read_text() if BOOT.exists() else f"rank {group.rank}"
    sharing = group.gathered((boot, usable)).count((boot, usable))
    return max(1, len(usable) // sharing)
