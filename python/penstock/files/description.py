"""What a store or a checkpoint says of its model: enough to read its weights, and to write them as files, where nobody
has the model. A store has it beside its data, as model.json; a checkpoint within its engine.pt."""
from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..core import ParameterSpec, UnitSpec
from ..errors import StorageError
from ..weights import buffers
from .configuration import word_of, write_configuration
from .conversions import out_of_model, problem_of
from .durable import replace_text
from .safetensors_file import TensorInfo
from .state_names import infos_of, kept_names, state_of

NAME = "model.json"
VERSION = 1
Place = tuple[int, int]


@dataclass(frozen=True)
class Description:
    """`tensors`: where each name of the model's state_dict() is, a parameter by unit and index, a buffer by the name
    under which its bytes lie beside the weights, in the order of `buffers`. `kept`: the names that files have of them.
    `renamed`: what files call each of these; None: only the model's class can say, because some are put together."""

    units: tuple[UnitSpec, ...]
    buffers: dict[str, TensorInfo]
    tensors: dict[str, Place | str]
    kept: list[str]
    renamed: dict[str, str] | None
    parameters: int  # elements
    model: str = ""  # its class
    configuration: dict[str, str] = field(default_factory=dict)  # files of its directory beside the weights, by name
    problem: str = ""  # why it cannot be written as Hugging Face's files are

    def info(self, name: str) -> TensorInfo:
        """As the store has it."""
        place = self.tensors[name]
        if isinstance(place, str):
            return self.buffers[place]
        spec = self.units[place[0]].parameters[place[1]]
        return TensorInfo(spec.shape, spec.dtype)

    def is_trained(self, name: str) -> bool:
        place = self.tensors[name]
        return not isinstance(place, str) and self.units[place[0]].parameters[place[1]].trainable

    def is_frozen(self, name: str) -> bool:
        return not isinstance(self.tensors[name], str) and not self.is_trained(name)

    def buffer_bytes(self) -> int:
        return sum(info.byte_count for info in self.buffers.values())

    def encode(self) -> str:
        units = [{"name": unit.name, "parameters": [[each.name, list(each.shape), word_of(each.dtype), each.trainable]
                                                    for each in unit.parameters]} for unit in self.units]
        return json.dumps({
            "version": VERSION, "model": self.model, "parameters": self.parameters, "units": units,
            "buffers": {name: [list(info.shape), word_of(info.dtype)] for name, info in self.buffers.items()},
            "tensors": self.tensors, "kept": self.kept, "renamed": self.renamed, "configuration": self.configuration,
            "problem": self.problem})

    @staticmethod
    def decode(text: str, place: str) -> Description:
        """`place` is for an error's message."""
        try:
            said = json.loads(text)
            if said["version"] != VERSION:
                raise StorageError(f"{place}: what is said of the model is of version {said['version']}, and this is "
                                   f"version {VERSION}: read it with the version of penstock that made it")
            units = tuple(UnitSpec(unit["name"], tuple(
                ParameterSpec(name, tuple(shape), _dtype(dtype), bool(trainable))
                for name, shape, dtype, trainable in unit["parameters"])) for unit in said["units"])
            return Description(
                units, {name: TensorInfo(tuple(shape), _dtype(dtype)) for name, (shape, dtype) in said["buffers"].items()},
                {name: each if isinstance(each, str) else (int(each[0]), int(each[1]))
                 for name, each in said["tensors"].items()},
                said["kept"], said["renamed"], said["parameters"], said["model"], said["configuration"], said["problem"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StorageError(f"{place}: what is said of the model is not what penstock writes ({error}); save the "
                               "checkpoint again, or open the store once more with its model") from error


def describe(model: nn.Module, units: Sequence[UnitSpec], places: Mapping[nn.Parameter, Place]) -> Description:
    """A managed model, as the store has it: its units, and where each parameter is in these."""
    state = state_of(model)
    kept_buffers = infos_of(dict(buffers.named(model)))
    named = {id(state[name]): name for name in kept_buffers}
    tensors: dict[str, Place | str] = {}
    for name, each in state.items():
        if isinstance(each, nn.Parameter) and each in places:
            tensors[name] = places[each]
        elif id(each) in named:
            tensors[name] = named[id(each)]
    kept = [name for name in kept_names(model, state) if name in tensors]
    renamed, problem = _renamed(model, {name: state[name] for name in kept})
    configuration, unwritten = _configuration(model)
    return Description(tuple(units), kept_buffers, tensors, kept, renamed,
                       sum(each.numel() for each in model.parameters()), type(model).__name__, configuration,
                       problem or unwritten)


def write(description: Description, directory: Path) -> None:
    """Beside a store. Raises StorageError."""
    path, text = directory / NAME, description.encode()
    try:
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            replace_text(path, text)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror}); see that there is room in the directory, and that "
                           "it may be written") from error


# Private.
def _renamed(model: nn.Module, kept: Mapping[str, torch.Tensor]) -> tuple[dict[str, str] | None, str]:
    if hasattr(model, "peft_config"):
        return None, "it has adapters of PEFT, which engine.module.save_pretrained(directory) writes"
    try:
        steps = out_of_model(model, infos_of(kept))
    except Exception as error:  # as below: another version of transformers is no error of a training
        return None, f"transformers has not said their names ({type(error).__name__}: {error})".splitlines()[0][:300]
    if problem := problem_of(steps):
        return None, problem
    if any(each.transforms for each in steps):
        return None, ""
    return {step.takes[0]: name for step in steps for name in step.gives}, ""


def _configuration(model: nn.Module) -> tuple[dict[str, str], str]:
    """Whatever a model's own configuration raises is no error of a training that has not asked for its files."""
    try:
        with tempfile.TemporaryDirectory() as directory:
            write_configuration(model, Path(directory), None)
            return dict(_texts(Path(directory))), ""
    except Exception as error:
        return {}, f"its configuration cannot be written ({type(error).__name__}: {error})".splitlines()[0][:300]


def _texts(directory: Path) -> Iterator[tuple[str, str]]:
    for each in sorted(directory.iterdir()):
        if each.is_file():
            yield each.name, each.read_text(encoding="utf-8")


def _dtype(word: str) -> torch.dtype:
    found = getattr(torch, word)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"'{word}' is no type of torch's")
    return found
