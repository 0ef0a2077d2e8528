"""Cores of a machine that several ranks have together."""
from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from ..store import Store
from .group import Group

BOOT = Path("/proc/sys/kernel/random/boot_id")


def with_own_cores(store: Store, group: Group) -> Store:
    """Updates by as many threads as this rank has cores, where neither the store nor OMP_NUM_THREADS says how many. All
    ranks call it."""
    cores = own_cores(group)
    if group.rank == 0 and not store.threads and (line := of_torchrun(os.environ, cores)):
        logging.getLogger("penstock").warning("%s", line)
    threads = min(torch.get_num_threads(), cores)
    return store if store.threads or "OMP_NUM_THREADS" in os.environ else replace(store, threads=threads)


def of_torchrun(environment: Mapping[str, str], cores: int) -> str | None:
    """A line where torchrun has left the most of a rank's cores idle. It says 1 thread for whoever says nothing."""
    if "TORCHELASTIC_RUN_ID" not in environment or environment.get("OMP_NUM_THREADS") != "1" or cores < 2:
        return None
    return ("OMP_NUM_THREADS is 1, as torchrun sets it where nobody says it: each rank computes and updates by one thread of "
            f"its {cores} cores. OMP_NUM_THREADS={cores} torchrun ... takes them; `penstock launch` does by itself")


def own_cores(group: Group) -> int:
    """Those that this process may use, divided by the ranks of its machine that may use the same."""
    usable = tuple(sorted(os.sched_getaffinity(0)))
    own = machine(group.rank), usable
    sharing = group.gathered(own).count(own)
    return max(1, len(usable) // sharing)


def machine(rank: int) -> str:
    """The same for all ranks of one, and a rank's own where none can be told."""
    return BOOT.read_text() if BOOT.exists() else f"rank {rank}"
