"""Children for tests that begin where torch has been imported: forked off a process that did so (fork_server.py), which costs
a tenth. As subprocess.run() and subprocess.Popen: the process is one of its own, with this id, signals and exit code. Only
its parent is the server. A child that is measured, or whose start is what is tried, is made by subprocess.

A server has one environment, flags of Python's and modules, and lives no longer than who asked for it. Variables that are read
when something is imported are its own; LATE ones, read afterwards, come with each child. Ranks of one training come from
two servers: what depends on the order of sets, or on where memory lies, differs between them as it would between programs."""
from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fork_server import TOLD

HERE = Path(__file__).resolve().parent
TORCH = ("numpy", "torch", "torch._dynamo", "pytest")  # an optimizer imports the third
TRAINER = (*TORCH, "accelerate", "transformers", "transformers.trainer", "transformers.models.gpt2.modeling_gpt2")
LATE = ("PENSTOCK_", "PYTEST_", "PYTHONPATH", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_")
MOST = 6  # servers, of 0.4 GB each
SERVE = "import sys; sys.path.insert(0, {here!r}); import fork_server; fork_server.serve({number}, {modules!r})"
# A thread of jemalloc's, in pyarrow, would be in the way of a fork.
WITHOUT_THREADS = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}

_servers: dict[Any, tuple[socket.socket, subprocess.Popen[bytes]]] = {}


def run(args: Sequence[Any], *, warm: Sequence[str] = TORCH, input: str | None = None, capture_output: bool = False,
        timeout: float | None = None, check: bool = False, **options: Any) -> subprocess.CompletedProcess[Any]:
    if capture_output:
        options.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with Popen(args, warm=warm, **options) as process:
        try:
            out, error = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(args, process.returncode, out, error)
    if check:
        done.check_returncode()
    return done


class Popen(subprocess.Popen[Any]):
    """Where the command is none of this Python's, or a server cannot fork, it is subprocess's own; `forked` tells. With
    preexec_fn it is, too."""

    def __init__(self, args: Sequence[Any], *, warm: Sequence[str] = TORCH, **options: Any) -> None:
        self._warm, self._session = tuple(warm), options.get("start_new_session", False)
        self._status = -1  # a pipe, through which the server says the id, and at the end the status
        super().__init__(args, **options)

    @property
    def forked(self) -> bool:
        return self._status >= 0

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: bool, pass_fds: Any, cwd: Any,
                       env: Any, startupinfo: Any, creationflags: Any, shell: bool, *rest: Any) -> None:
        if not shell and preexec_fn is None and not pass_fds and not isinstance(args, str) and args[0] == sys.executable:
            flags, words = _divided([os.fspath(each) for each in args[1:]])
            environment = dict(os.environ if env is None else env)
            asked = {"command": words, "cwd": os.fspath(cwd or os.getcwd()), "environment": environment,
                     "session": self._session, "ignored": _ignored()}
            own = [each if each >= 0 else number for number, each in enumerate((rest[0], rest[3], rest[5]))]
            self.pid, self._status = _fork(_server(flags, environment, self._warm), asked, own)
        if self._status < 0:
            super()._execute_child(args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo,  # type: ignore[misc]
                                   creationflags, shell, *rest)
        else:
            self._child_created = True
            self._close_pipe_fds(*rest[:6])  # type: ignore[attr-defined]

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._status < 0:
            return super()._try_wait(flags)  # type: ignore[misc, no-any-return]
        if flags & os.WNOHANG and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        told = os.read(self._status, TOLD)
        if not told:
            raise RuntimeError(f"the server of process {self.pid} has ended before it")
        os.close(self._status)
        return self.pid, int(told)

    def _internal_poll(self, *given: Any, **others: Any) -> int | None:
        if self._status < 0:
            return super()._internal_poll(*given, **others)  # type: ignore[misc, no-any-return]
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)  # type: ignore[attr-defined]
        return self.returncode


@atexit.register
def close(warm: Sequence[str] | None = None) -> None:
    """Ends servers of these modules, or all."""
    for key in [each for each in _servers if warm is None or each[-2] == tuple(warm)]:
        _, process = _servers.pop(key)
        process.terminate()
        process.wait()


def _divided(words: list[str]) -> tuple[list[str], list[str]]:
    """Flags of the interpreter's, and what it runs."""
    at = 0
    while words[at].startswith("-") and words[at] not in ("-c", "-m"):
        at += 2 if words[at] in ("-W", "-X") else 1
    return words[:at], words[at:]


def _ignored() -> list[int]:
    """A new program ignores what its maker ignores, and no more."""
    return [each for each in signal.valid_signals() if signal.getsignal(each) is signal.SIG_IGN]


def _server(flags: list[str], environment: dict[str, str], modules: Sequence[str]) -> socket.socket:
    """Of too many, the one that has not been asked for the longest time ends, behind its children."""
    early = {name: value for name, value in environment.items() if not name.startswith(LATE)}
    sides = 2 if int(environment.get("WORLD_SIZE", "1")) > 1 else 1
    keys = [(*flags, *sorted(early.items()), modules, side) for side in range(sides)]
    for key in keys:  # both import at once
        _servers[key] = _servers.pop(key) if key in _servers else _begun(flags, early, modules)
    while len(_servers) > MOST:
        _servers.pop(next(iter(_servers)))[0].close()
    return _servers[keys[int(environment.get("RANK", "0")) % sides]][0]


def _begun(flags: list[str], early: dict[str, str], modules: Sequence[str]) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    own, others = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with others:
        code = SERVE.format(here=str(HERE), number=others.fileno(), modules=modules)
        return own, subprocess.Popen([sys.executable, *flags, "-c", code], env={**early, **WITHOUT_THREADS},
                                     pass_fds=[others.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def _fork(server: socket.socket, asked: dict[str, Any], files: Sequence[int]) -> tuple[int, int]:
    """The process's id, and the pipe that will tell its status; -1 and -1: the server has threads."""
    reads, writes = os.pipe()
    try:
        socket.send_fds(server, [json.dumps(asked).encode()], [*files, writes])
    finally:
        os.close(writes)
    told = os.read(reads, TOLD)
    if not told:
        raise RuntimeError(f"the server of forks has ended; it was to run {asked['command']}")
    if int(told) > 0:
        return int(told), reads
    os.close(reads)
    return -1, -1
