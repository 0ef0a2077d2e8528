"""Weights of a store or a checkpoint that no training has open, where nobody has the model: what python -m penstock
export writes, and what DeepSpeed's users know as zero_to_fp32."""
from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from ..core import GroupValues, ModelSpec, What
from ..errors import StorageError, UsageError
from ..native.look import look
from ..native.reader import Reader
from ..native.record import KEY, Record
from ..store import Store
from .configuration import write_texts
from .conversions import Step, out_of_model, problem_of
from .description import NAME, Description
from .meta_model import of_directory
from .parts import Parts, are_parts
from .safetensors_file import TensorInfo
from .state_names import infos_of, state_of

SKIPPED = "penstock.skipped_steps"  # in a store's client state, where parameters have skipped steps
ENGINE, LATEST = "engine.pt", "latest"  # of a checkpoint: see checkpoints/checkpoint.py


@dataclass(frozen=True)
class Found:
    """A snapshot or a store, and what is said of its model."""

    directory: Path
    description: Description


class StoredWeights:
    """See export.Weights. Holds the store, beside other readers, until it is closed. `under_model_names`: files have the
    names of the model's state_dict()."""

    def __init__(self, path: str | os.PathLike[str], tag: str | None = None,
                 also: Sequence[str | os.PathLike[str]] = (), under_model_names: bool = False) -> None:
        found = find(Path(path), tag)
        self.description, self._under_model_names = found.description, under_model_names
        self.kept = {name: self.description.info(name) for name in self.description.kept}
        self.parameters = self.description.parameters
        self._where = Path(path)
        self._reader: Reader | Parts = Parts(found.directory) if are_parts(found.directory) else _reader(found, also)
        self.skipped_steps = not are_parts(found.directory) and SKIPPED in look(found.directory).values
        self._bytes_of_buffers: dict[str, torch.Tensor] = {}  # once one is asked for

    def steps(self, infos: Mapping[str, TensorInfo]) -> list[Step]:
        if self._under_model_names:
            return [Step([name], {name: info}) for name, info in infos.items()]
        if self.description.problem:
            raise UsageError(f"{self._where}: Hugging Face's files cannot be made of this {self.description.model}: "
                             f"{self.description.problem}; under_model_names (--model-names) writes its weights under "
                             "the names of its state_dict()")
        if self.description.renamed is None:
            return self._by_the_class(infos)
        return [Step([name], {self.description.renamed[name]: info}) for name, info in infos.items()]

    def value(self, name: str, master: bool) -> torch.Tensor:
        place = self.description.tensors[name]
        if isinstance(place, str):
            return self._buffer(place)
        what: What = "master" if master and self.description.is_trained(name) else "weight"
        return self._reader.read(*place, what).view(self.description.info(name).shape)

    def state(self, name: str, what: What) -> torch.Tensor:
        """A parameter's, in its shape."""
        place = self.description.tensors[name]
        assert not isinstance(place, str)
        known: What = what if what != "master" or self.description.is_trained(name) else "weight"
        return self._reader.read(*place, known).view(self.description.info(name).shape)

    def write_configuration(self, directory: Path, dtype: torch.dtype | None) -> None:
        if not self._under_model_names:
            write_texts(self.description.configuration, directory, dtype)

    def named_values(self, master: bool) -> Iterator[tuple[str, torch.Tensor]]:
        """All of the model's state_dict(), one at a time in memory; what is tied comes under each name."""
        for name in self.description.tensors:
            yield name, self.value(name, master)

    def leave_out_frozen(self) -> None:
        self.kept = {name: info for name, info in self.kept.items() if not self.description.is_frozen(name)}

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> StoredWeights:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    # Private.
    def _buffer(self, name: str) -> torch.Tensor:
        infos = self.description.buffers
        if not self._bytes_of_buffers:
            parts = self._reader.extra().split([each.byte_count for each in infos.values()])
            self._bytes_of_buffers = dict(zip(infos, parts))
        part = self._bytes_of_buffers[name].clone()  # aligned for whatever type
        return part.view(infos[name].dtype).view(infos[name].shape)

    def _by_the_class(self, infos: Mapping[str, TensorInfo]) -> list[Step]:
        """Experts that are one tensor in the model and many in files: transformers' class of the model knows how."""
        with tempfile.TemporaryDirectory() as directory:
            write_texts(self.description.configuration, Path(directory), None)
            model = of_directory(directory)
        own = infos_of(state_of(model))
        other = [name for name in infos if name not in own or own[name].shape != infos[name].shape]
        if other:
            raise UsageError(f"{self._where}: '{other[0]}' is not as transformers' {self.description.model} has it, which "
                             "is asked what files call it; export with the version of transformers that trained it, or "
                             "under_model_names (--model-names)")
        steps = out_of_model(model, infos)
        if problem := problem_of(steps):
            raise UsageError(f"{self._where}: {problem}; under_model_names (--model-names) writes its weights under the names of "
                             "its state_dict()")
        return steps


def find(path: Path, tag: str | None = None) -> Found:
    """`path` is a directory of checkpoints, one of these, a Trainer's output or checkpoint, or a store. Raises
    UsageError and StorageError."""
    if tag is None and (path / LATEST).is_file() and not (path / ENGINE).exists():
        tag = (path / LATEST).read_text().strip()
    of_trainer = _checkpoints_of_trainer(path)
    if of_trainer and tag in (None, *of_trainer):
        return find(path / (tag or of_trainer[-1]))
    checkpoint = path if tag is None else path / tag
    if (checkpoint / ENGINE).is_file():
        return _of_checkpoint(checkpoint, _read(checkpoint))
    if tag is not None:
        there = [*sorted(each.parent.name for each in path.glob(f"*/{ENGINE}")), *of_trainer]
        raise UsageError(f"{checkpoint}: no checkpoint is there; {path} has {', '.join(there) or 'none'}")
    if (path.parent / ENGINE).is_file() and path.name == (read := _read(path.parent))["snapshot"]:
        return _of_checkpoint(path.parent, read)
    own = _snapshots_of_trainer(path)
    if len(own) == 1:
        path = own[0]
    if (path / NAME).is_file():
        text = (path / NAME).read_text(encoding="utf-8")
        return Found(path, Description.decode(text, str(path / NAME)))
    seen = look(path)
    if seen.content == "nothing":
        raise UsageError(f"{path}: neither a store nor a checkpoint of penstock; name the directory of a store, of "
                         "checkpoints (it has a file 'latest'), of one checkpoint (it has engine.pt), or a Trainer's output")
    if KEY not in seen.values:
        raise UsageError(f"{path}: the store was not made by the Python package, and does not say what its objects mean; "
                         "read it with the program that made it (penstock.h, penstock_reader.h). `penstock ckpt show` "
                         "lists its objects")
    raise StorageError(f"{path}: the store has no {NAME}, which says what its weights are called, because a version of "
                       "penstock before this one made it: start its script once more, or load it there and "
                       "engine.save_pretrained(OUT)")


# Private.
def _snapshots_of_trainer(checkpoint: Path) -> list[Path]:
    """hugging_face.py's, in a Trainer's checkpoint."""
    return sorted(each for each in checkpoint.glob("penstock-step-*") if (each / NAME).is_file())


def _checkpoints_of_trainer(output: Path) -> list[str]:
    """Their names, the newest last, as Trainer counts them."""
    names = [each.name for each in output.glob("checkpoint-*") if each.name.partition("-")[2].isdecimal()
             and ((each / LATEST).is_file() or _snapshots_of_trainer(each))]
    return sorted(names, key=lambda name: int(name.partition("-")[2]))


def _read(checkpoint: Path) -> Any:
    return torch.load(checkpoint / ENGINE, weights_only=True)


def _of_checkpoint(checkpoint: Path, read: Any) -> Found:
    if "model" not in read:
        raise StorageError(f"{checkpoint}: the checkpoint does not say what its weights are called, because a version of "
                           "penstock before this one made it: load it, and save it again or engine.save_pretrained(OUT)")
    return Found(checkpoint / read["snapshot"], Description.decode(read["model"], str(checkpoint / ENGINE)))


def _reader(found: Found, also: Sequence[str | os.PathLike[str]]) -> Reader:
    values = look(found.directory).values
    if KEY not in values:
        raise StorageError(f"{found.directory}: nothing of the model that {NAME} names is committed there; is it a copy that "
                           "is not whole?")
    record = Record.decode(values[KEY], str(found.directory))
    beside = found.description.buffer_bytes()
    model = ModelSpec(found.description.units, record.optimizer, groups=(GroupValues(0.0, momentum=record.momentum),),
                      extra=torch.empty(beside, dtype=torch.uint8) if beside else None)
    return Reader(model, Store([found.directory, *also], codec=record.codec, tile_elements=record.tile_elements))
