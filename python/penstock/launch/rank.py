"""python -m penstock.launch.rank ADDRESS:PORT COMMAND…: becomes COMMAND, as the rank that mpirun or srun has made."""
from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from .slurm import tasks_of
from ..errors import UsageError

LOCAL_RANK = "LOCAL_RANK"  # stands for it in the command
# Its rank, how many there are; the same on its host.
OPEN_MPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
SLURM = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE")


def variables_of(environment: Mapping[str, str]) -> dict[str, str]:
    """By torchrun's names. Raises UsageError where neither has started it."""
    for names in (OPEN_MPI, SLURM):
        if all(each in environment for each in names):
            rank, size, local_rank, of_host = (environment[each] for each in names)
            of_host = str(_of_host(of_host, environment))
            return {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": of_host,
                    "LOCAL_SIZE": of_host}
    raise UsageError(f"neither mpirun nor srun has started this: {OPEN_MPI[0]} and {SLURM[0]} are not set")


def _of_host(said: str, environment: Mapping[str, str]) -> int:
    """Of Slurm's 4(x2),3 this host's."""
    counts, host = tasks_of(said), environment.get("SLURM_NODEID", "0")
    return counts[int(host)] if host.isdecimal() and int(host) < len(counts) else counts[0]


def main(words: list[str]) -> int:
    """Does not return where the command can be started."""
    (address, _, port), command = words[0].rpartition(":"), words[1:]
    try:
        own = variables_of(os.environ)
    except UsageError as problem:
        print(problem, file=sys.stderr)
        return 2
    cores = len(os.sched_getaffinity(0))
    if cores == os.cpu_count():  # else its starter has bound it
        cores = max(1, cores // int(own["LOCAL_SIZE"]))
    os.environ.setdefault("OMP_NUM_THREADS", str(cores))
    os.environ.update(own, MASTER_ADDR=address, MASTER_PORT=port)
    here = [f"--local_rank={own['LOCAL_RANK']}" if each == f"--local_rank={LOCAL_RANK}" else each for each in command]
    try:
        os.execvp(here[0], here)
    except OSError as problem:
        print(f"{here[0]} cannot be started: {problem.strerror}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
