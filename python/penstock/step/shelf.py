"""What units are given, kept from forward to backward: laid aside in the core, under a budget of its own, beyond which
it goes to NVMe."""
from __future__ import annotations

import weakref
from collections import deque

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from ..core import Core
from ..errors import UsageError

LEAST_BYTES = 64 << 10  # smaller ones stay where they are
LAST_TURN = 1 << 62  # backward takes what was laid aside last first


class Laid:
    """A copy of a tensor, in the core until nobody refers to this any more."""

    def __init__(self, tensor: torch.Tensor, turn: int, opening: int) -> None:
        self.turn, self.opening = turn, opening
        self.version = tensor._version
        self._shape, self._stride = tensor.shape, tensor.stride()
        self.dtype, self.device = tensor.dtype, tensor.device

    def seen(self, memory: torch.Tensor) -> torch.Tensor:
        """As the tensor was, over bytes of the core's."""
        return memory.view(self.dtype).as_strided(self._shape, self._stride)

    def empty(self) -> torch.Tensor:
        return torch.empty_strided(self._shape, self._stride, dtype=self.dtype, device=self.device)


class Shelf:
    """Of an engine whose core lays things aside. The drop of what nobody refers to any more may be noticed on any
    thread, within any call: the core is told by the next call."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._there = 0  # how many are laid aside
        self._count = 0  # were, since there was none
        self._dropped: deque[tuple[int, int]] = deque()
        self._known: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def pack(self, known_as: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor | Laid:
        """Lays a tensor aside, each once: `known_as` is who others know it as. A small one stays as it is."""
        if not _is_to_be_laid(tensor):
            return tensor
        known = self._known.get(known_as)
        laid: Laid | None = known() if known is not None else None
        if laid is not None and laid.version == tensor._version and laid.opening == self._core.opening:
            return laid
        return self._lay(known_as, tensor)

    def take(self, packed: torch.Tensor | Laid) -> torch.Tensor:
        """Raises UsageError where the store has gone back to a snapshot since."""
        if isinstance(packed, torch.Tensor):
            return packed
        if packed.opening != self._core.opening:
            raise UsageError("backward through a forward that came before the store went back to a snapshot")
        self._drop()
        return packed.empty().copy_(packed.seen(self._core.take(packed.turn)))

    # Private.
    def _lay(self, known_as: torch.Tensor, tensor: torch.Tensor) -> Laid:
        self._drop()
        laid = Laid(tensor, LAST_TURN - self._count, self._core.opening)
        laid.seen(self._core.lay(laid.turn, tensor.nbytes)).copy_(tensor.detach())
        self._there += 1
        self._count += 1
        weakref.finalize(laid, self._dropped.append, (laid.turn, laid.opening)).atexit = False
        self._known[known_as] = weakref.ref(laid)
        return laid

    def _drop(self) -> None:
        while self._dropped:
            turn, opening = self._dropped.popleft()
            self._there -= 1
            if opening == self._core.opening:
                self._core.drop(turn)
        if self._there == 0:
            self._count = 0


def _is_to_be_laid(tensor: torch.Tensor) -> bool:
    """Large enough, and as dense as a copy of it would be."""
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.is_nested:
        return False
    if tensor.is_conj() or tensor.is_neg():
        return False
    if tensor.nbytes < LEAST_BYTES or tensor.is_inference():
        return False
    return torch.empty_like(tensor, device="meta").stride() == tensor.stride()
