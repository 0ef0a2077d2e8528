"""penstock ranks: who is where, what the processes share, and how fast they speak to each other."""
from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from ..errors import PenstockError, UsageError
from ..machine.host_memory import HostMemory
from ..machine.sizes import size

PATIENCE = timedelta(minutes=2)


@dataclass(frozen=True)
class Place:
    """Where a rank runs. Two with one `boot` are on one machine."""

    rank: int
    local_rank: int
    host: str
    boot: str
    process: int
    cores: tuple[int, ...]  # that it may run on
    threads: int  # of torch
    memory_bytes: int  # free for it, and for those beside it
    gpu: str | None


def add(verbs: Any) -> None:
    """The verb, with what it takes."""
    verb = verbs.add_parser(
        "ranks", help="who is where of the processes that a launcher started, and how fast they speak",
        description="Started as a training would be: penstock launch --num_gpus 2 --module penstock ranks, or torchrun "
                    "--nproc-per-node 2 -m penstock ranks. Checks that a sum over the ranks has the bits that it must have.")
    verb.add_argument("--bytes", type=int, default=64 << 20, metavar="BYTES",
                      help="of one rank's part, a multiple of 4 (%(default)d)")
    verb.add_argument("--json", action="store_true", help="one object on standard output")
    verb.set_defaults(run=_ranks)


def _ranks(chosen: argparse.Namespace) -> int:
    try:
        from ..native.ranks import probe
        from ..ranks import by_mpi
        from ..ranks.group import Group, joined, left
        from ..ranks.last_words import ENDED_BY_ANOTHER
    except ImportError as error:
        raise UsageError(f"penstock ranks needs torch: {error}; `penstock doctor` says what else is missing") from error
    by_mpi.take_words()
    joined(PATIENCE)
    group = Group(PATIENCE)
    places: list[Place] = group.gathered(place_of(group.rank, group.local_rank))
    try:
        told = group.gathered(probe(group.struct, chosen.bytes))
    except PenstockError as problem:
        if group.last_words.says(problem):
            raise
        return ENDED_BY_ANOTHER
    if group.rank == 0:
        print(json.dumps(as_object(places, told)) if chosen.json else "\n".join(lines(places, told)))
        sys.stdout.flush()
    left()
    return 0


def place_of(rank: int, local_rank: int) -> Place:
    """This process's."""
    import torch

    gpu = None
    if torch.cuda.is_available() and local_rank < torch.cuda.device_count():
        gpu = f"{local_rank}: {torch.cuda.get_device_name(local_rank)}"
    return Place(rank, local_rank, platform.node(), Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.getpid(),
                 tuple(sorted(os.sched_getaffinity(0))), torch.get_num_threads(), HostMemory.read().available_bytes, gpu)


def as_object(places: list[Place], rates: list[dict[str, float]]) -> dict[str, Any]:
    return {"format": 1, "verb": "ranks", "ranks": [{**asdict(place), **each} for place, each in zip(places, rates)]}


def lines(places: list[Place], rates: list[dict[str, float]]) -> list[str]:
    """A machine with its ranks, one after the other, then what they give each other."""
    told: list[str] = []
    for boot in dict.fromkeys(each.boot for each in places):
        here = [each for each in places if each.boot == boot]
        shared = f", shared by {len(here)} ranks" if len(here) > 1 else ""
        told.append(f"{here[0].host}: {size(here[0].memory_bytes)} of memory free, {_cores(here)}{shared}")
        told += [f"  rank {each.rank}: process {each.process}, cores {_ranges(each.cores)}, {each.threads} torch threads"
                 + (f", GPU {each.gpu}" if each.gpu else "") for each in here]
    slowest = {key: min(each[key] for each in rates) for key in rates[0]}
    told.append(f"sums over {len(places)} rank{'s' if len(places) > 1 else ''}: the bits of the loop in their order; the sum "
                f"alone takes {_rate(slowest['sum_bytes_per_s'])}")
    if len(places) > 1:
        small = max(each["small_seconds"] for each in rates)
        told.append(f"between ranks: gather {_rate(slowest['gather_bytes_per_s'])}, exchange with its sum "
                    f"{_rate(slowest['exchange_bytes_per_s'])}, received by the slowest; a small call {small * 1e3:.2f} ms")
    else:
        told.append("one rank: start several by penstock launch, torchrun or mpirun")
    return told


def _cores(here: list[Place]) -> str:
    count = len({core for each in here for core in each.cores})
    return f"{count} core{'s' if count != 1 else ''}"


def _ranges(cores: tuple[int, ...]) -> str:
    """"0-3,8"."""
    parts: list[list[int]] = []
    for core in cores:
        if parts and core == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], core]
        else:
            parts.append([core, core])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in parts)


def _rate(rate: float) -> str:
    return f"{rate / 1e9:.2f} GB/s"
