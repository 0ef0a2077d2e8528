"""The processes of this host: a command for each rank."""
from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from . import cores, environment, script, slots
from .children import Children, Command
from .job import Job, variables_of
from ..errors import UsageError

PID_FILE = "/tmp/{}.deepspeed"  # where DeepSpeed's users look for it


def run(job: Job, node: int, options: argparse.Namespace, tell: Callable[[str], None]) -> int:
    """Starts the ranks of host `node` here; the exit code."""
    lines = {} if options.hears else environment.of_files()  # who has started us by ssh has read his
    commands = commands_of(job, node, options, {**os.environ, **lines})
    with _process_id_in_file(options.save_pid):
        return Children(tell, hears=0 if options.hears else None).run(commands)


def commands_of(job: Job, node: int, options: argparse.Namespace, given: Mapping[str, str]) -> list[Command]:
    """Raises UsageError."""
    host, count = job.hosts[node], len(job.hosts[node].slots)
    bound = cores.shares(cores.chosen(options.bind_core_list), count) if options.bind_cores_to_rank else [()] * count
    common = {**given, **slots.visible_to(host, given, is_selected(options))}
    if options.bind_cores_to_rank:
        common["OMP_NUM_THREADS"] = str(len(bound[0]))
    elif count > 1:
        common.setdefault("OMP_NUM_THREADS", str(max(1, len(cores.usable()) // count)))
    logs = _log_names(options.enable_each_rank_log)
    where = f" on {host.name}" if len(job.hosts) > 1 else ""
    return [Command(f"rank {rank}{where}", script.words_of(options, number),
                    {**common, **variables_of(job, node, number)},
                    bound[number], logs(rank), reads=not options.hears)
            for number, rank in enumerate(job.ranks_of(node))]


def is_selected(options: argparse.Namespace) -> bool:
    """Whether slots are chosen by words of the launcher's, not by CUDA_VISIBLE_DEVICES."""
    return bool(options.of_job or options.hostfile or options.include or options.exclude or options.num_gpus >= 0)


def _log_names(folder: str) -> Callable[[int], str]:
    if not folder:
        return lambda rank: ""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as problem:
        raise UsageError(f"--enable_each_rank_log {folder}: {problem.strerror}") from problem
    begun = time.strftime("%Y%m%d%H%M%S")
    return lambda rank: os.path.join(folder, f"{begun}_rank{rank}.log")


@contextmanager
def _process_id_in_file(wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    path = PID_FILE.format(os.getpid())
    try:
        if os.path.lexists(path):
            os.unlink(path)  # of a process that had our number
        with open(path, "x", encoding="ascii") as file:
            file.write(str(os.getpid()))
    except OSError as problem:
        raise UsageError(f"--save_pid: {path}: {problem.strerror}") from problem
    try:
        yield
    finally:
        os.unlink(path)
