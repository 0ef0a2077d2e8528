"""A model and its options as the session's C interface takes them; and what can be asked of them before a session is
opened."""
from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from . import structs as c
from ..core import BF16_ADDENDS, GroupValues, ModelSpec, ParameterSpec, UnitSpec, Visit
from ..errors import ModelError, UsageError, some
from ..optimizer_kinds import KINDS
from ..store import Store, settings_of
from .record import KEY, Record, runs_of
from .session import TYPES, array, functions, made, values_of, visits_of

Place = tuple[int, int]
CODECS = {torch.bfloat16: "split", torch.float16: "plain_fp16", torch.float32: "plain_fp32"}


@dataclass(frozen=True)
class Part:
    """A unit as the session has it: of one type of frozen weights. A unit of the model's is one or more of them."""

    name: str
    unit: int
    indices: tuple[int, ...]  # the unit's parameters
    frozen: torch.dtype | None
    resident: bool


def parts_of(model: ModelSpec) -> list[Part]:
    parts = []
    for number, unit in enumerate(model.units):
        types: list[torch.dtype | None] = []
        for each in unit.parameters:
            if not each.trainable and each.dtype not in types:
                types.append(each.dtype)
        first, *others = types or [None]
        own = tuple(i for i, each in enumerate(unit.parameters) if each.trainable or each.dtype == first)
        parts.append(Part(unit.name, number, own, first, unit.resident))
        for dtype in others:
            of_type = tuple(i for i, each in enumerate(unit.parameters) if not each.trainable and each.dtype == dtype)
            parts.append(Part(f"{unit.name}:{str(dtype).split('.')[-1]}", number, of_type, dtype, unit.resident))
    return parts


def _frozen(units: Sequence[UnitSpec]) -> tuple[UnitSpec, ...]:
    return tuple(replace(unit, parameters=tuple(replace(each, trainable=False) for each in unit.parameters))
                 for unit in units)


def trained_type(model: ModelSpec) -> torch.dtype:
    """All trainable parameters' type, because they share a codec."""
    named = {f"{unit.name}.{each.name}": each.dtype for unit in model.units for each in unit.parameters
             if each.trainable}
    types = sorted(set(named.values()), key=str)
    if len(types) > 1:
        fewest = min(types, key=lambda dtype: sum(each == dtype for each in named.values()))
        raise ModelError(f"trainable parameters are of several types ({', '.join(map(str, types))}); of {fewest} are "
                         f"{some(name for name, dtype in named.items() if dtype == fewest)}: convert the model to one "
                         "type, or freeze those")
    return types[0] if types else torch.float32


@dataclass(frozen=True)
class LaidItem:
    """What is laid aside in one visit of a pass, once it is made, and taken again before later ones, of which the last
    drops it (Core.lay)."""

    turn: int
    bytes: int
    laid_in: int
    taken_in: tuple[int, ...]


@dataclass(frozen=True)
class Compute:
    """What compute does in a step, as it was measured: by visit of one training pass, from it until the next one."""

    visits: tuple[Visit, ...]
    seconds: tuple[float, ...]
    forward_visits: int  # the first so many are forward, the others backward
    passes: int = 1  # before one update
    rest_seconds: float = 0.0  # of a step, outside of its passes
    tokens: int | None = None  # of a step
    endurance_bytes: float = 0.0  # that the devices are rated to have written; 0: not known
    graph_bytes: int = 0  # of graphs that are kept from forward to backward, in torch's memory
    laid: tuple[LaidItem, ...] = ()  # of one pass


class Described:
    """Stays as it is; any number of questions. Raises what the session's status says."""

    def __init__(self, model: ModelSpec, store: Store) -> None:
        self.units: Sequence[UnitSpec] = _frozen(model.units) if model.forwards_alone else model.units
        self._model, self._store = model, store
        self.device = store.torch_device()
        self._call = functions()
        self._parts = parts_of(model)
        self._of_unit: list[list[int]] = [[] for _ in model.units]
        self._place_of: dict[Place, Place] = {}  # of a parameter, in the session's units
        for number, part in enumerate(self._parts):
            self._of_unit[part.unit].append(number)
            self._place_of.update({(part.unit, index): (number, i) for i, index in enumerate(part.indices)})
        used = sorted({each.group for unit in model.units for each in unit.parameters if each.trainable})
        self._groups = used or [0]
        self._type = trained_type(model)

    # What is asked of what is not opened.
    def plan(self) -> Any:
        """What a core takes."""
        return self._ask("plan", made(c.Plan))

    def plan_of_ranks(self, ranks: int, of_node: int, passes: int) -> tuple[Any, Any]:
        """What a core of each of so many takes, of steps of so many passes; and what there is beside it. `of_node`: the
        most on one machine; 0: all."""
        plan = made(c.Plan)
        return plan, self._ask("plan_ranks", made(c.RanksPlan), ranks, of_node, passes, ctypes.byref(plan))

    def measure(self, seconds: float) -> Any:
        """What the directories' devices and the processor give now, by measurements of so many seconds each."""
        return self._ask("measure", made(c.Rates), ctypes.c_double(seconds))

    def forecast(self, rates: Any, compute: Compute | None = None) -> Any:
        """How long a step takes at these rates (of measure())."""
        given = made(c.Compute) if compute is None else self._c_compute(compute)
        return self._ask("forecast", made(c.Forecast), ctypes.byref(rates), ctypes.byref(given))

    def sums_type(self) -> torch.dtype:
        """Of gradients, as in trainer/config/derived_settings.cpp."""
        few = self._model.micro_batches <= BF16_ADDENDS
        sums = self._store.gradient_type or ("bf16" if self._type == torch.bfloat16 and few else "fp32")
        return torch.bfloat16 if sums == "bf16" else torch.float32

    # Private.
    def _ask(self, what: str, answer: Any, *given: Any) -> Any:
        model, kept = self._c_model()
        options = self._c_options(self._store, c.FirstWeights(0), kept, [])
        self._call[what](ctypes.byref(model), ctypes.byref(options), *given, ctypes.byref(answer))
        return answer

    def _c_compute(self, compute: Compute) -> Any:
        visits = visits_of([self._parts_of(each) for each in compute.visits])
        seconds = array(ctypes.c_double, compute.seconds)
        taken = [array(ctypes.c_size_t, each.taken_in) for each in compute.laid]
        laid = array(c.LaidItem, [c.LaidItem(each.turn, each.bytes, each.laid_in, takes, len(takes))
                                  for each, takes in zip(compute.laid, taken)])
        given = made(c.Compute, visits=visits, visit_count=len(visits), seconds=seconds,
                     forward_count=compute.forward_visits, passes=compute.passes, rest_seconds=compute.rest_seconds,
                     tokens=compute.tokens or 0, endurance_bytes=compute.endurance_bytes, laid=laid,
                     laid_count=len(laid))
        given.kept = (visits, seconds, laid, taken)
        return given

    def _spec(self, place: Place) -> ParameterSpec:
        """As the store has it, which may have been trained."""
        return self._model.units[place[0]].parameters[place[1]]

    @functools.cached_property
    def _record(self) -> str:
        """What is committed of the model."""
        trainable = [each.trainable for unit in self._model.units for each in unit.parameters]
        momentum = max((each.momentum for each in self._model.groups), default=0.0)
        return Record(self._codec(self._store), self._model.optimizer, momentum, self._store.tile_elements,
                      runs_of(iter(trainable)), not any(trainable)).encode()

    def _codec(self, store: Store) -> str:
        if self._model.forwards_alone and not any(
                each.trainable for unit in self._model.units for each in unit.parameters):
            return CODECS[self._type]  # frozen weights are as they are
        codec = store.codec or CODECS[self._type]
        if codec == "split" and self._type != torch.bfloat16 or codec.endswith("fp32") != (self._type == torch.float32):
            raise UsageError(f"codec '{codec}' does not give weights of {self._type}, as the model has; there are "
                             f"'{CODECS[self._type]}', and 'compact' for bfloat16")
        return codec

    def _parts_of(self, units: Iterable[int]) -> list[int]:
        return [part for unit in units for part in self._of_unit[unit]]

    def _groups_of(self, groups: Sequence[GroupValues]) -> Any:
        first = self._model.initial_accumulator
        return array(c.Group, [c.Group(
            each.lr, each.weight_decay, *each.betas, each.eps, each.momentum, each.dampening, each.nesterov,
            each.lr_decay, first) for each in (groups[group] for group in self._groups)])

    def _c_model(self) -> tuple[Any, list[Any]]:
        kept: list[Any] = []  # what the structures point at

        def parameter(spec: ParameterSpec) -> Any:
            shape = array(ctypes.c_int64, spec.shape)
            kept.append(shape)
            group = self._groups.index(spec.group) if spec.trainable else 0
            return c.Parameter(spec.name.encode(), shape, len(spec.shape), not spec.trainable,
                               c.UNUSED[spec.without_gradient], group)

        def unit(part: Part) -> Any:
            parameters = array(c.Parameter, [parameter(self._spec((part.unit, index))) for index in part.indices])
            kept.append(parameters)
            frozen = c.TYPE_DEFAULT if part.frozen is None else TYPES[part.frozen]
            return c.Unit(part.name.encode(), parameters, len(parameters), None, 0, frozen, part.resident)
        units = array(c.Unit, [unit(part) for part in self._parts] + self._c_extra(kept))
        # Which moments there are is decided here: SGD keeps one where any group has a momentum.
        groups = self._groups_of(self._model.groups)
        training = visits_of([self._parts_of(each) for each in self._model.training])
        inference = visits_of([self._parts_of(each) for each in self._model.inference])
        kept += [units, groups, training, inference]
        return made(c.Model, units=units, unit_count=len(units), unit_struct_bytes=ctypes.sizeof(c.Unit),
                    parameter_struct_bytes=ctypes.sizeof(c.Parameter),
                    optimizer=KINDS[self._model.optimizer].number, groups=groups, group_count=len(groups),
                    group_struct_bytes=ctypes.sizeof(c.Group), training=training, training_count=len(training),
                    inference=inference, inference_count=len(inference)), kept

    def _c_extra(self, kept: list[Any]) -> list[Any]:
        """The bytes beside the weights: a unit behind all others, which no pass visits."""
        if self._model.extra is None:
            return []
        shape = array(ctypes.c_int64, self._model.extra.shape)
        parameters = array(c.Parameter, [c.Parameter(b"bytes", shape, 1, 1, 0, 0)])
        kept += [shape, parameters]
        return [c.Unit(b"penstock.extra", parameters, 1, None, 0, c.U8, 0)]

    def _c_options(self, store: Store, first: Any, kept: list[Any], refused: list[BaseException], ranks: Any = None) -> Any:
        paths = array(ctypes.c_char_p, [os.fsencode(path) for path in store.paths()])
        codec, alone = self._codec(store), self._model.forwards_alone
        progress = c.Progress(0)
        if store.progress is not None:
            show = store.progress

            def told(what: bytes, done: int, total: int, _: Any) -> None:
                try:
                    show(what.decode(), done, total)
                except (KeyboardInterrupt, SystemExit) as problem:  # raised when the session is open
                    refused.append(problem)
            progress = c.Progress(told)
        values = values_of({**self._model.client_state, KEY: self._record})
        kept += [paths, progress, first, values]
        snapshot = None if store.resume_from is None else os.fsencode(store.resume_from)
        first_traced, last_traced = store.trace_steps
        if not 1 <= first_traced <= last_traced:
            raise UsageError(f"Store(trace_steps={store.trace_steps}): the first and the last step of the trace, counting "
                             "from 1")
        settings = settings_of(store, threads=store.threads or torch.get_num_threads(),
                               activation_budget_bytes=0 if alone else store.activation_budget_bytes)
        return made(c.Options, directories=paths, directory_count=len(paths), job=store.job.encode(),
                    resume_from=snapshot, go_back=store.go_back, scratch=not store.keep, clips=self._model.clips,
                    device=c.DEVICES[store.device.partition(":")[0]], device_index=self.device.index or 0,
                    snapshots=store.snapshots and not alone, values=values, value_count=len(values), forwards=alone,
                    codec=codec.encode(), gradient_type=TYPES[self.sums_type()],
                    deadline_ms=int(store.deadline_seconds * 1000), first_weights=first, progress=progress,
                    gradients=c.GRADIENTS[store.gradients],
                    trace=None if store.trace is None else os.fsencode(store.trace), trace_first_step=first_traced,
                    trace_steps=last_traced - first_traced + 1, settings=settings.encode(),
                    ranks=None if ranks is None else ctypes.addressof(ranks))
