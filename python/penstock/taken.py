"""Memory of resident weights that a program has taken between passes, by .data or detach(). What numpy writes there
counts in no version, so bits are compared for as long as somebody has it."""
from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from torch import nn

from .bits import AsTheyWere
from .parameter import values_of

if TYPE_CHECKING:
    from .binding import Binding


class Taken:
    """Owned by the binding."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._came: dict[nn.Parameter, AsTheyWere] = {}

    def note(self, parameter: nn.Parameter) -> None:
        """It is about to be taken. Within a pass nobody writes into a weight unseen; of others the program has copies."""
        binding = self._binding
        resident = parameter.penstock_place[0] in binding.resident  # type: ignore[attr-defined]
        if resident and parameter not in self._came and not binding.gathering and (
                binding.loans.between_passes() and not binding.loans.is_lent(parameter)):
            self._came[parameter] = AsTheyWere(values_of(parameter))

    def was_written(self, parameter: nn.Parameter) -> bool:
        return parameter in self._came and self._came[parameter].differ_from(values_of(parameter))

    def look_again(self, parameters: Iterable[nn.Parameter] | None = None) -> None:
        """These have other values now, which is known; None: any of them. Who has nothing of them is forgotten."""
        for each in list(self._came if parameters is None else parameters):
            if self._came.pop(each, None) is not None and self._binding.is_held(each):
                self._came[each] = AsTheyWere(values_of(each))
