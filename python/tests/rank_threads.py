"""Ranks for tests: threads of this process, which meet as Group.gathered() does."""
from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

Gathered = Callable[[Any], list[Any]]


def on_ranks(count: int, work: Callable[[int, Gathered], Any], deadline: float = 10.0) -> list[Any]:
    """What work(rank, gathered) gives on each, or the exception that ended it. Who waits for others in vain gets
    threading.BrokenBarrierError, and so do all who come later."""
    meeting = threading.Barrier(count, timeout=deadline)
    told: list[bytes] = [b""] * count
    ends: list[Any] = [None] * count

    def run(rank: int) -> None:
        def gathered(value: Any) -> list[Any]:
            told[rank] = pickle.dumps(value)
            meeting.wait()
            read = [pickle.loads(each) for each in told]
            meeting.wait()
            return read
        try:
            ends[rank] = work(rank, gathered)
        except BaseException as error:  # noqa: BLE001 - a test looks at it
            ends[rank] = error
    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return ends
