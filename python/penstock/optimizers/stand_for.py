"""The optimizer that a program made and gave to penstock.initialize(): programs go on to call it."""
from __future__ import annotations

import torch

from ..step.copies import ABSENT, put_back

CALLS = ("step", "zero_grad", "state", "state_dict", "load_state_dict", "add_param_group")


class StandsFor:
    """`given` does what `managed` does, until end(): its own step() would find weights that are not in memory, and update
    nothing in silence."""

    def __init__(self, given: torch.optim.Optimizer, managed: torch.optim.Optimizer) -> None:
        self.given = given
        self._before = {name: vars(given).get(name, ABSENT) for name in CALLS}
        vars(given).update({name: getattr(managed, name) for name in CALLS})

    def end(self) -> None:
        """It is its own again: as it was given, without states."""
        put_back(vars(self.given), self._before)
