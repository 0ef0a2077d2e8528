"""The board of the ranks: a few short texts that all of them see, in the store of torch.distributed."""
from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from ..errors import PeerError
from .connections import Connections

PATIENCE = 30  # seconds
Answer = TypeVar("Answer")


class Board:
    """Texts by their keys, of one run. A call is answered within `patience` seconds or raises PeerError, as does every call
    behind that one. Any thread."""

    def __init__(self, store: Any, run: str, patience: int = PATIENCE) -> None:
        """Of a store of torch's. `run`: a name that no other run has, and all ranks of this one."""
        self._host = store  # where this process has it, it goes with the last that holds it
        with Connections() as connections:
            self._store = dist.PrefixStore(f"penstock/{run}", own_connection(store))  # type: ignore[attr-defined]
        self._answered = _Answered(patience, connections.cut)

    def put(self, key: str, value: str) -> None:
        """In the place of what stands at the key."""
        self._answered(lambda: self._store.set(key, value))

    def put_first(self, key: str, value: str) -> str:
        """What stands at the key from now on: `value`, or what was put there before by any rank."""
        return _text(self._answered(lambda: self._store.compare_set(key, "", value)))

    def get(self, key: str) -> str | None:
        """None where nothing was put; waits for nobody."""
        return self._answered(lambda: _text(self._store.get(key)) if self._store.check([key]) else None)

    def close(self) -> None:
        """No call comes behind it."""
        self._answered.close()


def own_connection(store: Any) -> Any:
    """To the same store. On the program's own connection calls wait for each other; one that waits for a key, as in the
    making of a group, would hold up all."""
    if hasattr(store, "clone"):
        return store.clone()
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    tcp = dist.TCPStore  # type: ignore[attr-defined]
    if isinstance(store, tcp):  # its prefixes are lost, but a run's name is its own
        return tcp(store.host, store.port, is_master=False, wait_for_workers=False)
    return store


class _Answered:
    """Makes calls on a thread of its own, one at a time, and waits no longer than `seconds` for each: a store whose host is
    stopped keeps whoever asks it, for ever. It is not asked again."""

    def __init__(self, seconds: int, give_up: Callable[[], None]) -> None:
        """`give_up` ends the call that is under way: one that came back while the interpreter ends would abort it."""
        self._seconds, self._give_up = seconds, give_up
        self._turn = threading.Lock()
        self._asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lost: str | None = None
        threading.Thread(target=self._answer, name="penstock board", daemon=True).start()

    def __call__(self, call: Callable[[], Answer]) -> Answer:
        with self._turn:
            if self._lost is None:
                answer: queue.SimpleQueue[tuple[Answer, None] | tuple[None, Exception]] = queue.SimpleQueue()
                self._asked.put((call, answer))
                # A second at a time: where this process is stopped for minutes, one is gone, and the answer is there.
                for _ in range(self._seconds):
                    try:
                        value, problem = answer.get(timeout=1)
                    except queue.Empty:
                        continue
                    if problem is None:
                        return value  # type: ignore[return-value]
                    self._lost = f"the store of the processes is lost: {problem}"
                    break
                else:
                    self._lost = f"the store of the processes has not answered for {self._seconds} s"
                    self._give_up()
            raise PeerError(self._lost)

    def close(self) -> None:
        self._asked.put(None)

    def _answer(self) -> None:
        while (asked := self._asked.get()) is not None:
            call, answer = asked
            try:
                answer.put((call(), None))
            except Exception as problem:
                answer.put((None, problem))


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
