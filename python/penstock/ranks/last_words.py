"""An exception that ends a script of several ranks is said to the others before its process goes, and printed once."""
from __future__ import annotations

import dataclasses
import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from traceback import format_exception_only
from types import TracebackType

from ..errors import PeerError
from ..native import structs
from .board import Board

ENDED_BY_ANOTHER = structs.PEER_LOST  # as an exit code, too
INTERRUPTED = 130                     # as a shell says of SIGINT
LINGER = 2.0                          # seconds
CAUSE = "cause"                       # zero_infinity/ranks/watch/end_cause.h has the same key and text
MOST = 1200


@dataclasses.dataclass(frozen=True)
class Cause:
    """Why a run ends, once for all ranks: `by` says it, it has happened to `rank`."""

    by: int
    rank: int
    host: str
    what: str

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.host}): {self.what}" if self.host else f"rank {self.rank}: {self.what}"

    def text(self) -> str:
        return f"{self.by} {self.rank} {self.host}\n{self.what}"

    @staticmethod
    def of(text: str) -> Cause:
        head, _, what = text.partition("\n")
        by, rank, host = [*head.split(" ", 2), "", "", ""][:3]
        return Cause(int(by), int(rank), host, what) if by.isdecimal() and rank.isdecimal() else Cause(0, 0, "", text)


class LastWords:
    """While it is installed, a script's last exception is the run's cause unless there is one. The rank whose word the cause
    is prints its traceback, as it would alone; of all others this takes the place: a line in the log, and exit code 7. Not
    after os._exit() or a signal, and not after sys.exit(), which raises nothing that is unhandled."""

    def __init__(self, board: Board, rank: int, ranks: int, abort: Callable[[str], None]) -> None:
        """`abort` ends what the other ranks wait for from this one."""
        self._board, self._rank, self._ranks, self._abort = board, rank, ranks, abort
        self._before, self._process = sys.excepthook, os.getpid()
        self._on = True
        self._is_ours: bool | None = None  # what is said; None: nothing yet
        self._hook = self._unhandled  # one object: a bound method is another one each time
        sys.excepthook = self._hook

    def uninstall(self) -> None:
        """Whoever has put a hook above it in the meantime goes on calling what was below."""
        self._on = False
        if sys.excepthook is self._hook:
            sys.excepthook = self._before

    def linger(self) -> None:
        """To be called when the connections of this process are closed, by which the others notice, and before it goes: rank
        0 mostly has the board in it, and stays until all others have read the cause there, for LINGER at most."""
        last = time.monotonic() + LINGER
        try:
            for other in range(1, self._ranks if self._rank == 0 and self._is_ours is not None else 0):
                while self._board.get(_read_by(other)) is None and time.monotonic() < last:
                    time.sleep(0.02)
        except PeerError:
            pass

    def says(self, problem: BaseException) -> bool:
        """This rank ends by it: whether it says so where its user reads. Of an exception that is handled, as by a command;
        others come here by themselves. The first time counts."""
        if self._is_ours is None:
            stands = self._put(Cause(self._rank, self._rank, socket.gethostname(), _words(problem)))
            self._is_ours = stands.by == self._rank if stands else self._speaks_alone(problem)
            self._abort(str(stands or problem))
            if not self._is_ours:
                logging.getLogger("penstock").info("rank %d has ended because of %s", self._rank, stands or problem)
        return self._is_ours

    def _unhandled(self, kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
        if not self._on or os.getpid() != self._process:  # a fork has the hook, and is no rank
            self._before(kind, problem, trace)
        elif not self.says(problem):
            raise SystemExit(INTERRUPTED if issubclass(kind, KeyboardInterrupt) else ENDED_BY_ANOTHER)
        else:
            self._before(kind, problem, trace)
            if issubclass(kind, PeerError):
                raise SystemExit(ENDED_BY_ANOTHER)

    def _put(self, own: Cause) -> Cause | None:
        """What stands on the board from now on; None: it is lost."""
        stands = None
        try:
            stands = Cause.of(self._board.put_first(CAUSE, own.text()))
            self._board.put(_read_by(self._rank), "")
        except PeerError:
            pass
        return stands

    def _speaks_alone(self, problem: BaseException) -> bool:
        """Without a board: each says what is its own, and of what they have from others the first behind rank 0, with which
        the board mostly goes."""
        return not isinstance(problem, PeerError) or self._rank == 1


def _read_by(rank: int) -> str:
    return f"read/{rank}"


def _words(problem: BaseException) -> str:
    """In one line, with where it was raised."""
    words = " ".join("".join(format_exception_only(type(problem), problem)).split())[:MOST // 4 * 3]
    trace = problem.__traceback__
    if trace is None:
        return words
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{words} ({trace.tb_frame.f_code.co_filename[-MOST // 4:]}:{trace.tb_lineno})"
