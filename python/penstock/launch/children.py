"""Processes that are started together and end together: the one place that starts and ends them."""
from __future__ import annotations

import ctypes
import enum
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import IO

from ..errors import UsageError

STOPPED, PEER_LOST = 75, 7  # exit codes of the program
COURTESY = 10.0  # seconds, for those who know already why they end
GRACE = 30.0  # from SIGTERM to SIGKILL, as DeepSpeed and torchrun have it
PATIENCE = 1800.0  # for the step of a training that was asked to stop
LAST = 5.0  # from SIGKILL to its end; what takes longer waits for a device
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Command:
    """A process that is to be started."""

    name: str  # in messages
    words: list[str]
    environment: Mapping[str, str]
    cores: tuple[int, ...] = ()  # none: those of the launcher
    log: str = ""  # a file for what it prints
    far: bool = False  # it starts others on another host, hears signals as words, and tells itself how they have ended
    reads: bool = True  # standard input
    when_we_end: int = signal.SIGKILL  # what the kernel sends it then


class State(enum.Enum):
    """Each leads to the next, by a signal or a deadline."""

    running = "running"
    waiting = "waiting"  # one has ended in a way that the others know of, and end by
    stopping = "stopping"  # the user has asked for it
    ending = "ending"  # all have SIGTERM, because one has ended badly or the user has asked again
    killed = "killed"  # all have SIGKILL
    left = "left"  # what cannot be killed is not waited for


@dataclass
class Child:
    command: Command
    process: subprocess.Popen[bytes]
    code: int | None = None  # a shell's

    @property
    def runs(self) -> bool:
        return self.code is None

    def look(self) -> bool:
        """Whether it has ended since."""
        if self.code is not None or self.process.poll() is None:
            return False
        self.code = shells_code(self.process.returncode)
        return True

    def send(self, number: int) -> None:
        if not self.command.far:
            self._signal(number)
        elif self.process.stdin is not None:
            try:
                self.process.stdin.write(f"{signal.Signals(number).name}\n".encode())
                self.process.stdin.flush()
            except OSError:  # it has ended, which look() will tell
                pass

    def kill(self) -> None:
        """With all of its group, also when it has ended itself."""
        if self.command.far:
            self.send(signal.SIGKILL)
        else:
            self._signal(signal.SIGKILL, group=True)

    def cut(self) -> None:
        """A connection that a word did not end."""
        if self.command.far:
            self._signal(signal.SIGKILL, group=True)

    def _signal(self, number: int, group: bool = False) -> None:
        try:
            (os.killpg if group else os.kill)(self.process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass


@dataclass
class Children:
    """All of a launch, in the main thread, which takes its signals. `tell` gets lines. From the file `hears` signals come
    as words; its end ends them."""

    tell: Callable[[str], None]
    hears: int | None = None
    state: State = State.running
    listed: list[Child] = field(default_factory=list)
    _deadline: float | None = None
    _bad: list[tuple[Child, int]] = field(default_factory=list)  # in their order, without the ends that we have caused
    _asked: int = signal.SIGTERM
    _of_one_host: bool = field(init=False)  # another launcher knows the ends of all hosts

    def __post_init__(self) -> None:
        self._of_one_host = self.hears is not None

    def run(self, commands: Iterable[Command]) -> int:
        """Starts them and waits for all; the exit code: the first that is not 0, 7 last."""
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        before = {number: signal.signal(number, lambda *_: None) for number in (*STOPS, signal.SIGCHLD)
                  if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGCHLD}
        woken = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            for each in commands:
                self.listed.append(start(each))
            while self.state is not State.left and any(each.runs for each in self.listed):
                self._wait(reader)
                self._look()
                self._pass_deadline()
        finally:
            for child in self.listed:
                if child.runs:
                    child.kill()
                    child.cut()
            signal.set_wakeup_fd(woken)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(reader)
            os.close(writer)
        return self._code()

    def _code(self) -> int:
        if any(each.runs for each in self.listed):
            return _of_signal(signal.SIGKILL)
        cause = next((code for _, code in self._bad if code != PEER_LOST), 0)
        if self._bad and not cause and not self._of_one_host:
            self._tell_cause(*self._bad[0])
        return cause or (PEER_LOST if self._bad else 0)

    def _wait(self, reader: int) -> None:
        """For a signal, a word or the deadline."""
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        heard = [] if self.hears is None else [self.hears]
        for ready in select.select([reader, *heard], [], [], left)[0]:
            data = os.read(ready, 4096)
            for number in (data if ready == reader else self._words(data)):
                if number in (*STOPS, signal.SIGKILL):
                    self._ask(number)

    def _words(self, data: bytes) -> list[int]:
        if not data:
            self.hears = None
            self.tell("the connection to the launcher is lost: the processes of this host are ended")
            self._end()
        return [signal.Signals[word] for word in data.decode().split() if word in signal.Signals.__members__]

    def _ask(self, number: int) -> None:
        """A stop: each further one is taken more seriously."""
        if number == signal.SIGKILL or self.state in (State.ending, State.killed):
            self._kill()
        elif self.state is State.stopping:
            self._to(State.ending, GRACE)
            self._send(number)
        else:
            self._asked = number
            self._to(State.stopping, PATIENCE)
            self._send(number)

    def _look(self) -> None:
        """What has ended since."""
        for child in self.listed:
            if child.look():
                self._ended(child, child.code or 0)

    def _ended(self, child: Child, code: int) -> None:
        if self.state in (State.ending, State.killed):
            child.kill()  # what it has started and left
            if self._bad and code in (STOPPED, _of_signal(signal.SIGTERM), _of_signal(signal.SIGKILL)):
                return  # by us
        if code == 0:
            return
        self._bad.append((child, code))
        if self.state in (State.running, State.waiting):
            self._first_bad(child, code)
        elif self.state is State.stopping and code not in (STOPPED, PEER_LOST, _of_signal(self._asked)):
            self._tell_cause(child, code)
            self._to(State.ending, GRACE)  # the others may wait for it

    def _first_bad(self, child: Child, code: int) -> None:
        if code != PEER_LOST:
            self._tell_cause(child, code)
        if code not in (STOPPED, PEER_LOST):
            self._end()
        elif self.state is State.running:
            self._to(State.waiting, COURTESY)

    def _tell_cause(self, child: Child, code: int) -> None:
        others = sum(each.runs for each in self.listed)
        then = "; all others are ended" if self._of_one_host else (
            f"; the other {others} are ended" if others > 1 else "; the other is ended" if others else "")
        if not child.command.far:
            self.tell(f"{child.command.name}, process {child.process.pid}, {said_of(code)}{then}")
        elif code in (255, 126, 127) or child.process.returncode < 0:  # of ssh and shells; else its launcher has told
            self.tell(f"the connection to {child.command.name} {said_of(code)}{then}")
        elif code == PEER_LOST:
            self.tell(f"a rank on {child.command.name} {said_of(code)}{then}")

    def _pass_deadline(self) -> None:
        if self._deadline is None or time.monotonic() < self._deadline:
            return
        if self.state is State.waiting and self._bad[0][1] == STOPPED:
            self._ask(signal.SIGTERM)
        elif self.state is State.waiting:
            self._end()
        elif self.state in (State.stopping, State.ending):
            late = ", ".join(each.command.name for each in self.listed if each.runs)
            self.tell(f"{late}: not ended in time, and killed")
            self._kill()
        else:
            for each in self.listed:
                each.cut()
            self._to(State.left, None)

    def _end(self) -> None:
        if self.state not in (State.ending, State.killed):
            self._to(State.ending, GRACE)
            self._send(signal.SIGTERM)

    def _kill(self) -> None:
        self._to(State.killed, LAST)
        for each in self.listed:
            if each.runs:
                each.kill()

    def _send(self, number: int) -> None:
        for each in self.listed:
            if each.runs:
                each.send(number)

    def _to(self, state: State, seconds: float | None) -> None:
        self.state = state
        self._deadline = None if seconds is None else time.monotonic() + seconds


def start(command: Command) -> Child:
    """In a session of its own, so that a terminal's SIGINT comes from us alone; the kernel ends it when we end. Raises
    UsageError."""
    parent = os.getpid()

    def in_child() -> None:
        _libc.prctl(_PDEATHSIG, command.when_we_end)
        if os.getppid() != parent:  # gone before the line above
            os._exit(128 + signal.SIGKILL)
        if command.cores:
            os.sched_setaffinity(0, command.cores)

    log: IO[bytes] | None = None
    try:
        log = open(command.log, "wb") if command.log else None
        process = subprocess.Popen(
            command.words, env=dict(command.environment), start_new_session=True, preexec_fn=in_child,
            stdin=subprocess.PIPE if command.far else None if command.reads else subprocess.DEVNULL,
            stdout=log, stderr=subprocess.STDOUT if log else None)
    except OSError as problem:
        raise UsageError(f"{command.name} cannot be started: {problem}") from problem
    finally:
        if log:
            log.close()
    return Child(command, process)


def shells_code(returncode: int) -> int:
    return returncode if returncode >= 0 else _of_signal(-returncode)


def said_of(code: int) -> str:
    """How a process has ended."""
    if code == STOPPED:
        return f"has stopped, exit code {STOPPED}"
    if code <= 128 or code - 128 not in signal.valid_signals():
        return f"ended with exit code {code}"
    more = ", for a lack of memory perhaps (dmesg says)" if code == _of_signal(signal.SIGKILL) else ""
    return f"was ended by {signal.Signals(code - 128).name}{more}"


def voice(name: str, quiet: bool = False) -> Callable[[str], None]:
    """To standard error, a line at once, whoever has closed it."""
    def tell(text: str) -> None:
        try:
            sys.stderr.write(f"{name}: {text}\n")
            sys.stderr.flush()
        except OSError:
            pass
    return (lambda text: None) if quiet else tell


def _of_signal(number: int) -> int:
    return 128 + number
