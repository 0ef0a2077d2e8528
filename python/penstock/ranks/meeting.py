"""Where the processes that a launcher has started meet: a store of torch's, in which each says that it has come."""
from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from ..errors import PeerError, UsageError

LOGGER = logging.getLogger("penstock")
TOLD_AFTER = 60.0  # seconds, from which on it is told who has not come
PAUSE = 0.1  # seconds between two looks


def met(deadline: timedelta) -> tuple[Any, int, int]:
    """The store for a process group of all, this one's rank, and how many there are, once all have come. Raises PeerError that
    names those who have not."""
    began = time.monotonic()
    try:
        rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        _look_for(os.environ["MASTER_ADDR"], deadline)
        store = _opened(rank, began, deadline.total_seconds())
    except PeerError:
        raise
    except (RuntimeError, ValueError) as problem:
        raise not_joined(problem) from problem
    # Of torchrun's store, which outlives a restart.
    store = dist.PrefixStore(f"penstock/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)  # type: ignore[attr-defined]
    _wait_for_all(store, rank, count, began, deadline.total_seconds())
    return store, rank, count


def not_joined(problem: Exception) -> PeerError | UsageError:
    """What to raise for an error of torch's."""
    if "EADDRINUSE" in str(problem) or "already in use" in str(problem):
        return UsageError(f"MASTER_PORT {os.environ['MASTER_PORT']} is in use on this host, by another program or another "
                          "training: give the launcher another one (--master_port), or set MASTER_PORT")
    return PeerError(f"the {os.environ['WORLD_SIZE']} processes that the launcher speaks of could not be joined at {_place()}: "
                     f"{problem}")


def _place() -> str:
    return f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"


def _look_for(host: str, deadline: timedelta) -> None:
    """Of a cluster's it may become known later: torch tries again, and says nothing."""
    try:
        socket.getaddrinfo(host, None)
    except OSError as problem:
        LOGGER.warning(
            "MASTER_ADDR %s is not known to this host (%s); it is tried again for %.0f s: where the name is wrong, stop this "
            "process and say another one", host, problem.strerror, deadline.total_seconds())


def _opened(rank: int, began: float, seconds: float) -> Any:
    """Rank 0 has the store, unless torchrun has it, and waits for nobody here: torch's own rendezvous does, and cannot say for
    whom."""
    host = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if not host:
        _wait_for_port(address, port, rank, began, seconds)
    return dist.TCPStore(address, port, None, host, timeout=timedelta(seconds=seconds),  # type: ignore[attr-defined]
                         wait_for_workers=False, multi_tenant=True)


def _wait_for_port(address: str, port: int, rank: int, began: float, seconds: float) -> None:
    """Until somebody listens there. A store that waits for it by itself prints a stack when it is late."""
    due = min(TOLD_AFTER, seconds)
    while True:
        try:
            socket.create_connection((address, port), timeout=min(10.0, seconds)).close()
            return
        except OSError as problem:
            if (taken := time.monotonic() - began) >= seconds:
                raise PeerError(f"rank 0, which listens at {_place()}, has not come within {seconds:.0f} s: {problem}"
                                ) from problem
            if taken >= due:
                LOGGER.warning("missing after %.0f s: rank 0, which listens at %s; rank %d waits for it, %.0f s at the most",
                               taken, _place(), rank, seconds)
                due = seconds
        time.sleep(PAUSE)


def _wait_for_all(store: Any, rank: int, count: int, began: float, seconds: float) -> None:
    due = min(TOLD_AFTER, seconds)
    missing: list[int] = []  # as far as it was asked for: one by one, which many ranks do not do all the time
    try:
        store.set(_came(rank), "")
        while not store.check([_came(each) for each in range(count)]):
            if (taken := time.monotonic() - began) >= due:
                missing = [each for each in range(count) if not store.check([_came(each)])]
                if missing and taken >= seconds:
                    raise PeerError(f"{count - len(missing)} of {count} processes came to {_place()} within {seconds:.0f} s; "
                                    f"missing: {_named(missing)}")
                if missing and rank == min({*range(count)} - {*missing}):
                    LOGGER.warning("missing after %.0f s: %s; the others wait at %s, %.0f s at the most", taken, _named(missing),
                                   _place(), seconds)
                due = seconds
            time.sleep(PAUSE)
    except PeerError:
        raise
    except RuntimeError as problem:
        told = f"; missing: {_named(missing)}" if missing else ""
        raise PeerError(f"the process that {_place()} is of has gone before all had come{told}: {problem}") from problem


def _came(rank: int) -> str:
    return f"came/{rank}"


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
