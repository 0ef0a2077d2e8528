"""Memory of resident weights that a program has taken between passes, by .data or detach(). What numpy writes there
counts in no version, so bits are compared for as long as somebody has it."""
from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import nn

from .bits import AsTheyWere
from .parameter import values_of


class Taken:
    """Owned by the binding, which says of a parameter whether what is taken of it now could be written unseen, and whether
    somebody has it."""

    def __init__(self, goes_unseen: Callable[[nn.Parameter], bool], is_held: Callable[[nn.Parameter], bool]) -> None:
        self._goes_unseen, self._is_held = goes_unseen, is_held
        self._came: dict[nn.Parameter, AsTheyWere] = {}

    def note(self, parameter: nn.Parameter) -> None:
        """It is about to be taken."""
        if self._goes_unseen(parameter) and parameter not in self._came:
            self._came[parameter] = AsTheyWere(values_of(parameter))

    def was_written(self, parameter: nn.Parameter) -> bool:
        return parameter in self._came and self._came[parameter].differ_from(values_of(parameter))

    def look_again(self, parameters: Iterable[nn.Parameter] | None = None) -> None:
        """These have other values now, which is known; None: any of them. Who has nothing of them is forgotten."""
        for each in list(self._came if parameters is None else parameters):
            if self._came.pop(each, None) is not None and self._is_held(each):
                self._came[each] = AsTheyWere(values_of(each))
