"""Several hosts: on each, by ssh, a launcher that starts the ranks of that host and ends them when ssh is gone."""
from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from . import environment, filters
from .children import Children, Command
from .job import Job
from ..errors import UsageError

# A host that does not answer is known after 15 s, one that falls silent after a minute.
OPTIONS = ("-oBatchMode=yes", "-oConnectTimeout=15", "-oServerAliveInterval=15", "-oServerAliveCountMax=4")
SECONDS = 60  # for a host's answer beforehand
NO_DIRECTORY, NO_PYTHON = 101, 102  # exit codes of what is asked of it
PASSED = ("bind_core_list", "enable_each_rank_log")  # options with a value, as they are
PASSED_FLAGS = ("module", "no_python", "no_local_rank", "bind_cores_to_rank", "quiet")


@dataclass(frozen=True)
class Answer:
    """What a host says of itself."""

    address: str
    port_is_free: bool


def run(job: Job, options: argparse.Namespace, tell: Callable[[str], None]) -> int:
    """Raises UsageError, and has started nothing."""
    own = {**environment.exported(os.environ, os.getcwd()), **environment.of_files()}
    return Children(tell).run([command(job, node, options, own) for node in range(len(job.hosts))])


def command(job: Job, node: int, options: argparse.Namespace, own: Mapping[str, str]) -> Command:
    """That starts host `node`."""
    passed = [f"--{name}={said}" for name in PASSED if (said := getattr(options, name))]
    passed += [f"--{name}" for name in PASSED_FLAGS if getattr(options, name)]
    there = [sys.executable, "-u", "-m", "penstock", "launch", "--hears", "--no_ssh", f"--node_rank={node}",
             f"--of_job={filters.said_of(job.hosts)}", f"--master_addr={job.master_addr}",
             f"--master_port={job.master_port}", *passed, options.user_script, *options.user_args]
    name = job.hosts[node].name
    return Command(name, ssh(name, options, in_shell(f"exec {shlex.join(there)}", options, own)), os.environ, far=True)


def in_shell(command_line: str, options: argparse.Namespace, own: Mapping[str, str]) -> str:
    """Run in this directory, with the environment that is exported, by sh whatever the user's own shell is."""
    before = [f"cd {shlex.quote(os.getcwd())} || exit {NO_DIRECTORY}"]
    if options.venv_script:
        before.append(f". {shlex.quote(os.path.abspath(options.venv_script))}")
    before += [f"export {name}={shlex.quote(value)}" for name, value in own.items()]
    return f"exec sh -c {shlex.quote('; '.join([*before, command_line]))}"


def ssh(host: str, options: argparse.Namespace, command_line: str) -> list[str]:
    port = [] if options.ssh_port is None else ["-p", str(options.ssh_port)]
    return ["ssh", *OPTIONS, *port, *shlex.split(options.launcher_args), host, command_line]


def ask(hosts: list[str], port: int, options: argparse.Namespace) -> list[Answer]:
    """All at once. Raises UsageError with the first that cannot be reached, or lacks what it needs."""
    own = {**environment.exported(os.environ, os.getcwd()), **environment.of_files()}
    asked = in_shell(f"{shlex.join([sys.executable, '-m', 'penstock.launch.answer', str(port)])} || exit {NO_PYTHON}",
                     options, own)
    with ThreadPoolExecutor(max_workers=32) as pool:
        return list(pool.map(lambda host: _answer(host, ssh(host, options, asked)), hosts))


def _answer(host: str, words: list[str]) -> Answer:
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS,
                              check=False)
    except OSError as problem:
        raise UsageError(f"ssh cannot be started: {problem.strerror}") from problem
    except subprocess.TimeoutExpired as problem:
        raise UsageError(f"{host} has not answered for {SECONDS} s: try ssh {host} hostname") from problem
    said = next(iter(reversed(done.stderr.strip().splitlines())), f"exit code {done.returncode}")
    if done.returncode == NO_DIRECTORY:
        raise UsageError(f"{host} has no directory {os.getcwd()}: {said}")
    if done.returncode == NO_PYTHON:
        raise UsageError(f"{host} has no {sys.executable} with Penstock: {said}")
    try:
        if done.returncode == 0:
            return Answer(**json.loads(done.stdout.splitlines()[-1]))
    except (ValueError, TypeError, IndexError):
        said = f"it answers {done.stdout!r}"
    raise UsageError(f"{host} cannot be reached: {said}; try ssh {host} hostname, which must ask for nothing")
