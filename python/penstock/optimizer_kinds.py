"""The optimizers that the core has, one row each. What a new one is to the package is a row here."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from .core import GroupValues, What
from .errors import OptimizerError


class Lion(torch.optim.Optimizer):
    """Says what Lion's groups are; the core has the arithmetic."""

    def __init__(self, parameters: Any, **options: Any) -> None:
        super().__init__(parameters, options)


@dataclass(frozen=True)
class Kind:
    """`number`: of penstock_optimizer (C). `of`: the class whose instances are it; `by_name`: and classes of that name,
    wherever they come from. `reads`: what a group says of each step; `opens_with`: what it says once, the same of all
    groups. `moments`: by torch's names. `counted`: torch counts its steps. `must_be`: options that are refused unless
    they are so."""

    name: str
    number: int
    of: type[torch.optim.Optimizer]
    reads: tuple[str, ...]
    moments: dict[str, What]
    must_be: dict[str, Any]
    opens_with: tuple[str, ...] = ()
    counted: bool = False
    by_name: bool = False

    def values(self, group: dict[str, Any]) -> GroupValues:
        """Rates may be tensors. Read at each step, because schedulers write them."""
        given: dict[str, Any] = {key: group[key] for key in self.reads if key in group}
        for key, value in given.items():
            if key == "betas":
                given[key] = (float(value[0]), float(value[1]))
            elif key == "nesterov":
                given[key] = bool(value)
            else:
                given[key] = float(value)
        return GroupValues(**given)

    def has(self, group: dict[str, Any]) -> bool:
        """An update that the group asks for."""
        return all(group.get(key, value) == value for key, value in self.must_be.items())

    def check(self, group: dict[str, Any], of: str) -> None:
        for key, value in self.must_be.items():
            if group.get(key, value) != value:
                raise OptimizerError(f"{of} with {key}={group[key]!r} cannot be mapped: there is no such update here; "
                                     f"make it with {key}={value!r}")

    def is_of(self, optimizer: torch.optim.Optimizer) -> bool:
        return type(optimizer) is self.of or self.by_name and type(optimizer).__name__ == self.of.__name__


TWO_MOMENTS: dict[str, What] = {"exp_avg": "moment0", "exp_avg_sq": "moment1"}
ADAM = ("lr", "weight_decay", "betas", "eps")

KINDS = {each.name: each for each in (
    Kind("adamw", 0, torch.optim.AdamW, ADAM, TWO_MOMENTS, {"amsgrad": False, "maximize": False}, counted=True),
    Kind("adam", 1, torch.optim.Adam, ADAM, TWO_MOMENTS,
         {"amsgrad": False, "maximize": False, "decoupled_weight_decay": False}, counted=True),
    Kind("sgd", 2, torch.optim.SGD, ("lr", "weight_decay", "momentum", "dampening", "nesterov"),
         {"momentum_buffer": "moment0"}, {"maximize": False}),
    Kind("adagrad", 3, torch.optim.Adagrad, ("lr", "weight_decay", "lr_decay", "eps"), {"sum": "moment0"},
         {"maximize": False}, opens_with=("initial_accumulator_value",), counted=True),
    Kind("lion", 4, Lion, ("lr", "weight_decay", "betas"), {"exp_avg": "moment0"}, {"maximize": False}, by_name=True),
)}
