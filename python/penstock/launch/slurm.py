"""The hosts of an allocation of Slurm's."""
from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

from .hostfile import Host, Hosts
from ..errors import UsageError


def allocated(environment: Mapping[str, str]) -> Hosts:
    """With as many slots as tasks are granted on each. Raises UsageError outside of one."""
    listed = environment.get("SLURM_JOB_NODELIST")
    if not listed:
        raise UsageError("--launcher slurm outside of an allocation (SLURM_JOB_NODELIST is not set): say it within "
                         "salloc or sbatch, or name a hostfile")
    names = hostnames(listed)
    counts = tasks_of(environment.get("SLURM_TASKS_PER_NODE", "1"))
    return tuple(Host(name, tuple(range(count))) for name, count in zip(names, counts + counts[-1:] * len(names)))


def hostnames(listed: str) -> list[str]:
    """Of worker-[1-2]: worker-1, worker-2. Raises UsageError."""
    try:
        return subprocess.run(["scontrol", "show", "hostnames", listed], capture_output=True, text=True, timeout=30,
                              check=True).stdout.split()
    except (OSError, subprocess.SubprocessError) as problem:
        raise UsageError(f"scontrol show hostnames {listed}: {problem}") from problem


def tasks_of(text: str) -> list[int]:
    """Of 4(x2),3: 4, 4, 3."""
    return [int(count) for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text) for _ in range(int(times or 1))]
