"""Of all that is said: the hosts of a job, with the slots that are taken."""
from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping

from . import filters, gpus, slurm
from .cores import usable
from .hostfile import DEFAULT, Host, Hosts, read_hostfile
from ..errors import UsageError

HERE = "localhost"
VISIBLE = "CUDA_VISIBLE_DEVICES"


def taken(options: argparse.Namespace, tell: Callable[[str], None],
          environment: Mapping[str, str] = os.environ) -> Hosts:
    """Raises UsageError."""
    if options.of_job:
        return filters.hosts_said(options.of_job)
    there = _listed(options, environment)
    if there is None:
        there = _of_this_machine(options, tell, environment)
    if options.include:
        return filters.included(there, options.include)
    if options.exclude:
        return filters.excluded(there, options.exclude)
    return filters.first(there, *(None if count < 0 else count for count in (options.num_nodes, options.num_gpus)))


def _listed(options: argparse.Namespace, environment: Mapping[str, str]) -> Hosts | None:
    """By a hostfile, or Slurm's allocation."""
    if options.hostfile:
        return read_hostfile(options.hostfile)
    if os.path.isfile(DEFAULT):
        return read_hostfile(DEFAULT)
    return slurm.allocated(environment) if options.launcher == "slurm" else None


def _of_this_machine(options: argparse.Namespace, tell: Callable[[str], None], environment: Mapping[str, str]) -> Hosts:
    """Its GPUs; without any one process, or as many as are asked for."""
    filtered = options.include or options.exclude or options.num_gpus >= 0 or options.num_nodes > 1
    visible = environment.get(VISIBLE, "")
    if visible and not filtered:
        return (Host(HERE, tuple(range(len(visible.split(","))))),)
    count = gpus.count()
    if visible and count:
        tell(f"{VISIBLE}={visible} does not count beside --include, --exclude, --num_gpus or --num_nodes")
    if count:
        return (Host(HERE, tuple(range(count))),)
    if options.num_gpus > 0:
        return (Host(HERE, tuple(range(options.num_gpus))),)
    return (Host(HERE, usable() if options.include or options.exclude else (0,)),)


def visible_to(host: Host, environment: Mapping[str, str], said: bool) -> dict[str, str]:
    """The variable by which processes of this host see their GPUs alone: none without GPUs, nor where all that the user
    sees are taken."""
    if not said and environment.get(VISIBLE) or environment.get(VISIBLE) == "" or not gpus.count():
        return {}
    return {VISIBLE: ",".join(map(str, host.slots))}
