"""Processes that mpirun or srun has started without a launcher of Python's: who they are, and where they meet."""
from __future__ import annotations

import os
import zlib
from collections.abc import Mapping, MutableMapping

import torch

from ..errors import UsageError
from ..launch.rank import OPEN_MPI, SLURM, variables_of
from ..launch.slurm import hostnames

# What names a job, the same for all of its processes. Open MPI 4 has both, 5 the first.
OF_OPEN_MPIS_JOB = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
OF_SLURMS_STEP = ("SLURM_JOB_ID", "SLURM_STEP_ID")
PORTS = range(20000, 32000)  # below those that Linux gives to connections


def take_words(environment: MutableMapping[str, str] = os.environ) -> None:
    """Says by torchrun's names what Open MPI or Slurm has said by theirs, where there are several processes and nobody has
    said it. MASTER_ADDR and MASTER_PORT may be set already. Raises UsageError where it cannot be known where they meet."""
    distributed = torch.distributed
    if "WORLD_SIZE" in environment or not _is_of(environment) or distributed.is_available() and distributed.is_initialized():
        return
    own = variables_of(environment)
    if own["WORLD_SIZE"] == "1":
        return
    meeting = {"MASTER_ADDR": environment.get("MASTER_ADDR") or _address(environment, own),
               "MASTER_PORT": environment.get("MASTER_PORT") or _port(environment)}
    environment.update(own | meeting)


def _is_of(environment: Mapping[str, str]) -> bool:
    """Whether one of both has started this process. Under MPICH's mpirun in an allocation Slurm's variables are of the process
    that starts those of a host, and PMI's of this one."""
    if all(each in environment for each in OPEN_MPI):
        return True
    pmi = environment.get("PMI_RANK"), environment.get("PMI_SIZE")
    return all(each in environment for each in SLURM) and \
        pmi in ((None, None), (environment["SLURM_PROCID"], environment["SLURM_STEP_NUM_TASKS"]))


def _address(environment: Mapping[str, str], own: Mapping[str, str]) -> str:
    """Of rank 0's host."""
    if own["LOCAL_WORLD_SIZE"] == own["WORLD_SIZE"]:
        return "127.0.0.1"
    if OPEN_MPI[0] in environment:
        raise UsageError("mpirun has started processes on several hosts, and does not say which one rank 0 is on: "
                         "mpirun -x MASTER_ADDR=HOST ..., with the name by which the others reach it; or `penstock launch "
                         "--launcher openmpi`")
    try:
        return hostnames(environment.get("SLURM_STEP_NODELIST", ""))[0]
    except (UsageError, IndexError) as problem:
        raise UsageError(f"srun has started processes on several hosts, and which one rank 0 is on is not known ({problem}): set "
                         "MASTER_ADDR to the name by which the others reach it") from problem


def _port(environment: Mapping[str, str]) -> str:
    """The same on all ranks, and mostly another one for another job."""
    names = OF_OPEN_MPIS_JOB if OPEN_MPI[0] in environment else OF_SLURMS_STEP
    job = ".".join(environment[each] for each in names if each in environment)
    if not job:
        raise UsageError(f"{' and '.join(names)} are not set, of which the port would be made at which the processes meet: set "
                         "MASTER_PORT to one that is free on the host of rank 0")
    return str(PORTS[zlib.crc32(job.encode()) % len(PORTS)])
