"""The core on NVMe: penstock.core's protocol over the session's C interface."""
from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping
from typing import Any

import torch

from . import new_places, one_run, structs as c, update_order
from ..core import CoreFigures, ModelSpec, OpenCore, OpenSum, PassKind, ReadWeight, UpdateReport, UpdateRequest, Visit, What
from ..errors import EndedError, PenstockError, UsageError
from ..store import Store
from .described import Described, Part, Place
from .look import look
from .record import KEY
from .session import DTYPES, HOST, Handle, NotFound, array, client_state, made, note, values_of, visits_of

NO_VISIT = (ctypes.c_uint32 * 0)()
FINGERPRINT = "penstock.model"  # of what a store was made for, among the values that it commits (session_info.h)
ONCE = "scratch: "  # begins the notes that say what keep=False has asked for


class NativeCore(Described):
    """See penstock.core.Core."""

    begun: int | None = None
    opening = -1
    changes = 0
    _first_notes: list[str]
    _stream: int  # torch's default one is 0

    def __init__(self, model: ModelSpec, first: ReadWeight, store: Store, ranks: Any = None) -> None:
        """`ranks`: the ranks' structure (native/ranks.py) of a group that outlives it; None: one process."""
        self._ranks, self.over_ranks = ranks, ranks is not None
        self.user_state: MutableMapping[str, str] = {}
        self._visited: Visit = ()
        self._extra: torch.Tensor | None = None  # as it was written last
        self.kept = store.keep
        super().__init__(model, store)
        self._foresee()
        self._open(store, first)
        self.resumed: Mapping[str, str] | None = dict(client_state(self._call, self._handle.pointer)) \
            if self.info().resumed and not model.forwards_alone else None

    # Passes.
    def expect(self, kind: PassKind, visits: Iterable[Visit]) -> None:
        listed = visits_of([self._parts_of(each) for each in visits])
        self._call["expect"](self._pointer, c.PASSES[kind], listed, len(listed))

    def begin_pass(self, kind: PassKind) -> None:
        self._visited = ()
        self._call["begin_pass"](self._pointer, c.PASSES[kind])

    def visit(self, units: Visit, held: Visit = ()) -> None:
        key = (units, held, self._visited)
        if key not in self._visits:
            wanted = tuple(dict.fromkeys(self._parts_of((*units, *held))))
            kept = [each for each in wanted if each in self._visited]
            self._visits[key] = (wanted, array(ctypes.c_uint32, wanted), array(ctypes.c_uint32, kept),
                                 (c.UnitMemory * len(wanted))())
        wanted, given, kept, memory = self._visits[key]
        if self._on_gpu:
            self._follow_stream()
        self._call["visit"](self._pointer, given, len(given), kept, len(kept), memory)
        self._visited = wanted
        for part, place in zip(wanted, memory):
            self._bases[part] = (place.trainable, place.frozen)

    def end_pass(self) -> None:
        self._visited = ()
        self._call["end_pass"](self._pointer)

    def weights(self, unit: int, index: int) -> torch.Tensor:
        part, own = self._place_of[unit, index]
        place = self._places[part][own]
        base = self._bases[part][place.frozen] or 0
        return self._handle.tensor(base + place.offset_bytes, place.numel, DTYPES[place.type], self.device)

    def where(self, unit: int) -> Hashable:
        return tuple(self._bases[part] for part in self._of_unit[unit])

    # Gradients.
    def open_gradient(self, unit: int, index: int) -> OpenSum:
        if self._on_gpu:
            self._follow_stream()
        found = self._gradient
        self._call["open_gradient"](self._pointer, *self._place_of[unit, index], self._to_gradient)
        seen = self._sums.get((unit, index))
        if seen is None or seen[0] != found.data:
            memory = self._sum(self.device).view(self.units[unit].parameters[index].shape)
            seen = self._sums[unit, index] = found.data, OpenSum(memory, True), OpenSum(memory, False)
        return seen[1] if found.fresh else seen[2]

    def gradient(self, unit: int, index: int) -> torch.Tensor | None:
        try:
            self._call["gradient"](self._pointer, *self._place_of[unit, index], self._to_gradient)
        except NotFound:
            return None
        return self._sum(HOST)

    def make_gradient(self, unit: int, index: int) -> torch.Tensor:
        self._call["make_gradient"](self._pointer, *self._place_of[unit, index], self._to_gradient)
        return self._sum(HOST)

    def clear_gradient(self, unit: int, index: int) -> None:
        self._call["clear_gradient"](self._pointer, *self._place_of[unit, index])

    def clear_gradients(self) -> None:
        self._call["clear_gradients"](self._pointer)

    def gradient_norm(self) -> float:
        norm = ctypes.c_double()
        self._call["gradient_norm"](self._pointer, ctypes.byref(norm))
        return norm.value

    # Activations.
    def lay(self, turn: int, count: int) -> torch.Tensor:
        self._call["lay"](self._pointer, turn, count, ctypes.byref(self._address))
        self._laid[turn] = count
        return self._handle.tensor(self._address.value or 0, count, torch.uint8)

    def take(self, turn: int) -> torch.Tensor:
        self._call["take"](self._pointer, turn, ctypes.byref(self._address))
        return self._handle.tensor(self._address.value or 0, self._laid[turn], torch.uint8)

    def drop(self, turn: int) -> None:
        del self._laid[turn]
        self._call["drop"](self._pointer, turn)

    # Steps.
    def begin_step(self, request: UpdateRequest) -> bool:
        if self._model.extra is not None:
            return False  # what is beside the weights is written before the step that it belongs to
        begun = ctypes.c_int()
        self._call["begin_step"](self._pointer, ctypes.byref(self._step(request)), ctypes.byref(begun))
        if begun.value:
            self.begun = request.step
        return bool(begun.value)

    def complete(self, unit: int) -> None:
        for part in self._of_unit[unit]:
            if any(self._spec((unit, index)).trainable for index in self._parts[part].indices):
                self._call["complete"](self._pointer, part)

    def update(self, request: UpdateRequest) -> UpdateReport:
        self.changes += 1
        if request.extra is not None and (self._extra is None or not torch.equal(request.extra, self._extra)):
            given = request.extra.float()
            self._call["write"](self._pointer, len(self._parts), 0, c.WHAT["weight"], given.data_ptr(), given.nbytes)
            self._extra = request.extra.clone()
        report = made(c.StepReport)
        self._call["update"](self._pointer, ctypes.byref(self._step(request)), ctypes.byref(report))
        self.begun = None
        return UpdateReport(report.gradient_norm, bool(report.updated), bool(report.committed),
                            bool(report.committed_before), bool(report.updated_again))

    def settle(self) -> None:
        if self._store.keep:
            self._call["settle"](self._pointer)

    def gather(self, what: str, mine: bytes) -> list[bytes]:
        count = 1 if self._ranks is None else self._ranks.ranks
        memory = ctypes.create_string_buffer(len(mine) * count)
        self._call["gather"](self._pointer, what.encode(), mine, memory, len(mine))
        whole = memory.raw  # a copy each time
        return [whole[at:at + len(mine)] for at in range(0, len(whole), len(mine))]

    def read(self, unit: int, index: int, what: What = "weight") -> torch.Tensor:
        part, own = self._place_of[unit, index]
        place = self._places[part][own]
        values = torch.empty(place.numel, dtype=DTYPES[place.type] if what == "weight" else torch.float32)
        self._call["read"](self._pointer, part, own, c.WHAT[what], values.data_ptr(), values.nbytes)
        return values

    def write(self, unit: int, index: int, what: What, values: torch.Tensor) -> None:
        self.changes += 1
        given = values.detach().reshape(-1).to(HOST, torch.float32, memory_format=torch.contiguous_format)
        self._call["write"](self._pointer, *self._place_of[unit, index], c.WHAT[what], given.data_ptr(), given.nbytes)

    def extra(self) -> torch.Tensor:
        assert self._model.extra is not None
        values = torch.empty_like(self._model.extra)
        self._call["read"](self._pointer, len(self._parts), 0, c.WHAT["weight"], values.data_ptr(), values.nbytes)
        return values

    def begin_snapshot(self, path: str) -> None:
        self._call["begin_snapshot"](self._pointer, os.fsencode(path))

    def copies_snapshot(self) -> bool:
        progress = made(c.SnapshotProgress)
        self._call["snapshot_progress"](self._pointer, ctypes.byref(progress))
        return bool(progress.under_way)

    def finish_snapshot(self) -> None:
        self._call["finish_snapshot"](self._pointer)

    def go_back(self, path: str) -> Mapping[str, str]:
        """The store is opened again; tensors that were handed out are not the model's any more. Nothing has happened where
        the snapshot is of another model."""
        self._check_of_this_model(path)
        self.changes += 1
        if self.begun is None:  # else it was interrupted, and is lost
            self.clear_gradients()
            self.settle()
        self._end()
        try:
            self._open(self._store.at_snapshot(os.fspath(path)), None)
        except Exception as problem:
            if not self._store.keep:
                raise EndedError(f"{problem}; what the store had is gone, because it was for one run, Store(keep=False): "
                                 "begin anew from a checkpoint, Store(resume_from=...)") from problem
            self._open(self._store.at_newest(), None)
            raise
        return dict(client_state(self._call, self._pointer))

    def _check_of_this_model(self, path: str) -> None:
        there = look(path)
        if there.values.get(FINGERPRINT, self._fingerprint) != self._fingerprint:
            raise UsageError(f"{path}: the snapshot was made with another model, codec or kind of optimizer than this one, "
                             "which goes on as it is; take one of its own, or begin with its weights alone")

    def memory_table(self) -> str:
        return self.info().memory_table.decode()  # type: ignore[no-any-return]

    def info(self) -> Any:
        info = made(c.Info)
        self._call["get_info"](self._pointer, ctypes.byref(info))
        return info

    def figures(self) -> CoreFigures:
        """See penstock.core.figures_of()."""
        info = self.info()
        return CoreFigures(info.pool_peak_bytes, self._uses, self._store_bytes, info.device_bytes, info.read_bytes,
                           info.write_bytes, info.waited_ns)

    def notes(self) -> list[str]:
        lines, self._first_notes = self._first_notes, []
        while (line := note(self._pointer, self._told)) is not None:
            lines += [line] if self._store.keep or not line.startswith(ONCE) else []
            self._told += 1
        return lines

    def close(self) -> None:
        """What is asked of it from then on is an EndedError that says so."""
        self._end()
        self._call = {name: _closed(call, self._store) for name, call in self._call.items()}

    def __reduce__(self) -> Any:
        raise UsageError("a store that is open cannot be copied or pickled")

    # Private.
    @property
    def _pointer(self) -> ctypes.c_void_p:
        return self._handle.pointer

    def _step(self, request: UpdateRequest) -> Any:
        groups = self._groups_of(request.groups)
        values = values_of({**self.user_state, **request.client_state, KEY: self._record})
        return made(c.Step, step=request.step, groups=groups, group_count=len(groups),
                    group_struct_bytes=ctypes.sizeof(c.Group), clip=request.clip, loss_scale=request.loss_scale,
                    may_skip=request.may_skip, values=values, value_count=len(values))

    def _sum(self, device: torch.device) -> torch.Tensor:
        """As the last call gave it."""
        found = self._gradient
        return self._handle.tensor(found.data, found.numel, DTYPES[found.type], device)

    def _follow_stream(self) -> None:
        stream = torch.cuda.current_stream(self.device).cuda_stream
        if stream != self._stream:
            self._call["compute_on"](self._pointer, stream)
            self._stream = stream

    def _end(self) -> None:
        self._call["end"](self._pointer)
        self._sums.clear()

    def _open(self, store: Store, first: ReadWeight | None) -> None:
        new = new_places.notes_of(store.paths(), store.keep)
        with one_run.opening(store) as placed:
            new_places.tell(new)
            self._handle = self._opened(placed, first)
        self._told = 0
        self._fingerprint = dict(client_state(self._call, self._handle.pointer)).get(FINGERPRINT)
        alone = self._model.forwards_alone
        self.gradients_leave = store.gradients != "cpu" and not alone
        self.lays, self.opening = store.activation_budget_bytes > 0 and not alone, self.opening + 1
        self._laid: dict[int, int] = {}  # bytes, by turn
        self._address = ctypes.c_void_p()
        vain = update_order.in_vain(store, self._model)
        self._first_notes = [vain] if vain else []
        self._extra = None
        self.begun = None
        self._visited = ()
        self._visits: dict[Any, Any] = {}
        self._gradient = made(c.Gradient)
        self._to_gradient = ctypes.byref(self._gradient)
        self._sums: dict[tuple[int, int], tuple[int, OpenSum, OpenSum]] = {}  # by parameter: where it was last
        self._on_gpu, self._stream = self.device.type == "cuda", 0
        self._places = [[self._c_place(number, i) for i in range(len(part.indices))]
                        for number, part in enumerate(self._parts)]
        self._bases: list[tuple[int | None, int | None]] = [(None, None)] * len(self._parts)
        memory = c.UnitMemory()
        for number, part in enumerate(self._parts):
            if part.resident:
                self._call["resident"](self._pointer, number, ctypes.byref(memory))
                self._bases[number] = (memory.trainable, memory.frozen)

    def _foresee(self) -> None:
        """What the session does not say of itself, of its plan. What cannot be planned is refused by the opening."""
        try:
            plan = self.plan()
        except PenstockError:
            plan = made(c.Plan)
        self._uses, self._store_bytes = c.uses_of(plan), plan.store_bytes

    def _opened(self, store: Store, first: ReadWeight | None) -> Handle:
        refused: list[BaseException] = []
        model, kept = self._c_model()
        options = self._c_options(store, _first_weights(first, self._parts, self._model.extra, refused), kept, refused,
                                  self._ranks)
        pointer = ctypes.c_void_p()
        try:
            self._call["open"](ctypes.byref(model), ctypes.byref(options), ctypes.byref(pointer))
        except Exception:
            if refused:
                raise refused[0]
            raise
        handle = Handle(self._call, pointer)
        if refused:
            self._call["end"](pointer)
            raise refused[0]
        return handle

    def _c_place(self, part: int, own: int) -> Any:
        place = made(c.Place)
        self._call["place"](self._pointer, part, own, ctypes.byref(place))
        return place


def opens(store: Store, ranks: Any = None) -> OpenCore:
    """Makes cores on that store, of one rank of several where there are `ranks`."""
    return functools.partial(NativeCore, store=store, ranks=ranks)


def _closed(call: Callable[..., None], store: Store) -> Callable[..., None]:
    left = "Its store was for one run and is gone: take what is to be kept before, by a checkpoint or a copy"
    if store.keep:
        left = f"What it had committed is in {store.paths()[0]}: penstock.initialize() of a new model there goes on"

    def refuses(*given: Any) -> None:
        try:
            call(*given)
        except EndedError:
            raise EndedError("the engine is closed: by engine.close(), engine.release() or the end of its `with`. "
                             f"{left}") from None
    return refuses


def _first_weights(first: ReadWeight | None, parts: list[Part], extra: torch.Tensor | None,
                   refused: list[BaseException]) -> Any:
    """The session asks for stretches of one parameter after the other: the last one is kept."""
    if first is None:
        return c.FirstWeights(0)
    last: dict[Place, torch.Tensor] = {}

    def give(unit: int, index: int, begin: int, count: int, to: int, error: Any, _: Any) -> int:
        try:
            place = (parts[unit].unit, parts[unit].indices[index]) if unit < len(parts) else (unit, index)
            if place not in last:
                last.clear()
                values = first(*place) if unit < len(parts) or extra is None else extra
                last[place] = values.detach().reshape(-1).to(HOST, torch.float32).contiguous()
            ctypes.memmove(to, last[place].data_ptr() + 4 * begin, 4 * count)
        except BaseException as problem:  # it must not pass through C
            refused.append(problem)
            error.contents.message = str(problem).encode()[:2000]
            return c.USAGE
        return c.OK
    return c.FirstWeights(give)
