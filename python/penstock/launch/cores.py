"""Cores of this machine, divided among the processes that are started here."""
from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError

SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def usable() -> tuple[int, ...]:
    """Processors that this process may run on."""
    return tuple(sorted(os.sched_getaffinity(0)))


def one_of_each_core(processors: Sequence[int]) -> tuple[int, ...]:
    """The first processor of each core: two of one core share its arithmetic."""
    taken: dict[str, int] = {}
    for each in processors:
        try:
            core = Path(SIBLINGS.format(each)).read_text(encoding="ascii").strip()
        except OSError:
            core = str(each)
        taken.setdefault(core, each)
    return tuple(taken.values())


def listed(said: str) -> tuple[int, ...]:
    """Of 0,2-4,6: ascending, as DeepSpeed wants it. Raises UsageError."""
    found: list[int] = []
    for part in said.split(","):
        read = re.fullmatch(r"(\d+)(?:-(\d+))?", part, re.ASCII)
        begin, end = (int(read[1]), int(read[2] or read[1])) if read else (0, -1)
        if end < begin or found and begin <= found[-1]:
            raise UsageError(f"--bind_core_list {said}: '{part}' is no number or FIRST-LAST behind those before it")
        found += range(begin, end + 1)
    return tuple(found)


def chosen(said: str | None) -> tuple[int, ...]:
    """Those to bind to: of a list, or one of each core. Raises UsageError for what this process may not use."""
    if said is None:
        return one_of_each_core(usable())
    there = usable()
    absent = [each for each in listed(said) if each not in there]
    if absent:
        raise UsageError(f"--bind_core_list {said}: core {absent[0]} is not one that this process may use; those are "
                         f"{', '.join(map(str, there))}")
    return listed(said)


def shares(cores: Sequence[int], processes: int) -> list[tuple[int, ...]]:
    """Equal ones, one after the other; what is over is nobody's. Raises UsageError where there are too few."""
    each = len(cores) // processes
    if each == 0:
        raise UsageError(f"--bind_cores_to_rank: {processes} processes and {len(cores)} cores; each wants its own")
    return [tuple(cores[each * number:each * (number + 1)]) for number in range(processes)]
