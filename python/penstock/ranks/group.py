"""The user's torch.distributed processes as the core's ranks: two collectives of bytes, over groups of its own."""
from __future__ import annotations

import atexit
import ctypes
import os
import pickle
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..errors import PeerError, UsageError
from ..native import ranks as c
from ..native import structs
from .board import Board
from .connections import Connections
from .last_words import LastWords
from .meeting import met, not_joined

DEADLINE = timedelta(minutes=30)  # as torch's: how far a rank may be behind the others


def started() -> bool:
    """Whether a launcher has said that this is one process of several, or the program has made a group of them."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size() > 1
    count = os.environ.get("WORLD_SIZE", "")
    return count.isdecimal() and int(count) > 1


def joined(deadline: timedelta = DEADLINE) -> None:
    """Makes the default process group where nobody has: with what the launcher says, or of this process alone."""
    if dist.is_initialized():
        return
    if not dist.is_available():
        raise UsageError("this torch has no torch.distributed: several processes cannot train one model with it")
    if started():
        missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        if missing:
            raise UsageError(f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, and {', '.join(missing)} "
                             f"{'is' if len(missing) == 1 else 'are'} not set: start the processes by torchrun or `penstock "
                             "launch`; or say penstock.initialize(ranks=False): each trains alone then, in a directory of "
                             "its own")
        store, rank, count = met(deadline)
        try:
            dist.init_process_group("gloo", store=store, rank=rank, world_size=count, timeout=deadline)
        except (RuntimeError, ValueError) as problem:
            raise not_joined(problem) from problem
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]


def left() -> None:
    """Ends all process groups of this process. Those that are there when it ends end it by an abort now and then (gloo's
    threads), whatever its exit code was to be: so it is called then, too."""
    if dist.is_initialized():
        dist.destroy_process_group()


class Group:
    """The ranks of a process group, for the core, and their board. It makes two groups of the same processes, because calls
    on the user's would be mixed with the core's: all ranks make it at once. Calls come on threads of the core's; close()
    ends its groups, on all ranks at once. Until then an exception that ends the script ends all ranks (LastWords)."""

    def __init__(self, deadline: timedelta = DEADLINE) -> None:
        """Of the default process group, which joined() makes."""
        self.rank, self.ranks, self.deadline = dist.get_rank(), dist.get_world_size(), deadline
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.cause: str | None = None  # of an abort
        self._gather: Callable[[str, bytes], list[bytes]] | None = None  # before a core is open
        atexit.register(left)
        with Connections() as self._connections:
            self._channels = [dist.new_group(backend="gloo", timeout=deadline) for _ in (c.CONTROL, c.BULK)]
            # What the package itself says: the core's threads are at theirs at any time.
            self._words = dist.new_group(backend="gloo", timeout=deadline)
        self._name = f"torch.distributed {dist.get_backend(self._channels[c.BULK])}".encode()
        self.board = Board(dist.distributed_c10d._get_default_store(), self.gathered(uuid.uuid4().hex)[0])
        self.last_words = LastWords(self.board, self.rank, self.ranks, self.abort)
        atexit.register(self._leave)
        self._calls = (c.CALL(self._guarded(self._all_gather)), c.CALL(self._guarded(self._exchange)),
                       c.ABORT(self._abort))
        self._board_calls = (c.PUT(_guarded(self._put)), c.PUT_FIRST(_guarded(self._put_first)), c.GET(_guarded(self._get)))
        self.struct = c.Ranks(ctypes.sizeof(c.Ranks), self.rank, self.ranks, self._name,
                              int(deadline.total_seconds() * 1000), *self._calls, None, *self._board_calls)

    def speak_through(self, gather: Callable[[str, bytes], list[bytes]]) -> None:
        """A core's, from its opening on (Core.gather): who makes another call than the others is named, and nobody waits."""
        self._gather = gather

    def gathered(self, value: Any, what: str = "what the package says") -> list[Any]:
        """What each rank says, in their order; any value that can be pickled. `what`: for who makes another call."""
        if self._gather is not None:
            mine = pickle.dumps(value)
            most = max(int.from_bytes(each, "little") for each in self._gather(what, len(mine).to_bytes(8, "little")))
            return [pickle.loads(each) for each in self._gather(what, mine.ljust(most, b"\0"))]
        told: list[Any] = [None] * self.ranks
        self._speaking(lambda: dist.all_gather_object(told, value, group=self._words))
        return told

    def take_first(self, tensor: torch.Tensor, rank: int = 0, what: str = "buffers and weights of one rank") -> None:
        """It becomes rank 0's, or another one's, in its place. REQUIRES: of one shape and type on all ranks."""
        if self._gather is not None:
            self._gather(what, rank.to_bytes(8, "little"))
        whole = tensor.cpu().contiguous()
        self._speaking(lambda: dist.broadcast(whole, dist.get_global_rank(self._words, rank), group=self._words))
        if whole.data_ptr() != tensor.data_ptr():
            with torch.no_grad():
                tensor.copy_(whole)

    def _speaking(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except RuntimeError as problem:
            raise PeerError(f"rank {self.rank} of {self.ranks} has lost the others: {self.cause or problem}") from problem

    def abort(self, cause: str) -> None:
        """Ends both channels; `cause` is why, unless there is one already."""
        self.cause = self.cause or cause
        self._connections.cut()

    def close(self) -> None:
        atexit.unregister(self._leave)
        self.last_words.uninstall()
        self.board.close()
        for each in (*self._channels, self._words):
            dist.destroy_process_group(each)

    def _leave(self) -> None:
        left()
        self._channels.clear()  # the last that hold their connections, by whose end the others notice
        self.last_words.linger()

    def _all_gather(self, channel: int, mine: int, everyones: int, count: int) -> None:
        dist.all_gather_into_tensor(_memory(everyones, count * self.ranks), _memory(mine, count),
                                    group=self._channels[channel])

    def _exchange(self, channel: int, to: int, come: int, count: int) -> None:
        dist.all_to_all_single(_memory(come, count * self.ranks), _memory(to, count * self.ranks),
                               group=self._channels[channel])

    def _guarded(self, call: Callable[..., None]) -> Callable[..., int]:
        """Of a channel: it says the cause of an abort, whatever it failed with."""
        def made(*given: Any) -> None:
            try:
                if self.cause is None:
                    call(*given)
            except BaseException:
                if self.cause is None:
                    raise
            if self.cause is not None:
                raise PeerError(self.cause)
        return _guarded(made)

    def _abort(self, cause: bytes, _user: Any) -> None:
        try:
            self.abort(cause.decode(errors="replace"))
        except BaseException:  # noqa: BLE001 - it has ended already
            pass

    def _put(self, key: bytes, value: bytes) -> None:
        self.board.put(key.decode(), value.decode(errors="replace"))

    def _put_first(self, key: bytes, value: bytes, stands: int, room: int) -> None:
        _write(self.board.put_first(key.decode(), value.decode(errors="replace")), stands, room)

    def _get(self, key: bytes, value: int, room: int) -> int:
        text = self.board.get(key.decode())
        if text is None:
            return structs.NOT_FOUND
        _write(text, value, room)
        return structs.OK


def _guarded(call: Callable[..., int | None]) -> Callable[..., int]:
    """No exception may leave it: ctypes would drop it, and take what lies in a register for the status."""
    def status(*given: Any) -> int:
        *arguments, _user, error = given
        try:
            return call(*arguments) or structs.OK
        except BaseException as problem:  # noqa: BLE001
            if error:
                error.contents.status = structs.PEER_LOST
                error.contents.message = f"{problem}".encode(errors="replace")[:2000]
            return structs.PEER_LOST
    return status


def _write(text: str, place: int, room: int) -> None:
    """With the NUL that ends it; what finds no room is cut."""
    whole = text.encode(errors="replace")[:room - 1] + b"\0"
    ctypes.memmove(place, whole, len(whole))


def _memory(address: int, count: int) -> torch.Tensor:
    return torch.frombuffer((ctypes.c_uint8 * count).from_address(address), dtype=torch.uint8)
