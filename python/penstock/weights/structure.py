"""What a model is made of, so that a change is seen."""
from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.nn.utils import stateless

_FUNCTIONAL_CALL = stateless._functional_call.__code__


class Values:
    """Those that dicts have now, told by identity: 20 ns each."""

    def __init__(self, dicts: Iterable[dict[str, Any]]) -> None:
        self._dicts = list(dicts)
        self._there = [value for each in self._dicts for value in each.values()]

    def are_same(self) -> bool:
        return sum(map(len, self._dicts)) == len(self._there) and all(
            map(operator.is_, itertools.chain.from_iterable(map(dict.values, self._dicts)), self._there))


def structure_of(model: nn.Module) -> Values:
    """Which modules and parameters it has."""
    modules = list(model.modules())
    return Values([*(each._modules for each in modules), *(each._parameters for each in modules)])


def is_functional_call() -> bool:
    """Within torch.func.functional_call, which puts other tensors in the place of parameters meanwhile."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code is _FUNCTIONAL_CALL:
            return True
    return False
