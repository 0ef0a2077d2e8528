"""A core to measure compute over: its weights mean nothing and are there at once, and it notes when they are asked for.

The engine's own calls of units run over it, so that what lies between two visits is what a training has there: the
unit, its recompute, its gradients, torch's loss between them.
"""
from __future__ import annotations

import mmap
import time
from collections.abc import Hashable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

import torch

from ..core import OpenSum, PassKind, UnitSpec, Visit
from ..errors import FitError
from ..native.described import LaidItem
from ..step.visits import in_backward
from ..weights.lent import with_own_storage

BEYOND_CACHES = 256 << 20  # bytes: a step meets each unit's weights cold
LINE = 64


@dataclass
class Stay:
    """Compute from one visit to the next."""

    visit: Visit
    unit: str  # whose call made it
    backward: bool
    stood_in: bool  # the unit was not computed
    seconds: float = 0.0


class Arena:
    """Memory in which units lie one behind the other, and on top of each other where all of them would be more than no
    cache holds."""

    def __init__(self, sizes: Sequence[int]) -> None:
        largest = max(sizes, default=0)
        total = max(largest, min(sum(sizes), BEYOND_CACHES), mmap.PAGESIZE)
        self.offsets: list[int] = []
        at = 0
        for size in sizes:
            if at + size > total:
                at = 0
            self.offsets.append(at)
            at += size
        self.memory = self._made(total)

    @staticmethod
    def _made(total: int) -> torch.Tensor:
        try:
            mapped = mmap.mmap(-1, total)
        except OSError as error:
            raise FitError(f"measuring compute takes {total} bytes of memory, which this machine does not give "
                           f"({error.strerror}); plan without a batch") from error
        mapped.madvise(mmap.MADV_HUGEPAGE)  # as the pool is
        return torch.frombuffer(mapped, dtype=torch.uint8)

    def fill(self) -> None:
        """With small numbers, whatever type they are read in: what is not finite, or not normal, is computed at another
        speed. Bits of bfloat16 are also the upper halves of float32, and numbers of float16."""
        pattern = torch.empty(1 << 20, dtype=torch.bfloat16).normal_(0, 0.02, generator=torch.Generator())
        pattern[pattern.abs() < 1e-4] = 1e-4
        flat = pattern.view(torch.uint8)
        for at in range(0, self.memory.numel(), flat.numel()):
            part = self.memory[at:at + flat.numel()]
            part.copy_(flat[:part.numel()])


class MeasuringCore:
    """What Binding and Visits need of penstock.core.Core. `stays` is what was seen since begin_pass()."""

    resumed: Mapping[str, str] | None = None
    begun: int | None = None
    opening = 0
    over_ranks = False

    def __init__(self, units: Sequence[UnitSpec], sums: torch.dtype, adds: bool) -> None:
        """`adds`: sums have addends of the passes before."""
        self.units, self.device = units, torch.device("cpu")
        self.user_state: MutableMapping[str, str] = {}
        self._sums, self._adds = sums, adds
        self._weights_at = [_offsets([each.numel * each.dtype.itemsize for each in unit.parameters]) for unit in units]
        self._sums_at = [_offsets([each.numel * sums.itemsize for each in unit.parameters]) for unit in units]
        self._weights = Arena([each[-1] for each in self._weights_at])
        self._gradients = Arena([each[-1] for each in self._sums_at])
        self._weights.fill()
        self.stays: list[Stay] = []
        self._computing, self._standing_in = "", False
        self.begun_at = self.ended_at = 0.0
        self._since: float | None = None
        self._memory: dict[int, torch.Tensor] = {}  # of what is laid aside, by turn
        self._laid: dict[int, tuple[int, int]] = {}  # of this pass, by turn: bytes, and the visit behind which
        self._taken: dict[int, list[int]] = {}  # and those before which it is taken

    # Whose stays follow.
    def compute(self, unit: str) -> None:
        self._computing = unit

    def stand_in(self, begins: bool = True) -> None:
        """Units are stood in for from now on, or are no more."""
        self._standing_in = begins

    # Passes.
    def expect(self, kind: PassKind, visits: Iterable[Visit]) -> None: ...

    def begin_pass(self, kind: PassKind) -> None:
        self.stays, self._since = [], None
        self._laid, self._taken = {}, {}

    def visit(self, units: Visit, held: Visit = ()) -> None:
        self._leave()
        self.stays.append(Stay(tuple(dict.fromkeys((*units, *held))), self._computing, in_backward(), self._standing_in))
        self._since = time.perf_counter()
        if len(self.stays) == 1:
            self.begun_at = self._since

    def end_pass(self) -> None:
        self._leave()
        self._since, self.ended_at = None, time.perf_counter()

    def weights(self, unit: int, index: int) -> torch.Tensor:
        spec = self.units[unit].parameters[index]
        at = self._weights.offsets[unit] + self._weights_at[unit][index]
        return with_own_storage(self._weights.memory[at:at + spec.numel * spec.dtype.itemsize].view(spec.dtype))

    def where(self, unit: int) -> Hashable:
        return unit

    # Gradients.
    def open_gradient(self, unit: int, index: int) -> OpenSum:
        at = self._gradients.offsets[unit] + self._sums_at[unit][index]
        spec = self.units[unit].parameters[index]
        memory = self._gradients.memory[at:at + spec.numel * self._sums.itemsize].view(self._sums)
        return OpenSum(memory.view(spec.shape), not self._adds)

    def gradient(self, unit: int, index: int) -> torch.Tensor | None:
        return with_own_storage(self.open_gradient(unit, index).memory.view(-1))

    def clear_gradient(self, unit: int, index: int) -> None: ...

    # Activations.
    def lay(self, turn: int, count: int) -> torch.Tensor:
        self._memory[turn] = torch.empty(count, dtype=torch.uint8)
        self._laid[turn] = count, max(len(self.stays) - 1, 0)
        return self._memory[turn]

    def take(self, turn: int) -> torch.Tensor:
        self._taken.setdefault(turn, []).append(len(self.stays))
        return self._memory[turn]

    def drop(self, turn: int) -> None:
        del self._memory[turn]

    def laid_items(self) -> tuple[LaidItem, ...]:
        """Of this pass. What nobody takes is thought to be taken at its end."""
        last = len(self.stays) - 1
        items = []
        for turn, (count, behind) in self._laid.items():
            visits = sorted({min(each, last) for each in self._taken.get(turn, [last])})
            if visits[0] > behind:
                items.append(LaidItem(turn, count, behind, tuple(visits)))
        return tuple(items)

    # Private.
    def _leave(self) -> None:
        if self._since is not None:
            self.stays[-1].seconds = time.perf_counter() - self._since


def _offsets(sizes: Iterable[int]) -> list[int]:
    """Of each, and behind the last one."""
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + -(-size // LINE) * LINE)
    return offsets
