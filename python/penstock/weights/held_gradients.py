"""What a program has of a parameter's gradient: the sum, as it has read it, or a tensor of its own in its place."""
from __future__ import annotations

import sys

import torch

from .bits import AsTheyWere
from .lent import Lent, use_count


class ReadSum:
    """The core's sum, `total`, which is lent; `seen` is what the program has as `grad`: no view, so that it may be detached in
    place."""

    def __init__(self, total: torch.Tensor, shape: torch.Size) -> None:
        self.total = total
        self.seen = torch.empty(0, dtype=total.dtype, device=total.device).set_(
            total.untyped_storage(), total.storage_offset(), shape, total.view(shape).stride())
        self._lent = Lent([total])

    def was_replaced(self) -> bool:
        """By `grad.data = values`."""
        return self.seen.data_ptr() != self.total.data_ptr()

    def shares_memory_with(self, other: torch.Tensor) -> bool:
        return bool(self.total.untyped_storage()._cdata == other.untyped_storage()._cdata)

    def forbid(self, why: str) -> None:
        """Whoever still has it must not read it."""
        if self._lent.is_held() or sys.getrefcount(self.seen) > 2:
            self._lent.forbid(0, why)


class Assigned:
    """A tensor of the program's that is a parameter's `grad`."""

    def __init__(self, tensor: torch.Tensor, changed: bool = False) -> None:
        self.tensor = tensor
        self._came = None if changed else AsTheyWere(tensor)

    def has_changed(self) -> bool:
        """Since the last time, also by `.data` of it or numpy."""
        before = self._came
        if before is not None and not before.differ_from(self.tensor):
            return False
        self._came = AsTheyWere(self.tensor)
        return True

    def counts_as_changed(self) -> None:
        """Whatever becomes of it."""
        self._came = None

    def is_held(self) -> bool:
        """The program has it, or a tensor over its memory."""
        return sys.getrefcount(self.tensor) > 2 or use_count(self.tensor.untyped_storage()._cdata) > 2
