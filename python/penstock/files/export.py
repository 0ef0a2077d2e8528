"""Weights out of the store into the files that transformers reads, one tensor at a time.

A directory or a file has its name from the moment on that it is whole and durable: a process that is stopped leaves
what was there before, and something unfinished that the next export of that name removes.
"""
from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from ..core import What
from ..errors import StorageError, UsageError
from ..step.visits import Visits
from ..weights.binding import Binding
from .configuration import write_configuration
from .conversions import Step, out_of_model, problem_of
from .durable import sync
from .safetensors_file import NAMES, SafetensorsWriter, TensorInfo
from .shards import divided, name_of, write_index
from .state_names import infos_of, kept_names, state_of
from .unfinished import unfinished
from .weights_dir import INDEX, SINGLE


class Weights(Protocol):
    """Where an export's values come from."""

    kept: dict[str, TensorInfo]  # what files have, by the model's names
    parameters: int  # elements, of all

    def steps(self, infos: Mapping[str, TensorInfo]) -> list[Step]:
        """Of these tensors those of files. Raises UsageError where they cannot be made."""

    def value(self, name: str, master: bool) -> torch.Tensor:
        """In its shape; `master`: the fp32 that it was rounded from, where it is trained."""

    def write_configuration(self, directory: Path, dtype: torch.dtype | None) -> None: ...


def save_directory(weights: Weights, directory: str | os.PathLike[str], dtype: torch.dtype | None,
                   max_shard_bytes: float, overwrite: bool = False) -> None:
    place = Path(os.path.realpath(directory))
    export = Export(weights, dtype)
    if max_shard_bytes < 1:
        raise UsageError(f"max_shard_bytes: {max_shard_bytes} is not a number of 1 or more")
    if place.exists() and not (place.is_dir() and (overwrite and _has_weights(place) or not any(place.iterdir()))):
        raise StorageError(f"{place}: there is something already; name a new directory, remove it, or, of a directory of "
                           "weights, say overwrite (--overwrite)")
    with unfinished(place) as new:
        weights.write_configuration(new, dtype)
        export.write_shards(new, max_shard_bytes)
        for each in new.iterdir():
            sync(each)
        sync(new)
        if overwrite and place.exists():
            _exchange(new, place)
        else:
            os.rename(new, place)
        sync(place.parent)


def _has_weights(place: Path) -> bool:
    return any((place / name).is_file() for name in (SINGLE, INDEX))


def _exchange(new: Path, place: Path) -> None:
    """A process that is stopped between the two names leaves the old one under the first."""
    old = place.with_name(f".{place.name}.penstock-replaced")
    shutil.rmtree(old, ignore_errors=True)
    os.rename(place, old)
    os.rename(new, place)
    shutil.rmtree(old, ignore_errors=True)


def save_file(weights: Weights, directory: str | os.PathLike[str], filename: str | None) -> None:
    name = filename or SINGLE
    if Path(name).name != name or not name.endswith(".safetensors"):
        raise UsageError(f"save_16bit_model(filename='{name}'): it writes one safetensors file; give a name that ends "
                         "with .safetensors, without a path")
    place = Path(directory) / name
    export = Export(weights, None)
    with unfinished(place) as new:
        export.write(new / name, export.steps)
        os.replace(new / name, place)
        sync(place.parent)


class Export:
    """What is to be written is known when it is made. With `dtype` all that is not integer becomes it; fp32 comes from
    the masters."""

    def __init__(self, weights: Weights, dtype: torch.dtype | None) -> None:
        if dtype is not None and (dtype not in NAMES or not dtype.is_floating_point):
            raise UsageError(f"dtype={dtype}: a floating point type such as torch.bfloat16")
        self._weights, self._dtype = weights, dtype
        self.steps = weights.steps({name: self._info(name) for name in weights.kept})

    def write(self, path: Path, steps: list[Step]) -> None:
        """One file, with what these steps give."""
        with SafetensorsWriter(path, {name: info for each in steps for name, info in each.gives.items()}) as file:
            for step in steps:
                made = step.make([self._value(name) for name in step.takes])
                while made:
                    file.write(*made.popitem())

    def write_shards(self, directory: Path, most_bytes: float) -> None:
        shards = divided(self.steps, _bytes_of, most_bytes)
        weight_map = {}
        for number, steps in enumerate(shards, 1):
            name = name_of(SINGLE, number, len(shards))
            self.write(directory / name, steps)
            weight_map.update({each: name for step in steps for each in step.gives})
        if len(shards) > 1:
            write_index(directory / INDEX, {"total_parameters": self._weights.parameters,
                                            "total_size": sum(map(_bytes_of, self.steps))}, weight_map)

    # Private.
    def _info(self, name: str) -> TensorInfo:
        info = self._weights.kept[name]
        dtype = self._dtype if self._dtype is not None and info.dtype.is_floating_point else info.dtype
        if dtype not in NAMES:
            raise UsageError(f"'{name}' is of {dtype}, which no safetensors file has; make it another type")
        return TensorInfo(info.shape, dtype)

    def _value(self, name: str) -> torch.Tensor:
        """Of the type that is written."""
        return self._weights.value(name, self._dtype == torch.float32).to(self._info(name).dtype)


class ManagedWeights:
    """See Weights: those of a model in training."""

    def __init__(self, binding: Binding, visits: Visits) -> None:
        self._binding, self._visits, self._model = binding, visits, binding.model
        if hasattr(self._model, "peft_config"):
            raise UsageError("the model has adapters of PEFT: engine.module.save_pretrained(directory) writes those")
        self._state = state_of(self._model)
        self.kept = infos_of({name: self._state[name] for name in kept_names(self._model, self._state)})
        self.parameters = sum(each.numel() for each in self._model.parameters())

    def steps(self, infos: Mapping[str, TensorInfo]) -> list[Step]:
        steps = out_of_model(self._model, infos)
        if problem := problem_of(steps):
            raise UsageError(f"{problem}; engine.state_dict() has the weights under the model's names")
        return steps

    def value(self, name: str, master: bool) -> torch.Tensor:
        tensor, binding = self._state[name], self._binding
        self._visits.end()
        if not isinstance(tensor, nn.Parameter) or tensor not in binding.places:
            return tensor.detach()
        what: What = "master" if master and binding.learns(tensor) else "weight"
        return binding.core.read(*binding.places[tensor], what).view(tensor.shape)

    def write_configuration(self, directory: Path, dtype: torch.dtype | None) -> None:
        write_configuration(self._model, directory, dtype)


def _bytes_of(step: Step) -> int:
    """What is made together stays together."""
    return sum(each.byte_count for each in step.gives.values())
