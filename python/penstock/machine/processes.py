"""Processes that a launcher has started, where they are not the ranks of one training."""
from __future__ import annotations

import os
from typing import Any

import torch

from ..errors import UsageError

# Of torchrun and others, Open MPI, MPICH, and a step of Slurm's; SLURM_NTASKS is an allocation's, in which one may run.
COUNTS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")

REMEDY = ("Start them by torchrun, `penstock launch`, Open MPI's mpirun or srun; or say penstock.initialize(ranks=False): "
          "each trains alone then, in a directory of its own, with the rank in its name")
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def check_spoken_of(remedy: str = REMEDY) -> None:
    """Raises UsageError where a launcher has started several and not told them how they reach each other."""
    told = _is_several(os.environ.get("WORLD_SIZE", ""))
    several = [f"{name} is {os.environ[name]}" for name in COUNTS if _is_several(os.environ.get(name, ""))]
    distributed = torch.distributed
    if several and not told and not (distributed.is_available() and distributed.is_initialized()):
        raise UsageError(f"{', '.join(several)}: a launcher has started several processes, and nothing says how they "
                         f"reach each other (WORLD_SIZE, RANK, MASTER_ADDR, MASTER_PORT). {remedy}")


def check_one() -> None:
    """Raises UsageError where there are several."""
    several = [f"{name} is {os.environ[name]}" for name in COUNTS if _is_several(os.environ.get(name, ""))]
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        several.append(f"torch.distributed has {distributed.get_world_size()} ranks")
    if several:
        raise UsageError(f"{', '.join(several)}: a launcher has started several processes, and one model over several "
                         "is trained by penstock.initialize() alone so far. Start one process; or call that")


def is_first() -> bool:
    """Of the processes that train alone, or the only one: it tells of the training."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank() == 0
    return not any(_is_several(os.environ.get(count, "")) and os.environ.get(rank, "0") != "0"
                   for count, rank in zip(COUNTS, RANKS))


def _is_several(count: str) -> bool:
    return count.isdecimal() and int(count) > 1
