"""All processes by one command: mpirun or srun."""
from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping

from . import environment, script
from .children import Children, Command
from .filters import said_of
from .hostfile import Hosts
from .job import Job
from .rank import LOCAL_RANK
from ..errors import UsageError

COMMANDS = {"openmpi": "mpirun", "slurm": "srun"}


def run(job: Job, options: argparse.Namespace, tell: Callable[[str], None]) -> int:
    """Raises UsageError, and has started nothing."""
    check(job.hosts, options)
    own = {**environment.exported(os.environ, os.getcwd()), **environment.of_files()}
    with tempfile.NamedTemporaryFile("w", prefix="penstock-hosts-", encoding="utf-8") as file:
        file.write("".join(f"{each.name} slots={len(each.slots)}\n" for each in job.hosts))
        file.flush()
        words = mpirun(job, options, own, file.name) if options.launcher == "openmpi" else srun(job, options, own)
        return Children(tell).run([Command(COMMANDS[options.launcher], words, {**os.environ, **own},
                                           when_we_end=signal.SIGTERM)])  # upon which it ends its own


def check(hosts: Hosts, options: argparse.Namespace) -> None:
    """Raises UsageError for what counts of slots cannot say."""
    name = COMMANDS[options.launcher]
    if shutil.which(name) is None:
        raise UsageError(f"--launcher {options.launcher}: there is no {name} in PATH")
    chosen = next((each for each in hosts if each.slots != tuple(range(len(each.slots)))), None)
    if chosen is not None:
        raise UsageError(f"--launcher {options.launcher} counts slots and cannot choose {said_of((chosen,))}: name "
                         "whole hosts, --num_gpus, or --launcher ssh")
    if options.launcher == "slurm" and len({len(each.slots) for each in hosts}) > 1:
        counts = ", ".join(f"{each.name} {len(each.slots)}" for each in hosts)
        raise UsageError(f"--launcher slurm wants as many slots on each host, and there are {counts}; say --num_gpus")
    own_logs = () if script.is_of_the_program(options) else ("enable_each_rank_log",)
    unused = [f"--{each}" for each in ("bind_cores_to_rank", *own_logs, "venv_script", "save_pid")
              if getattr(options, each)]
    if unused:
        raise UsageError(f"--launcher {options.launcher} with {', '.join(unused)}: {name} has options of its own for "
                         "that, --launcher_args")


def mpirun(job: Job, options: argparse.Namespace, own: Mapping[str, str], hostfile: str) -> list[str]:
    """Open MPI's, by slots in the hosts' order."""
    exported = [word for name, value in own.items() for word in ("-x", f"{name}={value}")]
    return ["mpirun", "-n", str(job.size), "--hostfile", hostfile, "--map-by", "slot", "--mca", "btl", "^openib",
            *shlex.split(options.launcher_args), *exported, *rank_itself(job, options)]


def srun(job: Job, options: argparse.Namespace, own: Mapping[str, str]) -> list[str]:
    """One step of the allocation's, or an allocation of its own; the environment goes as it is, with our lines."""
    of_host = len(job.hosts[0].slots)
    gpus = ["--gpus-per-node", str(options.num_gpus)] if options.num_gpus > 0 else []
    meets = ["--mpi=pmix"] if script.is_of_the_program(options) else []  # by which Open MPI's ranks find each other
    return ["srun", "--ntasks", str(job.size), "--nodes", str(len(job.hosts)), "--ntasks-per-node", str(of_host),
            "--nodelist", ",".join(each.name for each in job.hosts), "--kill-on-bad-exit=1", "--export=ALL", *meets,
            *gpus, *shlex.split(options.launcher_args), *rank_itself(job, options)]


def rank_itself(job: Job, options: argparse.Namespace) -> list[str]:
    """The script, behind what reads the variables of MPI or Slurm; the program reads them itself."""
    if script.is_of_the_program(options):
        logs = ["--rank-logs", options.enable_each_rank_log] if options.enable_each_rank_log else []
        return [*script.words_of(options, 0), *logs]
    return [sys.executable, "-m", "penstock.launch.rank", f"{job.master_addr}:{job.master_port}",
            *script.words_of(options, LOCAL_RANK)]
