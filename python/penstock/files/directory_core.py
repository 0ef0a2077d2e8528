"""The core of a model that is read where Hugging Face keeps it: for forwards alone, over files that nobody changes.

Weights are read as they are visited, those of the next visit beside what is computed, by a thread of its own, through
the page cache. Nothing is written anywhere.
"""
from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from ..core import ModelSpec, OpenSum, PassKind, ReadWeight, UnitSpec, UpdateReport, UpdateRequest, Visit, What
from ..errors import UsageError
from ..weights.lent import with_own_storage

T = TypeVar("T")
ALIGNMENT = 64  # bytes, of each parameter in its unit's memory


@dataclass(eq=False)
class Buffer:
    """Memory of a unit, and of others after it."""

    memory: torch.Tensor  # bytes

    def weights(self, unit: UnitSpec) -> list[torch.Tensor]:
        """Where its parameters lie in it: flat, one after the other."""
        views, at = [], 0
        with torch.inference_mode(False):  # others than evaluations see them, too
            for each in unit.parameters:
                end = at + each.numel * each.dtype.itemsize
                views.append(self.memory[at:end].view(each.dtype))
                at = -(-end // ALIGNMENT) * ALIGNMENT
        return views


def bytes_of(unit: UnitSpec) -> int:
    return sum(-(-each.numel * each.dtype.itemsize // ALIGNMENT) * ALIGNMENT for each in unit.parameters)


class Buffers:
    """As many as are used at once, each for units of about its size."""

    def __init__(self) -> None:
        self._free: list[Buffer] = []
        self.allocated_bytes = 0

    def take(self, count: int) -> Buffer:
        fitting = [each for each in self._free if count <= each.memory.numel() <= 2 * count]
        if not fitting:
            self.allocated_bytes += count
            with torch.inference_mode(False):
                return Buffer(torch.empty(count, dtype=torch.uint8))
        buffer = min(fitting, key=lambda each: each.memory.numel())
        self._free.remove(buffer)
        return buffer

    def give_back(self, buffer: Buffer) -> None:
        self._free.append(buffer)


class DirectoryCore:
    """See penstock.core.Core. `first` gives each parameter as often as it is asked; its owner keeps it."""

    begun: int | None = None
    resumed: Mapping[str, str] | None = None
    lays = gradients_leave = over_ranks = kept = False
    opening = changes = 0

    def __init__(self, model: ModelSpec, first: ReadWeight) -> None:
        self.units: Sequence[UnitSpec] = model.units
        self.device = torch.device("cpu")
        self.user_state: MutableMapping[str, str] = {}
        self.read_bytes = 0
        self._process = os.getpid()
        self._first: Any = weakref.ref(first)
        self._buffers = Buffers()
        self._reader = ThreadPoolExecutor(1, "penstock-reader")
        self._expected: dict[PassKind, list[Visit]] = {"training": list(model.training),
                                                       "inference": list(model.inference)}
        self._kind: PassKind | None = None
        self._visits: list[Visit] = []  # of this pass
        self._there: dict[int, Buffer] = {}
        self._coming: dict[int, tuple[Buffer, Future[None]]] = {}
        self._resident = {index: self._fetched(index) for index, unit in enumerate(self.units) if unit.resident}

    # Passes.
    def expect(self, kind: PassKind, visits: Iterable[Visit]) -> None:
        self._expected[kind] = [*self._visits, *visits] if kind == self._kind else list(visits)

    def begin_pass(self, kind: PassKind) -> None:
        self._kind, self._visits = kind, []
        self._prefetch(())

    def visit(self, units: Visit, held: Visit = ()) -> None:
        wanted = {*units, *held}
        for unit in [each for each in self._there if each not in wanted]:
            self._buffers.give_back(self._there.pop(unit))
        for unit in units:
            if unit not in self._there:
                self._there[unit] = self._fetched(unit)
        self._visits.append(units)
        self._prefetch(wanted)

    def end_pass(self) -> None:
        if self._kind is not None and self._visits:
            self._expected[self._kind] = self._visits
        self._kind = None
        for unit in list(self._there):
            self._buffers.give_back(self._there.pop(unit))

    def weights(self, unit: int, index: int) -> torch.Tensor:
        return with_own_storage((self._resident.get(unit) or self._there[unit]).weights(self.units[unit])[index])

    def where(self, unit: int) -> Hashable:
        return id(self._resident.get(unit) or self._there[unit])

    # What a training wants.
    def begin_step(self, request: UpdateRequest) -> bool:
        return False

    def clear_gradient(self, unit: int, index: int) -> None:
        """There are none."""

    def clear_gradients(self) -> None:
        """There are none."""

    def gradient(self, unit: int, index: int) -> torch.Tensor | None:
        return None

    def make_gradient(self, unit: int, index: int) -> torch.Tensor:
        raise self._refusal("a gradient")

    def open_gradient(self, unit: int, index: int) -> OpenSum:
        raise self._refusal("a gradient")

    def gradient_norm(self) -> float:
        raise self._refusal("the norm of the gradient")

    def complete(self, unit: int) -> None:
        raise self._refusal("an update")

    def update(self, request: UpdateRequest) -> UpdateReport:
        raise self._refusal("an update")

    def write(self, unit: int, index: int, what: What, values: torch.Tensor) -> None:
        raise self._refusal("writing weights")

    def begin_snapshot(self, path: str) -> None:
        raise self._refusal("a snapshot")

    def copies_snapshot(self) -> bool:
        return False

    def finish_snapshot(self) -> None:
        """None is under way."""

    def go_back(self, path: str) -> Mapping[str, str]:
        raise self._refusal("going back to a snapshot")

    def lay(self, turn: int, count: int) -> torch.Tensor:
        raise self._refusal("laying inputs aside")

    def take(self, turn: int) -> torch.Tensor:
        raise self._refusal("laying inputs aside")

    def drop(self, turn: int) -> None:
        raise self._refusal("laying inputs aside")

    # Between passes.
    def settle(self) -> None:
        """Nothing is committed."""

    def gather(self, what: str, mine: bytes) -> list[bytes]:
        return [mine]

    def read(self, unit: int, index: int, what: What = "weight") -> torch.Tensor:
        if what != "weight":
            raise self._refusal(f"a {what}")
        return self._submit(self._value, unit, index).result().clone()

    def extra(self) -> torch.Tensor:
        raise self._refusal("what is committed beside weights")

    def memory_table(self) -> str:
        return f"weights {self._buffers.allocated_bytes} bytes"

    def notes(self) -> list[str]:
        return []

    def close(self) -> None:
        self._reader.shutdown()

    # Private.
    def _value(self, unit: int, index: int) -> torch.Tensor:
        values: torch.Tensor = self._first()(unit, index)
        return values.reshape(-1)

    def _fetched(self, unit: int) -> Buffer:
        buffer, done = self._coming.pop(unit) if unit in self._coming else self._fetch(unit)
        try:
            done.result()
        except BaseException:
            self._buffers.give_back(buffer)
            raise
        return buffer

    def _fetch(self, unit: int) -> tuple[Buffer, Future[None]]:
        buffer = self._buffers.take(bytes_of(self.units[unit]))
        return buffer, self._submit(self._fill, unit, buffer)

    def _submit(self, function: Callable[..., T], *args: Any) -> Future[T]:
        if os.getpid() != self._process:
            raise UsageError(f"the model belongs to process {self._process}, and this is a child that was forked from it: "
                             "it has no thread that reads weights; call penstock.initialize() after the fork")
        return self._reader.submit(function, *args)

    def _fill(self, unit: int, buffer: Buffer) -> None:
        for index, place in enumerate(buffer.weights(self.units[unit])):
            place.copy_(self._value(unit, index))
        self.read_bytes += bytes_of(self.units[unit])

    def _prefetch(self, there: Iterable[int]) -> None:
        """What is expected next comes; what came for a visit that was not made makes room."""
        expected, at = self._expected[self._kind or "inference"], len(self._visits)
        following = {unit for unit in (expected[at] if at < len(expected) else ()) if unit not in self._resident}
        for unit in [each for each in self._coming if each not in following]:
            buffer, done = self._coming.pop(unit)
            if not done.cancel():
                done.exception()
            self._buffers.give_back(buffer)
        for unit in following - {*there} - self._coming.keys():
            self._coming[unit] = self._fetch(unit)

    @staticmethod
    def _refusal(what: str) -> UsageError:
        return UsageError(f"{what}: the model is opened for forwards alone, where its directory of weights lies, which "
                          "is only read")
