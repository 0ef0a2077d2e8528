"""Where the parameters of a unit lie."""
from __future__ import annotations

from bisect import bisect_right

import torch
from torch import nn

from .lent import Lent


class Memory:
    """Where the parameters of a unit lie, at one of its places; or copies that stand in for them there."""

    def __init__(self, bound: list[tuple[nn.Parameter, torch.Tensor]], stands_in_for: Memory | None = None) -> None:
        self.bound = bound
        self._sorted = sorted(((values.data_ptr(), parameter) for parameter, values in bound), key=lambda each: each[0])
        self._begins = [begin for begin, _ in self._sorted]
        self.begin = self._begins[0] if self._begins else 1 << 63
        self.end = max((values.data_ptr() + values.nbytes for _, values in bound), default=0)
        self.lent: Lent = stands_in_for.lent if stands_in_for is not None else Lent([values for _, values in bound])

    def parameter_at(self, address: int) -> tuple[nn.Parameter, int] | None:
        """The one that has the byte at this address, and which of its bytes that is."""
        if not self.begin <= address < self.end:
            return None
        begin, parameter = self._sorted[bisect_right(self._begins, address) - 1]
        return (parameter, address - begin) if address - begin < parameter.nbytes else None
