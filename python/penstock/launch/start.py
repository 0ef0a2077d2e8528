"""From options to an exit code."""
from __future__ import annotations

import argparse
import socket
from collections.abc import Callable
from dataclasses import replace

from . import arguments, filters, local, mpi, ports, script, slots, ssh
from .children import voice
from .hostfile import Hosts
from .job import PORT, Job
from ..errors import UsageError


def run(options: argparse.Namespace, name: str = "penstock launch") -> int:
    """Raises UsageError, and has started nothing."""
    arguments.check(options)
    try:
        return _run(options, name)
    except UsageError as problem:
        if not options.of_job:
            raise
        raise UsageError(f"{filters.hosts_said(options.of_job)[options.node_rank].name}: {problem}") from problem


def _run(options: argparse.Namespace, name: str) -> int:
    tell = voice(name, options.quiet)
    script.check(options)
    hosts = slots.taken(options, tell)
    if options.no_ssh and options.node_rank >= len(hosts):
        raise UsageError(f"--node_rank {options.node_rank}: there are {len(hosts)} hosts, from 0 on")
    job = Job(hosts, options.master_addr or "127.0.0.1", options.master_port or PORT)
    aloud = voice(name)  # errors are told to who wants quiet, too
    if script.is_of_the_program(options) and job.size > 1:
        choose_mpi(options)
    if options.launcher != "ssh" and not options.no_ssh:
        return mpi.run(replace(job, master_addr=options.master_addr or hosts[0].name), options, aloud)
    if options.no_ssh:
        if options.node_rank == 0 and not ports.is_free(job.master_port):
            raise UsageError(f"port {job.master_port} is in use here: say another on each host, --master_port")
        part = replace(job, master_addr=options.master_addr or _address_of_first(hosts))
        return local.run(part, options.node_rank, options, aloud)
    if len(hosts) > 1 or options.force_multi:
        return ssh.run(_met_by_all(job, options), options, aloud)
    _tell_of_host(hosts[0].name, options, tell)
    return local.run(_met_here(job, options, tell), 0, options, aloud)


def choose_mpi(options: argparse.Namespace) -> None:
    """By which the program's ranks speak. Raises UsageError."""
    if options.no_ssh:
        raise UsageError(f"launch {script.TRAIN} with --no_ssh: mpirun starts the processes of all hosts; leave out "
                         "--no_ssh and --node_rank, and run it on one of them")
    if options.launcher == "ssh":
        options.launcher = "openmpi"


def _met_here(job: Job, options: argparse.Namespace, tell: Callable[[str], None]) -> Job:
    """On one host, where another port does as well."""
    if ports.is_free(job.master_port):
        return job
    if options.master_port is not None:
        raise UsageError(f"--master_port {job.master_port} is in use; without it a free one is taken")
    other = ports.another()
    tell(f"port {job.master_port} is in use: rank 0 listens at {other}")
    return replace(job, master_port=other)


def _met_by_all(job: Job, options: argparse.Namespace) -> Job:
    """Over hosts: the first one's address, and a port that is free there."""
    asked = [] if options.no_ssh_check and options.master_addr else [each.name for each in job.hosts]
    if options.no_ssh_check:
        asked = asked[:1]
    answers = ssh.ask(asked, job.master_port, options)
    if not answers:
        return job
    address = options.master_addr or answers[0].address
    if not address:
        raise UsageError(f"{job.hosts[0].name} does not know its address (hostname -I): say --master_addr")
    if not answers[0].port_is_free:
        raise UsageError(f"port {job.master_port} is in use on {job.hosts[0].name}: say another, --master_port")
    return replace(job, master_addr=address)


def _address_of_first(hosts: Hosts) -> str:
    """By its name, which each host that starts its own processes must be able to resolve."""
    if len(hosts) == 1:
        return "127.0.0.1"
    try:
        socket.getaddrinfo(hosts[0].name, None)
    except OSError as problem:
        raise UsageError(f"--no_ssh: no address of {hosts[0].name} is known here; say --master_addr") from problem
    return hosts[0].name


def _tell_of_host(name: str, options: argparse.Namespace, tell: Callable[[str], None]) -> None:
    own = socket.gethostname()
    if name not in (slots.HERE, own, own.partition(".")[0], "127.0.0.1"):
        tell(f"{name} is the only host and is taken for this machine, {own}; --force_multi reaches it by ssh")
