"""A model with nothing to train: a teacher, a reference, what is evaluated or generates. It is opened for its forwards
alone: over a store of its weights in one slot, over the store of a run or a snapshot, which are only read, or where a
directory of Hugging Face's lies."""
from __future__ import annotations

import os
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from ..core import Core, GroupValues, ModelSpec, OpenCore, ParameterSpec, ReadWeight, UnitSpec, Visit
from ..errors import ModelError, StorageError, UsageError
from ..native.look import look
from ..native.record import KEY, Record
from ..store import Store, as_store
from ..units import Unit
from ..weights import buffers
from ..weights.bits import same_bits
from .directory_core import DirectoryCore
from .incoming import Incoming

Forward = Callable[[list[Unit], list[UnitSpec]], tuple[Visit, ...]]


def nothing_to_train(model: nn.Module, later: Set[nn.Parameter]) -> bool:
    return not later and not any(each.requires_grad for each in model.parameters())


@dataclass(frozen=True)
class Found:
    """What is opened. `record` is that of a run, whose weights they are; None: the model's own, or its directory's."""

    opener: OpenCore | Store
    record: Record | None = None
    holds: Store | None = None  # which has weights that were given before
    told: str = ""
    step: int = 0


NOTHING = Found(DirectoryCore)  # is there


def find(store: Store | str | os.PathLike[str] | None, core: OpenCore | None, from_directory: bool) -> Found:
    """Looks at the store, if there is one. Raises UsageError and StorageError."""
    if core is not None:
        return Found(core)
    if store is None:
        if not from_directory:
            raise UsageError("penstock.initialize(store=...): no parameter of the model requires a gradient, and it is "
                             "opened for forwards alone: name a directory on NVMe for its weights, or "
                             "penstock.initialize(weights=...), Hugging Face's directory, which is read where it is")
        return Found(DirectoryCore, told="forwards alone: weights are read where they are")
    own = as_store(store)
    path = own.paths()[0]
    there = look(path)
    if there.content == "nothing":
        return Found(own, told=f"forwards alone: {path} gets the weights, in one slot")
    if there.in_use:
        raise StorageError(f"{path}: the store is in use by a run that is under way, and nothing of the model given is "
                           "trainable: to evaluate that run take a snapshot of it, engine.save_checkpoint(directory), "
                           "and name DIRECTORY/TAG/store; or wait for its end")
    if KEY not in there.values:
        raise StorageError(f"{path}: the store was made by a version of penstock that did not note how its model was "
                           "trained. Make one step of the run with this version, then it can be opened for forwards "
                           "alone")
    record = Record.decode(there.values[KEY], path)
    if record.given:
        return Found(replace(own, verify="none"), holds=own, told=f"forwards alone, over the weights in {path}")
    step = int(there.values.get("updates", 0))
    as_trained = replace(own, codec=record.codec, tile_elements=record.tile_elements)
    what = "snapshot" if there.content == "snapshot" else "run"
    return Found(as_trained, record, told=f"forwards alone, over the {what} in {path}, of step {step}: it is only "
                 "read, and the weights are those that were trained", step=step)


def spec_of(cut: list[Unit], found: Found, model: nn.Module, visits: Forward) -> ModelSpec:
    """As the run had it, if it is one; else with all weights frozen."""
    own = [(unit, [each for _, each in unit.own]) for unit in cut if unit.index is not None]
    flags = iter(_flags(found, sum(len(parameters) for _, parameters in own)))
    units = [UnitSpec(unit.name, tuple(ParameterSpec(name, tuple(each.shape), each.dtype, next(flags))
                                       for name, each in unit.own), unit.resident) for unit, _ in own]
    forward = visits(cut, units)
    record = found.record
    extra = buffers.Buffers(model).packed() if record is not None else None
    return ModelSpec(tuple(units), "adamw" if record is None else record.optimizer, forward, forward,
                     groups=(GroupValues(0.0, momentum=0.0 if record is None else record.momentum),), extra=extra,
                     forwards_alone=True)


def _flags(found: Found, count: int) -> list[bool]:
    if found.record is None:
        return [False] * count
    flags = list(found.record.trainable())
    if len(flags) != count:
        raise ModelError(f"the store is of a model of {len(flags)} parameters, and this one has {count}: make the "
                         "model that was trained")
    return flags


class Weights:
    """What a core for forwards reads, again and again: of the directory, or of the model where that has none."""

    def __init__(self, parameters: list[list[nn.Parameter]], incoming: Incoming) -> None:
        self._parameters, self._incoming = parameters, incoming
        self._own = {(unit, index): each.detach().clone() for unit, listed in enumerate(parameters)
                     for index, each in enumerate(listed) if not incoming.has(each)}

    def __call__(self, unit: int, index: int) -> torch.Tensor:
        own = self._own.get((unit, index))
        return self._incoming.value(self._parameters[unit][index]) if own is None else own


def check_same(core: Core, given: ReadWeight, store: Store) -> None:
    """What was kept before is what is given now, bit for bit. Raises ModelError."""
    for unit, spec in enumerate(core.units):
        for index, each in enumerate(spec.parameters):
            if not same_bits(core.read(unit, index).view(each.shape), given(unit, index).detach().cpu()):
                path = Path(store.paths()[0])
                raise ModelError(f"{path} has the weights of another model: '{spec.name}.{each.name}' differs from what "
                                 f"is given now. Name another directory, or remove {path}, and the weights given are "
                                 "kept there")
