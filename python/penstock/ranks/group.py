"""The user's torch.distributed processes as the core's ranks: two collectives of bytes, over groups of its own."""
from __future__ import annotations

import atexit
import ctypes
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..errors import PeerError, UsageError
from ..native import ranks as c
from ..native import structs

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
        try:
            dist.init_process_group("gloo", timeout=deadline)
        except (RuntimeError, ValueError) as problem:
            raise PeerError(f"not all {os.environ['WORLD_SIZE']} processes that the launcher speaks of have come within "
                            f"{deadline.total_seconds():.0f} s: {problem}") from problem
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]


def left() -> None:
    """Ends all process groups of this process. Those that are there when it ends end it by an abort now and then (gloo's
    threads), whatever its exit code was to be: so it is called then, too."""
    if dist.is_initialized():
        dist.destroy_process_group()


class Group:
    """The ranks of a process group, for the core. It makes two groups of the same processes, because calls on the user's
    would be mixed with the core's: all ranks make it at once. Calls come on threads of the core's; close() ends its groups,
    on all ranks at once."""

    def __init__(self, deadline: timedelta = DEADLINE) -> None:
        """Of the default process group, which joined() makes."""
        self.rank, self.ranks, self.deadline = dist.get_rank(), dist.get_world_size(), deadline
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.cause: str | None = None  # of an abort
        atexit.register(left)
        self._channels = [dist.new_group(backend="gloo", timeout=deadline) for _ in (c.CONTROL, c.BULK)]
        # What the package itself says: the core's threads are at theirs at any time.
        self._words = dist.new_group(backend="gloo", timeout=deadline)
        self._name = f"torch.distributed {dist.get_backend(self._channels[c.BULK])}".encode()
        self._calls = (c.CALL(self._guarded(self._all_gather)), c.CALL(self._guarded(self._exchange)),
                       c.ABORT(self._abort))
        self.struct = c.Ranks(ctypes.sizeof(c.Ranks), self.rank, self.ranks, self._name,
                              int(deadline.total_seconds() * 1000), *self._calls)

    def gathered(self, value: Any) -> list[Any]:
        """What each rank says, in their order; any value that can be pickled."""
        told: list[Any] = [None] * self.ranks
        self._speaking(lambda: dist.all_gather_object(told, value, group=self._words))
        return told

    def take_first(self, tensor: torch.Tensor) -> None:
        """It becomes rank 0's, in its place. REQUIRES: of one shape and type on all ranks."""
        whole = tensor.cpu().contiguous()
        self._speaking(lambda: dist.broadcast(whole, dist.get_global_rank(self._words, 0), group=self._words))
        if whole.data_ptr() != tensor.data_ptr():
            with torch.no_grad():
                tensor.copy_(whole)

    def _speaking(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except RuntimeError as problem:
            raise PeerError(f"rank {self.rank} of {self.ranks} has lost the others: {self.cause or problem}") from problem

    def close(self) -> None:
        for each in (*self._channels, self._words):
            dist.destroy_process_group(each)

    def _all_gather(self, channel: int, mine: int, everyones: int, count: int) -> None:
        dist.all_gather_into_tensor(_memory(everyones, count * self.ranks), _memory(mine, count),
                                    group=self._channels[channel])

    def _exchange(self, channel: int, to: int, come: int, count: int) -> None:
        dist.all_to_all_single(_memory(come, count * self.ranks), _memory(to, count * self.ranks),
                               group=self._channels[channel])

    def _guarded(self, call: Callable[[int, int, int, int], None]) -> Callable[..., int]:
        """No exception may leave it: ctypes would drop it, and take what lies in a register for the status."""
        def status(channel: int, one: int, other: int, count: int, _user: Any, error: Any) -> int:
            try:
                if self.cause is not None:
                    raise RuntimeError(self.cause)
                call(channel, one, other, count)
                return structs.OK
            except BaseException as problem:  # noqa: BLE001
                text = f"{self.cause or problem}".encode(errors="replace")[:2000]
                if error:
                    error.contents.status, error.contents.message = structs.PEER_LOST, text
                return structs.PEER_LOST
        return status

    def _abort(self, cause: bytes, _user: Any) -> None:
        try:
            self.cause = self.cause or cause.decode(errors="replace")
            for each in self._channels:
                backend = each._get_backend(torch.device("cpu"))
                if hasattr(backend, "abort"):
                    backend.abort()
        except BaseException:  # noqa: BLE001 - it has ended already
            pass


def _memory(address: int, count: int) -> torch.Tensor:
    return torch.frombuffer((ctypes.c_uint8 * count).from_address(address), dtype=torch.uint8)
