"""The process that forked.py forks children off: it imports modules, then waits for requests, and ends when nobody is left
that could ask. It has no thread but its own, for a fork takes over no other. A child has what a new interpreter would have:
its files, environment, path of modules, arguments and `__main__`, and it ends as one does, through the interpreter's end."""
from __future__ import annotations

import builtins
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from collections.abc import Sequence
from importlib.machinery import BuiltinImporter, SourceFileLoader
from typing import Any

LONGEST = 1 << 18  # bytes of a request
TOLD = 16          # bytes of a number in an answer, so that two of them are two


def serve(number: int, modules: Sequence[str]) -> None:
    """Returns in a child that has run, to the end of the interpreter's own script."""
    for each in modules:
        importlib.import_module(each)
    keep()
    asked = Server(number).child()
    prepare(asked)
    run(*asked["command"])


def keep() -> None:
    """What has been imported is never freed, which at a child's end would take longer than most children run: neither by
    Python nor by destructors of libraries. Those that a child loads itself come before, as what is loaded later goes first."""
    kept = [list(vars(each).values()) for each in list(sys.modules.values())]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    gc.collect()
    gc.freeze()  # a collection in a child would copy all pages
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)
    libc.__cxa_atexit(libc.fflush, None, None)  # runs before it


class Server:
    def __init__(self, number: int) -> None:
        self.requests = socket.socket(fileno=number)
        self.running: dict[int, tuple[int, int]] = {}  # by the process's descriptor: its id, and who hears of its end
        self.events = select.poll()
        self.events.register(self.requests, select.POLLIN)

    def child(self) -> dict[str, Any]:
        """What it was asked for, in each child."""
        while True:
            for number, _ in self.events.poll():
                if number in self.running:
                    self.bury(number)
                    self.end_if_alone()
                elif (asked := self.hear()) is not None:
                    return asked

    def hear(self) -> dict[str, Any] | None:
        """None in the server."""
        data, files, *_ = socket.recv_fds(self.requests, LONGEST, 4)
        if not data:
            self.events.unregister(self.requests)
            self.requests.close()
            self.end_if_alone()
            return None
        pid = os.fork() if len(os.listdir("/proc/self/task")) == 1 else -1
        if pid == 0:
            self.take(files)
            return json.loads(data)  # type: ignore[no-any-return]
        for each in files[:3]:
            os.close(each)
        tell(files[3], pid)
        if pid > 0:
            end = os.pidfd_open(pid)
            self.running[end] = pid, files[3]
            self.events.register(end, select.POLLIN)
        else:
            os.close(files[3])
        return None

    def take(self, files: Sequence[int]) -> None:
        """A child's files are its own three."""
        for number, each in enumerate(files[:3]):
            os.dup2(each, number)
        for each in (*files, *self.running, *(told for _, told in self.running.values())):
            os.close(each)
        self.requests.close()

    def bury(self, number: int) -> None:
        pid, told = self.running.pop(number)
        self.events.unregister(number)
        tell(told, os.waitpid(pid, 0)[1])
        os.close(told)
        os.close(number)

    def end_if_alone(self) -> None:
        """Nobody asks any more, and nobody's end is to be told."""
        if not self.running and self.requests.fileno() < 0:
            os._exit(0)


def tell(number: int, value: int) -> None:
    """Who does not listen any more need not hear."""
    try:
        os.write(number, f"{value:{TOLD}}".encode())
    except BrokenPipeError:
        pass


def prepare(asked: dict[str, Any]) -> None:
    if asked["session"]:
        os.setsid()
    take_signals(asked["ignored"])
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.path[:] = sys.path[2:]  # without the one of forked.py, and that of -c
    importlib.invalidate_caches()
    sys.modules["numpy"].random.seed()  # Python's own is seeded by the fork
    given = [os.path.abspath(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:0] = dict.fromkeys(given)


def take_signals(ignored: Sequence[int]) -> None:
    """Python ignores two itself; a handler that a module has set at its import stays."""
    for each in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ, signal.SIGKILL, signal.SIGSTOP}:
        default = signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL
        if signal.getsignal(each) in (default, signal.SIG_IGN):
            signal.signal(each, signal.SIG_IGN if each in ignored else default)


def run(first: str, *words: str) -> None:
    """As the interpreter runs its command line."""
    own = vars(sys.modules["__main__"])
    own.clear()
    own.update(__name__="__main__", __doc__=None, __package__=None, __loader__=BuiltinImporter, __spec__=None,
               __annotations__={}, __builtins__=builtins)
    try:
        if first == "-m":
            sys.argv[:] = words
            sys.path.insert(0, os.getcwd())
            runpy._run_module_as_main(words[0])  # type: ignore[attr-defined]
        elif first == "-c":
            sys.argv[:] = ["-c", *words[1:]]
            sys.path.insert(0, "")
            exec(compile(words[0], "<string>", "exec"), own)
        else:
            sys.argv[:] = [first, *words]
            sys.path.insert(0, os.path.dirname(os.path.realpath(first)))
            own.update(__file__=first, __cached__=None, __loader__=SourceFileLoader("__main__", first))
            with open(first, "rb") as file:
                text = file.read()
            exec(compile(text, first, "exec"), own)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as problem:
        end(problem)


def end(problem: BaseException) -> None:
    """As the interpreter does where nobody has caught it, without the frame of run()."""
    trace = problem.__traceback__.tb_next if problem.__traceback__ else None
    problem.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = type(problem), problem, trace
    sys.excepthook(type(problem), problem, trace)
    sys.exit(1)
