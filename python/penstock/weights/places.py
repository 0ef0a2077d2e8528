"""Which parameter of a model is where in its core's units, and which of them has states."""
from __future__ import annotations

import torch
from torch import nn

from ..core import Core
from ..units import Unit
from .addends import Place


class Places:
    """Stays as it is."""

    def __init__(self, model: nn.Module, units: list[Unit], core: Core) -> None:
        self.model, self.core = model, core
        self.names = {each: name for name, each in model.named_parameters()}
        self.named = {name: each for each, name in self.names.items()}
        self.places: dict[nn.Parameter, Place] = {}
        self.parameters: list[list[nn.Parameter]] = []  # by the core's unit
        self._learning: list[list[tuple[int, nn.Parameter]]] = []  # as parameters: those with states, and their indices
        for unit in units:
            if unit.index is not None:
                assert unit.index == len(self.parameters)
                own = [parameter for _, parameter in unit.own]
                specs = core.units[unit.index].parameters
                self.parameters.append(own)
                self.places.update({each: (unit.index, index) for index, each in enumerate(own)})
                self._learning.append([(index, each) for index, each in enumerate(own) if specs[index].trainable])

    def learns(self, parameter: nn.Parameter) -> bool:
        """It has states: it was trainable at the opening, or was said to become so."""
        unit, index = self.places[parameter]
        return self.core.units[unit].parameters[index].trainable

    def awaited(self, unit: int) -> set[int]:
        """Parameters to which a backward's gradients come: those that are not frozen for now."""
        with torch._C.DisableTorchFunctionSubclass():
            return {index for index, each in self._learning[unit] if each.requires_grad}

    def never_trained(self, parameters: list[nn.Parameter]) -> str:
        """What to say of these, which have no states."""
        names = ", ".join(f"'{self.names[each]}'" for each in parameters[:5])
        return ("and were frozen at penstock.initialize(): the store has no optimizer states of them. Say there what "
                f"is going to be trained, as patterns of names: penstock.initialize(trainable=[{names}]), with an "
                "optimizer that has them; or freeze them again by requires_grad_(False)")
