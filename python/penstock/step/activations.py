"""Which graphs are kept from forward to backward. All are; when memory runs short whole calls are given up, the oldest
first, and recomputed in backward."""
from __future__ import annotations

import fnmatch
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from ..errors import some
from ..machine.room import Room, room_for
from ..settings import Word
from .account import Account, Counted
from .generators import ProgramsGenerators
from .shelf import Shelf

MIB = 2**20


class Graph(Counted, Protocol):
    """A call whose graph is kept, or given up: kept_call.KeptCall."""

    name: str
    learned: bool
    why_never: str | None

    @property
    def is_within_another(self) -> bool: ...

    def why_not(self) -> str | None: ...

    def give_up(self, shelf: Shelf | None) -> None: ...


class Activations:
    """Of an engine. `word` holds for all units but those in `of_units`, by patterns of their names: "auto" gives graphs up
    when `room` is under the reserve, the most that one call took; "keep" never does; "recompute" does as soon as the
    forward has returned. `budget_bytes` is how much graphs may take, in the place of the room."""

    def __init__(self, word: Word, room: Room, budget_bytes: int | None = None, of_units: Mapping[str, Word] | None = None,
                 shelf: Shelf | None = None, device: torch.device | None = None,
                 tell: Callable[[str], None] = lambda _: None, warn: Callable[[str], None] = lambda _: None) -> None:
        self.budget_bytes = budget_bytes
        self.account = Account(exact=budget_bytes is not None)
        self.random = ProgramsGenerators(device)
        self.reserve_bytes = 0
        self.calls = self.given_up = self.recomputes = 0
        self.refused: dict[str, str] = {}  # units, and why a call of them could not be given up
        self.bytes_of: dict[str, int] = {}  # of each unit's largest graph
        self._word, self._of_units, self._room, self._shelf = word, dict(of_units or {}), room_for(room), shelf
        self.tell, self._warn = tell, warn
        self._kept: dict[int, weakref.ref[Graph]] = {}  # oldest first; without calls within calls
        self._before = (0, 0)  # calls, given up: at the end of the last pass
        self._told_share, self._unequal_told = 0.0, False
        self._may_give_up = word == "auto" or "auto" in self._of_units.values()

    @property
    def held_bytes(self) -> int:
        """Of graphs that are there."""
        return self.account.held_bytes

    @property
    def peak_bytes(self) -> int:
        return self.account.peak_bytes

    def word_of(self, unit: str) -> Word:
        if not self._of_units:
            return self._word
        return next((word for name, word in self._of_units.items() if fnmatch.fnmatchcase(unit, name)), self._word)

    # Calls.
    def make_room(self, read: Graph | None = None) -> None:
        """Before a call runs, or runs again; before a backward goes through the graph of `read`, which it needs itself."""
        if self._may_give_up:
            lacking = self._lacking()
            if lacking > 0:
                self._give_up(lacking, read)

    def hold(self, call: Graph) -> None:
        """It has run, or run again, and counts until it is given up or nobody has its graph."""
        if call.is_within_another:
            return
        key = id(call)
        total = self.account.hold(key, call)
        self.reserve_bytes = max(self.reserve_bytes, total)
        if key not in self._kept:
            self.calls += 1
            self.bytes_of[call.name] = max(total, self.bytes_of.get(call.name, 0))
            self._kept[key] = weakref.ref(call, lambda _: self._forget(key))
            if self.word_of(call.name) == "recompute":
                self._give_up_at_once(call)

    def gone(self, call: Graph) -> None:
        """It was given up."""
        self.account.drop(id(call))

    def recomputed(self) -> None:
        """A call is."""
        self.recomputes += 1

    def take_again(self, laid: Any) -> torch.Tensor:
        """What a call was given, from where it was laid aside when it was given up."""
        assert self._shelf is not None
        return self._shelf.take(laid)

    # What is said.
    def pass_ended(self) -> None:
        """A line where the share of what is recomputed has doubled, or is none any more."""
        self._room.look_away()
        calls, given_up = self.calls - self._before[0], self.given_up - self._before[1]
        self._before = self.calls, self.given_up
        share = given_up / calls if calls else 0.0
        if share > 2 * self._told_share:
            say = self._warn if self.budget_bytes is None else self.tell  # nobody has asked for it
            say(f"memory is short: graphs of {given_up} of {calls} calls of units were given up and recomputed in backward "
                f"({self._why()}). A smaller micro-batch is recomputed less")
        elif share == 0.0 and self._told_share and calls:
            self.tell("graphs of all calls of units are kept again")
        else:
            return
        self._told_share = share

    def where_memory_is(self) -> str:
        """What to say where memory did not suffice."""
        text = (f"Penstock: graphs of {len(self._kept)} calls of units hold {self.held_bytes / MIB:.0f} MiB, and "
                f"{self.given_up} were given up since the opening")
        if self.refused:
            text += f"; graphs of {some(self.refused)} cannot be recomputed and are kept"
        if self._word != "auto":
            text += ". Settings(activations='auto') gives graphs up where memory is short"
        return text + (". Smaller micro-batches take less: gradient_accumulation_steps in the configuration, or "
                       "Settings(accumulation=...), keeps the batch; Store(activation_budget_bytes=...) lays units' inputs "
                       "aside on NVMe")

    def unequal(self, unit: str) -> None:
        """A recompute gave values that are close, and not the same; told once."""
        if not self._unequal_told:
            self._unequal_told = True
            self._warn(f"the forward of unit '{unit}', run again, gave values that are close to those of the first time and "
                       "not the same: kernels of this device add in any order. torch.use_deterministic_algorithms(True) makes "
                       "them equal")

    # Private.
    def _lacking(self) -> float:
        if self.budget_bytes is not None:
            return self.held_bytes + self.reserve_bytes - self.budget_bytes
        return self._room.lacking(self.reserve_bytes)

    def _give_up(self, lacking: float, read: Graph | None) -> None:
        """The oldest, until there is room, or nothing is left."""
        freed = 0
        for ref in list(self._kept.values()):
            call = ref()
            if call is None or call is read or self.word_of(call.name) != "auto":
                continue
            why = call.why_not()
            if why is None:
                freed += self.account.bytes_of(call)
                call.give_up(self._shelf)
                self.given_up += 1
                if freed >= lacking:
                    self._give_back()
                    lacking, freed = self._lacking(), 0
                    if lacking <= 0:
                        return
            elif call.why_never is not None:
                self._refuse(call.name, why)
        self._give_back()

    def _give_back(self) -> None:
        if self.budget_bytes is None:
            self._room.give_back()

    def _give_up_at_once(self, call: Graph) -> None:
        why = call.why_not()
        if why is None:
            call.give_up(self._shelf)
        elif not call.learned:
            self._refuse(call.name, why)

    def _refuse(self, unit: str, why: str) -> None:
        if unit not in self.refused:
            self.refused[unit] = why
            self.tell(f"unit '{unit}': its graph is kept, because its forward cannot be run again as it was: {why}")

    def _forget(self, key: int) -> None:
        self._kept.pop(key, None)
        self.account.drop(key)

    def _why(self) -> str:
        if self.budget_bytes is not None:
            return f"graph_budget_bytes is {self.budget_bytes / MIB:.1f} MiB"
        takes = self._room.taken_by_a_call(self.reserve_bytes)
        return f"{self._room() / MIB:.0f} MiB are free; one call takes up to {takes / MIB:.1f} MiB"
