"""What a graph has of a weight: which parameter it is, and how it was seen. Weights come and go, and lie elsewhere each
time."""
from __future__ import annotations

from typing import Any

import torch
from torch import nn


class WeightView:
    """A view of a parameter's memory, wherever that is. `state`: which values it had (Binding.state_of). `call`: the unit's
    call within which a graph of the program's own hooks saved it."""

    __slots__ = ("parameter", "state", "call", "_whole", "_offset_bytes", "_dtype", "_shape", "_stride")

    def __init__(self, parameter: nn.Parameter, offset_bytes: int, seen: torch.Tensor, state: int) -> None:
        self.parameter, self.state = parameter, state
        self.call: Any = None
        self._whole = offset_bytes == 0 and seen.shape == parameter.shape and seen.stride() == parameter.stride() and (
            seen.dtype == parameter.dtype)
        self._offset_bytes, self._dtype = offset_bytes, seen.dtype
        self._shape, self._stride = seen.shape, seen.stride()

    def over(self, values: torch.Tensor) -> torch.Tensor:
        """`values` is the parameter's memory now, or a copy that lies as the parameter does."""
        if self._whole:
            return values
        if values.dtype != self._dtype:
            values = values.view(-1).view(self._dtype)
        at = values.storage_offset() + self._offset_bytes // self._dtype.itemsize
        return values.as_strided(self._shape, self._stride, at)

    def within(self, call: Any) -> WeightView:
        """The same, saved within this call."""
        other = object.__new__(WeightView)
        for each in self.__slots__:
            setattr(other, each, getattr(self, each))
        other.call = call
        return other
