"""What a program does to a managed parameter itself, within passes and between them (weights/parameter.Keeper)."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import nn

from .outside import Outside
from .visits import Visits
from ..weights.parameter import Managed, Released, values_of
from ..weights.read_only import IN_PLACE


class Keeper:
    """Of one model, whose parameters have it from its construction on. `engine`: whose they are, as long as there is one."""

    def __init__(self, visits: Visits, engine: Callable[[], Any] = lambda: None) -> None:
        self.engine, self.binding = engine, visits.binding
        self.gradients, self.let_go, self.hand_out = (
            self.binding.gradients, self.binding.loans.let_go, self.binding.taken.note)
        self._visits, self._outside = visits, Outside(visits)
        for each in self.binding.places:
            each.penstock_keeper = self  # type: ignore[attr-defined]

    def gradient_of(self, parameter: nn.Parameter) -> torch.Tensor | None:
        return self.gradients.of(parameter)

    def set_gradient(self, parameter: nn.Parameter, value: torch.Tensor | None) -> None:
        self.gradients.put(parameter, value)

    def name_of(self, parameter: nn.Parameter) -> str:
        return self.binding.names[parameter]

    def assign(self, parameter: Managed, values: torch.Tensor) -> None:
        self.binding.loans.assign(parameter, values, self._visits.end_if_idle)

    def copy_of(self, parameter: Managed) -> torch.Tensor:
        self._visits.look_at_given()
        if isinstance(parameter, Released) and not self.binding.running.between_passes:
            return cast(torch.Tensor, self._outside.read([parameter], "clone", lambda: values_of(parameter).clone()))
        return self.binding.loans.copy_of(parameter)

    def look_whether_there(self, parameter: Managed) -> None:
        self.binding.look_whether_there(parameter)

    def read_outside(self, parameters: list[Released], operation: str, graph: bool, run: Callable[[], object]) -> object:
        if self.binding.gathering and operation == "detach":
            return run()
        self._visits.look_at_given()
        changes = IN_PLACE.fullmatch(operation) is not None
        if graph or not (self._visits.end_if_idle() if changes else self.binding.running.between_passes):
            return self._outside.read(parameters, operation, run)
        for each in parameters:
            self.binding.loans.borrow(each)
        return run()
