"""Which units' graphs are kept from forward to backward: as many as a budget has room for, those nearest to the loss
first. The others are recomputed."""
from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass

from .errors import some
from .kept_graph import KeptGraph
from .visits import Call


@dataclass
class Measured:
    """Of a unit: the bytes of its largest graph, those of the arguments it had then, and how many of its graphs there
    are now, and were at most."""

    bytes: int = 0
    given_bytes: int = 0
    now: int = 0
    most: int = 1


class Activations:
    """Of an engine. Where graphs are kept, each unit is recomputed in its first pass all the same: there is measured
    what its graph takes. From the next pass on as many are kept as fit; one that finds no room beside those that are
    there (two forwards before a backward, a longer batch than before) is recomputed, too. `budget_bytes` None: no
    limit."""

    def __init__(self, keep: bool, budget_bytes: int | None = None,
                 tell: Callable[[str], None] = lambda _: None) -> None:
        self.keep, self.budget_bytes = keep, budget_bytes
        self.held_bytes = self.peak_bytes = 0  # of graphs that are there
        self.kept: frozenset[str] = frozenset()  # units
        self.refused: dict[str, str] = {}  # units, and why their graphs cannot be kept
        self._tell = tell
        self._measured: dict[str, Measured] = {}  # in the order in which they were called last
        self._told: set[str] = set()

    def is_measured(self, unit: str) -> bool:
        return unit in self._measured or unit in self.refused

    def keeps(self, call: Call) -> bool:
        """What the call's graph will take grows with its arguments, at least."""
        if call.name not in self.kept:
            return False
        own = self._measured[call.name]
        growth = max(1.0, call.given_bytes / own.given_bytes) if own.given_bytes else 1.0
        return self._fits(self.held_bytes + growth * own.bytes)

    def measured(self, graph: KeptGraph) -> None:
        """Of a call that is recomputed: what its graph would have taken."""
        unit = graph.call.name
        if graph.refusal is not None:
            self._refuse(unit, graph.refusal)
        own = self._called(unit)
        if graph.bytes >= own.bytes:
            own.bytes, own.given_bytes = graph.bytes, graph.call.given_bytes

    def recomputed(self, call: Call) -> None:
        """And was measured before."""
        if call.name in self._measured:
            self._called(call.name)

    def as_another(self, graph: KeptGraph, like: str) -> None:
        """A graph that was not made, of a unit whose graphs take what those of `like` do."""
        unit = graph.call.name
        if like in self.refused:
            self.refused[unit] = self.refused[like]
        elif like in self._measured:
            graph.bytes, graph.call.given_bytes = self._measured[like].bytes, self._measured[like].given_bytes
            if unit in self.kept:
                self.hold(graph)
            else:
                self.measured(graph)

    def hold(self, graph: KeptGraph) -> None:
        """It counts until nobody has it any more."""
        self.measured(graph)
        own = self._called(graph.call.name)
        own.now += 1
        own.most = max(own.now, own.most)
        self.held_bytes += graph.bytes
        self.peak_bytes = max(self.held_bytes, self.peak_bytes)
        weakref.finalize(graph, self._release, own, graph.bytes).atexit = False

    @property
    def expected_bytes(self) -> int:
        """Of the graphs that the next pass keeps."""
        return sum(self._measured[unit].bytes * self._measured[unit].most for unit in self.kept)

    def cannot(self, unit: str, why: str) -> None:
        """This call of it is recomputed; told once."""
        if unit not in self._told:
            self._told.add(unit)
            self._tell(f"unit '{unit}' is recomputed, its graph is not kept: {why}")

    def pass_ended(self) -> None:
        """Decides anew: graphs that have grown need more room than they had."""
        if not self.keep or not self._measured:
            return
        chosen, total = set(), 0
        for unit, own in reversed(self._measured.items()):
            needed = own.bytes * own.most
            if unit not in self.refused and self._fits(total + needed):
                chosen.add(unit)
                total += needed
        if chosen != self.kept:
            self.kept = frozenset(chosen)
            self._tell(self._choice())

    # Private.
    def _fits(self, total: float) -> bool:
        return self.budget_bytes is None or total <= self.budget_bytes

    def _called(self, unit: str) -> Measured:
        own = self._measured.pop(unit) if unit in self._measured else Measured()
        self._measured[unit] = own
        return own

    def _release(self, own: Measured, count: int) -> None:
        own.now -= 1
        self.held_bytes -= count

    def _refuse(self, unit: str, why: str) -> None:
        self.refused[unit] = why
        self.kept -= {unit}
        self.cannot(unit, why)

    def _choice(self) -> str:
        others = [unit for unit in self._measured if unit not in self.kept]
        text = (f"graphs of {len(self.kept)} of {len(self._measured)} units are kept from forward to backward: "
                f"{self.expected_bytes / 2**20:.1f} MiB")
        if self.budget_bytes is not None:
            text += f" of graph_budget_bytes {self.budget_bytes / 2**20:.1f} MiB"
        return text + (f"; recomputed are {some(others)}" if others else "")
