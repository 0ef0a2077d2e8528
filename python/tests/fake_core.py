"""A core in torch tensors: a dictionary in place of the store, a window of bounded bytes whose free memory is NaN.

It is strict where the real one may be lenient, so that a client that asks too late, too early or for too much fails.
With a folder it commits to a file and goes on from it. Updates are torch's own single-tensor functions, on fp32.
"""
from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fake_optimizers import update_parameter
from penstock.core import (BF16_ADDENDS, Core, CoreFigures, ModelSpec, OpenSum, PassKind, ReadWeight, UnitSpec,
                           UpdateReport, UpdateRequest, Visit, What)
from penstock.errors import FitError, NonFiniteError, PenstockError, StorageError, UsageError
from penstock.weights.lent import with_own_storage

Place = tuple[int, int]
GRANULE = 64  # bytes


def bytes_of(unit: UnitSpec) -> int:
    return sum(-(-each.numel * each.dtype.itemsize // GRANULE) * GRANULE for each in unit.parameters)


class FakeCore:
    def __init__(self, model: ModelSpec, first: ReadWeight, window_bytes: int | None = None,
                 folder: str | os.PathLike[str] | None = None) -> None:
        self.model, self.units = model, model.units
        self.device = torch.device("cpu")
        self.folder = Path(folder) if folder else None
        self.user_state: dict[str, str] = {}
        self.begun: int | None = None
        self.lays, self.opening, self.changes, self.gradients_leave, self.over_ranks = False, 0, 0, False, False
        self.kept = True
        self.resumed: Mapping[str, str] | None = None
        self.store: dict[str, dict[Any, Any]] = {"weight": {}, "master": {}, "moment0": {}, "moment1": {}, "steps": {},
                                                      "skipped": {}}
        self.places = [(u, i) for u, unit in enumerate(self.units) for i in range(len(unit.parameters))]
        if not self._resume():
            for u, i in self.places:
                self._set_weight((u, i), first(u, i))
            self.store["extra"] = {"bytes": None if model.extra is None else model.extra.clone()}
            self._commit(model.client_state)
        self.sums: dict[Place, torch.Tensor] = {}
        self.resident = {(u, i): self.store["weight"][u, i].clone() for u, i in self.places if self.units[u].resident}
        streamed = [u for u, unit in enumerate(self.units) if not unit.resident]
        widest = max((sum(bytes_of(self.units[u]) for u in visit if u in streamed)
                      for visit in (*model.training, *model.inference, *((u,) for u in streamed))), default=0)
        self.window = torch.full((window_bytes or 2 * widest,), 0xFF, dtype=torch.uint8)
        self.stays: dict[int, int] = {}  # unit -> offset in the window
        self.kind: PassKind | None = None
        # What was seen, for tests.
        self.expected: dict[PassKind, list[Visit]] = {"training": list(model.training),
                                                      "inference": list(model.inference)}
        self.passes: list[tuple[PassKind, list[Visit]]] = []
        self.read_bytes = self.peak_bytes = self.updates = self.fetched = 0
        self.expectations: list[tuple[PassKind, list[Visit]]] = []

    # Passes.
    def expect(self, kind: PassKind, visits: Iterable[Visit]) -> None:
        self.expectations.append((kind, list(visits)))

    def begin_pass(self, kind: PassKind) -> None:
        self._check(self.kind is None, "begin_pass() within a pass")
        self.kind = kind
        self.passes.append((kind, []))

    def visit(self, units: Visit, held: Visit = ()) -> None:
        self._check(self.kind is not None, "visit() outside of a pass")
        for u in (*units, *held):
            self._check(not self.units[u].resident, f"'{self.units[u].name}' is resident and needs no visit")
        for u in held:
            self._check(u in self.stays, f"'{self.units[u].name}' is to be held, but is not there")
        self.passes[-1][1].append(units)
        wanted = {*units, *held}
        for u in [u for u in self.stays if u not in wanted]:
            self._free(u)
        for u in units:
            if u not in self.stays:
                self._fetch(u)
        self.peak_bytes = max(self.peak_bytes, sum(bytes_of(self.units[u]) for u in self.stays))

    def end_pass(self) -> None:
        self._check(self.kind is not None, "end_pass() outside of a pass")
        self.expected[self.kind] = self.passes[-1][1]
        self.kind = None
        for u in list(self.stays):
            self._free(u)

    def weights(self, unit: int, index: int) -> torch.Tensor:
        if self.units[unit].resident:
            return self.resident[unit, index]
        self._check(unit in self.stays, f"weights of '{self.units[unit].name}', which no visit has")
        return with_own_storage(self._in_window(unit, index))

    def where(self, unit: int) -> Hashable:
        return self.stays.get(unit)

    # Gradients.
    def open_gradient(self, unit: int, index: int) -> OpenSum:
        spec = self.units[unit].parameters[index]
        self._check(spec.trainable, f"a gradient of '{spec.name}', which is frozen")
        fresh = (unit, index) not in self.sums
        if fresh:
            few = self.model.micro_batches <= BF16_ADDENDS
            self.sums[unit, index] = torch.full((spec.numel,), float("nan"), dtype=spec.dtype if few else torch.float32)
        return OpenSum(self.sums[unit, index].view(spec.shape), fresh)

    def gradient(self, unit: int, index: int) -> torch.Tensor | None:
        total = self.sums.get((unit, index))
        return None if total is None else with_own_storage(total)

    def make_gradient(self, unit: int, index: int) -> torch.Tensor:
        opened = self.open_gradient(unit, index)
        return opened.memory.zero_() if opened.fresh else opened.memory

    def clear_gradient(self, unit: int, index: int) -> None:
        self.sums.pop((unit, index), None)

    def clear_gradients(self) -> None:
        self.sums.clear()

    def gradient_norm(self) -> float:
        return float(self._norm())

    def first_non_finite_gradient(self) -> Place | None:
        return next((place for place in self.places
                     if place in self.sums and not torch.isfinite(self.sums[place]).all()), None)

    # Steps.
    def begin_step(self, request: UpdateRequest) -> bool:
        return False

    def complete(self, unit: int) -> None:
        raise UsageError("complete(), but no step was begun")

    def update(self, request: UpdateRequest) -> UpdateReport:
        self.changes += 1
        self._check(self.kind is None, "update() within a pass")
        self._check(not self.model.forwards_alone, "update() of a model for forwards alone")
        bad = self.first_non_finite_gradient()
        if bad is not None:
            if not request.may_skip:
                raise NonFiniteError(f"the gradient of '{self._name(bad)}' is not finite")
            self.clear_gradients()
            return UpdateReport(float("inf"), False, False)
        scale = torch.tensor(1 / request.loss_scale) if request.loss_scale != 1 else None
        for place in self.sums:
            if scale is not None:
                self.sums[place].mul_(scale)
        norm = None
        if request.clip > 0:
            total = self._norm()
            norm = float(total)
            factor = torch.clamp(request.clip / (total + 1e-6), max=1.0)
            for each in self.sums.values():
                each.mul_(factor)
        for place in self.places:
            if place not in self.sums:
                self.store["skipped"][place] = self.store["skipped"].get(place, 0) + 1
        for place, each in self.sums.items():
            self._update(place, each, request)
        self.clear_gradients()
        self.updates += 1
        if request.extra is not None:
            self.store["extra"] = {"bytes": request.extra.clone()}
        self._commit(request.client_state)
        return UpdateReport(norm, True, True)

    def settle(self) -> None:
        if self.kind is not None:
            raise UsageError("settle() within a pass")

    def gather(self, what, mine):
        return [mine]

    def read(self, unit: int, index: int, what: What = "weight") -> torch.Tensor:
        self._check(self.kind is None, "read() within a pass")
        return self.store[what][unit, index].clone()

    def write(self, unit: int, index: int, what: What, values: torch.Tensor) -> None:
        self.changes += 1
        self._check(self.kind is None, "write() within a pass")
        if self.model.forwards_alone:
            raise UsageError("writing: the store is only read")
        if what in ("weight", "master"):
            self._set_weight((unit, index), values)
            self._refresh((unit, index))
        else:
            self.store[what][unit, index].copy_(values.reshape(-1))

    def extra(self) -> torch.Tensor:
        return self.store["extra"]["bytes"].clone()

    def begin_snapshot(self, path: str) -> None:
        if os.path.exists(path):
            raise StorageError(f"{path}: there is something already; name a new directory")
        os.makedirs(path)
        self._save(Path(path) / "generation.pt", self.client_state)

    def copies_snapshot(self) -> bool:
        return False

    def finish_snapshot(self) -> None:
        pass

    def go_back(self, path: str) -> Mapping[str, str]:
        self.changes += 1
        try:
            self._load(Path(path) / "generation.pt")
        except FileNotFoundError as error:
            raise StorageError(f"{path}: no snapshot is there") from error
        for place in self.resident:
            self._refresh(place)
        self.clear_gradients()
        self._commit(self.client_state)
        return self.client_state

    def memory_table(self) -> str:
        resident = sum(bytes_of(unit) for unit in self.units if unit.resident)
        return f"window {self.window.numel()}\nresident {resident}"

    def figures(self) -> CoreFigures:
        """It waits a millisecond for each unit that it fetches."""
        return CoreFigures(self.window.numel(), {"weights": self.window.numel()}, 1000, 0, self.read_bytes, 0,
                           self.fetched * 1_000_000)

    def notes(self) -> list[str]:
        return []

    def close(self) -> None:
        pass

    # What only tests ask.
    def release_is_nan(self, unit: int) -> bool:
        return unit not in self.stays

    # Private.
    def _check(self, condition: bool, what: str) -> None:
        if not condition:
            raise AssertionError(f"the client broke the protocol: {what}")

    def _name(self, place: Place) -> str:
        return f"{self.units[place[0]].name}.{self.units[place[0]].parameters[place[1]].name}"

    def _fetch(self, u: int) -> None:
        size = bytes_of(self.units[u])
        there = sorted((o, o + bytes_of(self.units[each])) for each, o in self.stays.items())
        gaps = list(zip([0, *(end for _, end in there)], [*(begin for begin, _ in there), self.window.numel()]))
        wide = [(begin, end) for begin, end in gaps if end - begin >= size]
        if not wide:
            there = [self.units[each].name for each in self.stays]
            raise FitError(f"unit '{self.units[u].name}' of {size} bytes finds no room in the window of "
                           f"{self.window.numel()} bytes beside {there}; give it more, or make some resident")
        self.fetched += 1  # each third at the back, so that a unit comes to lie elsewhere
        self.stays[u] = wide[0][0] if self.fetched % 3 else (wide[-1][1] - size) // GRANULE * GRANULE
        self.read_bytes += size
        for i in range(len(self.units[u].parameters)):
            self._in_window(u, i).copy_(self.store["weight"][u, i])

    def _free(self, u: int) -> None:
        at = self.stays.pop(u)
        self.window[at:at + bytes_of(self.units[u])] = 0xFF

    def _in_window(self, u: int, index: int) -> torch.Tensor:
        at = self.stays[u]
        for i, each in enumerate(self.units[u].parameters):
            size = each.numel * each.dtype.itemsize
            if i == index:
                return self.window[at:at + size].view(each.dtype)
            at += -(-size // GRANULE) * GRANULE
        raise IndexError(index)

    @torch.inference_mode(False)  # what an evaluation's beginning writes is updated later
    def _set_weight(self, place: Place, values: torch.Tensor) -> None:
        spec = self.units[place[0]].parameters[place[1]]
        assert values.numel() == spec.numel, self._name(place)
        flat = values.detach().reshape(-1)
        self.store["weight"][place] = flat.to(spec.dtype, copy=True)
        if spec.trainable:
            self.store["master"][place] = flat.to(torch.float32, copy=True)
            if place not in self.store["steps"]:
                start = self.model.initial_accumulator if self.model.optimizer == "adagrad" else 0.0
                self.store["moment0"][place] = torch.full((spec.numel,), start)
                self.store["moment1"][place] = torch.zeros(spec.numel)
                self.store["steps"][place] = torch.tensor(0.0)

    def _refresh(self, place: Place) -> None:
        if place in self.resident:
            self.resident[place].copy_(self.store["weight"][place])

    def _norm(self) -> torch.Tensor:
        """As torch.nn.utils.clip_grad_norm_ sums, over parameters in the order of the model."""
        norms = [torch.linalg.vector_norm(self.sums[place]) for place in self.places if place in self.sums]
        return torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.zeros(())

    def _update(self, place: Place, gradient: torch.Tensor, request: UpdateRequest) -> None:
        spec = self.units[place[0]].parameters[place[1]]
        self.store["steps"][place].fill_(request.step - 1 - self.store["skipped"].get(place, 0))  # the store counts so
        update_parameter(self.model.optimizer, self.store["master"][place], gradient.float(),
                         (self.store["moment0"][place], self.store["moment1"][place]), self.store["steps"][place],
                         request.groups[spec.group])
        self.store["weight"][place] = self.store["master"][place].to(spec.dtype, copy=True)
        self._refresh(place)

    def _commit(self, client_state: Mapping[str, str]) -> None:
        self.client_state = {**self.user_state, **client_state}
        if self.folder:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._save(self.folder / "generation.new", self.client_state)
            os.replace(self.folder / "generation.new", self.folder / "generation.pt")

    def _save(self, path: Path, client_state: Mapping[str, str]) -> None:
        torch.save({"store": self.store, "client": dict(client_state)}, path)

    def _load(self, path: Path) -> None:
        saved = torch.load(path, weights_only=True)
        self.store, self.client_state = saved["store"], saved["client"]

    def _resume(self) -> bool:
        if not self.folder or not (self.folder / "generation.pt").exists():
            return False
        self._load(self.folder / "generation.pt")
        if set(self.store["weight"]) != set(self.places):
            raise PenstockError(f"{self.folder}: another model's store")
        self.resumed = self.client_state
        return True


class OpenFakeCore:
    """Opens fake cores with these options, and remembers the last."""

    def __init__(self, window_bytes: int | None = None, folder: str | os.PathLike[str] | None = None) -> None:
        self.window_bytes, self.folder = window_bytes, folder
        self.last: FakeCore | None = None

    def __call__(self, model: ModelSpec, first: ReadWeight) -> Core:
        self.last = FakeCore(model, first, self.window_bytes, self.folder)
        return self.last


def streamed(units: Sequence[UnitSpec]) -> list[str]:
    return [unit.name for unit in units if not unit.resident]
