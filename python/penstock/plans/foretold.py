"""Which graphs a step will keep, said before it: while compute is measured nothing is given up, but graphs are counted."""
from __future__ import annotations

from collections import Counter

from ..settings import Settings, Word
from ..step.activations import Activations
from ..step.shelf import Shelf

UNLIMITED = 1 << 62


class Foretold(Activations):
    """Of a model that is measured. In the first pass all graphs are kept, but where the settings say "recompute". Then
    those that `room_bytes` has no room for are recomputed, the first ones of a pass, as giving up would take them."""

    def __init__(self, settings: Settings, room_bytes: float, shelf: Shelf | None) -> None:
        super().__init__(settings.activations_of_all, lambda: UNLIMITED, UNLIMITED, settings.activations_of_units, shelf)
        own = settings.graph_budget_bytes
        self._limit = room_bytes if own is None else float(own)
        self._passed: Counter[str] = Counter()  # calls of each unit in this pass, in their order
        self.given_up_units: frozenset[str] = frozenset()

    def word_of(self, unit: str) -> Word:
        return "recompute" if unit in self.given_up_units else super().word_of(unit)

    def is_kept(self, unit: str) -> bool:
        return self.word_of(unit) != "recompute"

    def called(self, unit: str) -> None:
        self._passed[unit] += 1

    def begin_pass(self) -> None:
        self._passed.clear()

    def choose(self) -> None:
        """After the first pass."""
        lacking = self.expected_bytes + max(self.bytes_of.values(), default=0) - self._limit
        chosen = set()
        for unit, count in self._passed.items():
            if lacking > 0 and super().word_of(unit) == "auto":
                chosen.add(unit)
                lacking -= count * self.bytes_of.get(unit, 0)
        self.given_up_units = frozenset(chosen)

    @property
    def expected_bytes(self) -> int:
        """Of the graphs that a pass keeps."""
        return sum(count * self.bytes_of.get(unit, 0) for unit, count in self._passed.items() if self.is_kept(unit))
