"""How many gradients a step sums, and in which type: bfloat16 keeps 8 bits, and of many addends the later are lost."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch

from ..core import BF16_ADDENDS
from ..errors import UsageError

Place = tuple[int, int]  # the core's unit, and the parameter's index in it


class Addends:
    """Of one step, told of each gradient that comes. `all` counts those of all steps."""

    def __init__(self) -> None:
        self.all = 0
        self._checked = True
        self._narrow: Counter[Place] = Counter()

    def came(self, place: Place, sums: torch.dtype, first: bool) -> None:
        """`first`: its sum holds no other."""
        self.all += 1
        if sums == torch.bfloat16:
            self._narrow[place] = 1 if first else self._narrow[place] + 1

    def take_any(self) -> None:
        """The caller has chosen bfloat16, or has said how many there are."""
        self._checked = False

    def check(self, fed: Iterable[Place]) -> None:
        """Raises UsageError before a step whose sums have lost what came late; `fed` are the places of its sums."""
        most = max((self._narrow[place] for place in fed), default=0)
        if self._checked and most > BF16_ADDENDS:
            raise UsageError(f"{most} gradients were summed in bfloat16, which loses the later ones of more than "
                             f"{BF16_ADDENDS}, and nobody said how many there are. Say gradient_accumulation_steps "
                             f"(penstock.Settings(accumulation={most})), or penstock.Store(gradient_type='fp32') "
                             "(data_types.grad_accum_dtype): sums are fp32 then; 'bf16' there leaves it as it is. "
                             "Nothing was updated")
