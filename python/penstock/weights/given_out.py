"""What operations that ran outside of units gave of weights: the program may change it in place, and means the weight."""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import nn

from ..errors import ModelError
from .bits import AsTheyWere


class Weights(Protocol):
    """Whose they are: binding.Binding's loans."""

    def put(self, parameter: nn.Parameter, values: torch.Tensor) -> None: ...


class Given(NamedTuple):
    """`whole`: it is all of the weight."""

    parameter: nn.Parameter
    tensor: torch.Tensor
    came: AsTheyWere
    whole: bool


class GivenOut:
    """Owned by the binding. What the last operations gave, until weights are used again."""

    def __init__(self, names: dict[nn.Parameter, str], weights: Weights) -> None:
        self._names, self._weights = names, weights
        self._given: list[Given] = []

    def add(self, parameter: nn.Parameter, tensor: torch.Tensor, came: AsTheyWere, whole: bool) -> None:
        self._given.append(Given(parameter, tensor, came, whole))

    def look(self, ends_pass: Callable[[], bool]) -> None:
        """Called before weights are used again. What was changed in place becomes the weight; ModelError where it is a part
        of one, or `ends_pass` says that a forward or backward has weights."""
        given, self._given = self._given, []
        for each in given:
            if not each.came.differ_from(each.tensor):
                continue
            if not each.whole or not ends_pass():
                raise ModelError(f"parameter '{self._names[each.parameter]}' was changed in place through a view of it: "
                                 "its memory is lent by the store, which would not see that; change it before the forward, or "
                                 "within engine.gathered(parameter, modify=True)")
            self._weights.put(each.parameter, each.tensor)
