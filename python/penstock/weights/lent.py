"""Tensors over memory that the core lends for a time. Whoever still has one afterwards, or a view of one, gets an error
when he reads or writes it: by then the memory is somebody else's."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

use_count: Callable[[Any], int] = torch._C._storage_Use_Count
# Not in torch 2.4.
forbids: Callable[[int, str], None] | None = getattr(torch._C, "_set_storage_data_ptr_access_error_msg", None)


def with_own_storage(values: torch.Tensor) -> torch.Tensor:
    """The same memory. REQUIRES: flat, of the host's."""
    return torch.from_numpy(values.view(torch.uint8).numpy()).view(values.dtype)


class Lent:
    """Tensors, each of a storage of its own, that nobody else has yet. Not for several threads."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._storages = [each.untyped_storage() for each in tensors]
        self._asked = [each._cdata for each in self._storages]
        self._own_uses = [use_count(each) for each in self._asked]
        self._all_own_uses = sum(self._own_uses)

    def is_held(self) -> bool:
        """Somebody else has a view."""
        return sum(map(use_count, self._asked)) > self._all_own_uses

    @property
    def bytes(self) -> int:
        return sum(each.nbytes() for each in self._storages)

    def outlives(self) -> bool:
        """Whose it was has let go of it, and somebody else has a view."""
        return any(use_count(each) > 1 for each in self._asked)

    def held(self, known: int = 0) -> list[int]:
        """Of which tensors somebody has a view, beside so many known ones."""
        return [at for at, asked in enumerate(self._asked) if use_count(asked) > self._own_uses[at] + known]

    def forbid(self, at: int, why: str) -> None:
        """From now on an access to this tensor's memory, by whatever view, is a RuntimeError with this text, so far as
        torch can do that (`forbids`). The tensor is of no use any more."""
        forbid(self._storages[at], why)


def forbid(storage: torch.UntypedStorage, why: str) -> None:
    """See Lent.forbid()."""
    if forbids is not None:
        forbids(storage._cdata, f"penstock: {why}")
