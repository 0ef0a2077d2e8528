"""Weights for a model, out of a directory, one tensor at a time: what penstock.initialize(weights=...) reads."""
from __future__ import annotations

import os
import re
from collections.abc import Iterator

import torch
from torch import nn

from ..errors import ModelError, WeightsError, some
from ..weights.bits import same_bits
from .conversions import Step, into_model
from .rebuild import rebuilt_buffers
from .safetensors_file import TensorInfo
from .state_names import infos_of, names_by_tensor, state_of
from .weights_dir import WeightsDir

SHOWN = 50  # names in an error


class Incoming:
    """Directory and model are found to fit, or all that does not is said at once, when it is made; the model is as it
    was until its buffers, and then its parameters, are made real. Parameters' values are read when they are asked for,
    buffers' at once."""

    def __init__(self, model: nn.Module, directory: str | os.PathLike[str]) -> None:
        self._model, self._dir = model, WeightsDir(directory)
        self._state = state_of(model)
        own = infos_of(self._state)
        steps, self._used = into_model(model, {name: self._dir.info(name) for name in self._dir.names}, own)
        self._step = {name: step for step in steps for name in step.gives if not step.problem}
        self._last: tuple[Step, dict[str, torch.Tensor]] | None = None  # a step may give several
        problems = [*self._cannot_be_made(steps), *self._missing(), *self._extra(), *self._of_another_shape(own)]
        if not problems:
            problems = list(self._tied_but_different())
        if problems:
            raise WeightsError(
                f"weights: {self._dir.path} does not fit {type(model).__name__}: {'; '.join(problems)}. Name the "
                "directory of this model and make the model from its config.json, or load it by from_pretrained(), "
                "which draws what is missing and leaves out what is too many")
        self._names = {id(self._state[names[0]]): names for names in names_by_tensor(self._state)}
        refuse_other_meta_tensors(model)
        self._rebuilt = rebuilt_buffers(model)
        self._buffers = [(each, self.value(each)) for each in self._tensors() if not isinstance(each, nn.Parameter)
                         and any(name in self._step for name in self._names[id(each)])]

    def has(self, tensor: torch.Tensor) -> bool:
        """The directory has its values; what it has not is the model's own."""
        return any(each in self._step for each in self._names[id(tensor)])

    def value(self, tensor: torch.Tensor) -> torch.Tensor:
        """In ordinary memory, of the model's type; where the directory has none, its own."""
        name = next((each for each in self._names[id(tensor)] if each in self._step), None)
        if name is None:
            return tensor.detach()
        return self._read(name).to(tensor.dtype)

    def make_buffers_real(self) -> None:
        """They have memory, and their values."""
        for buffer, value in (*self._buffers, *self._rebuilt):
            if buffer.is_meta:
                exchange(buffer, value)
            else:
                buffer.copy_(value)

    def make_parameters_real(self) -> None:
        """What was on meta has memory, a single NaN each. Whoever holds a parameter holds it still."""
        for each in list(self._tensors()):
            if isinstance(each, nn.Parameter) and each.is_meta:
                make_nan(each)
        if self._used is not None:
            self._model._weight_conversions = self._used  # type: ignore[assignment]

    # Private.
    def _tensors(self) -> Iterator[torch.Tensor]:
        return (self._state[names[0]] for names in names_by_tensor(self._state))

    def _read(self, name: str) -> torch.Tensor:
        step = self._step[name]
        if self._last is None or self._last[0] is not step:
            self._last = None  # not two at once
            self._last = step, step.make([self._dir.read(each) for each in step.takes])
        return self._last[1][name]

    def _cannot_be_made(self, steps: list[Step]) -> Iterator[str]:
        for step in steps:
            if step.problem:
                yield f"{some(step.takes)} cannot be put together ({step.problem})"

    def _missing(self) -> Iterator[str]:
        gone = [names for names in names_by_tensor(self._state) if not any(name in self._step for name in names)]
        made = [names for names in gone if any(self._ignored(name, "missing") for name in names)]
        missing = [names[0] for names in gone if names not in made]
        if missing:
            yield f"missing are {some(missing, SHOWN)}"
        on_meta = [names[0] for names in made if self._state[names[0]].is_meta]
        if on_meta:
            yield (f"{some(on_meta, SHOWN)} are in no file because the model makes them itself, and are on 'meta': "
                   "make the model within penstock.zero.Init()")

    def _extra(self) -> Iterator[str]:
        made_by_the_model = {name for name, _ in self._model.named_buffers(remove_duplicate=False)}
        extra = [name for name in self._step if name not in self._state and name not in made_by_the_model
                 and not self._ignored(name, "unexpected")]
        if extra:
            yield f"the model has no {some(extra, SHOWN)}"

    def _of_another_shape(self, own: dict[str, TensorInfo]) -> Iterator[str]:
        other = [f"'{name}' is {list(step.gives[name].shape)}, the model's {list(own[name].shape)}"
                 for name, step in self._step.items() if name in own and step.gives[name].shape != own[name].shape]
        if other:
            more = f" and {len(other) - SHOWN} more" if len(other) > SHOWN else ""
            yield f"of another shape are: {', '.join(other[:SHOWN])}{more}"

    def _tied_but_different(self) -> Iterator[str]:
        for names in names_by_tensor(self._state):
            given = [name for name in names if name in self._step]
            for other in given[1:]:
                if not same_bits(self._read(given[0]), self._read(other)):
                    yield (f"'{given[0]}' and '{other}' are one parameter of the model (tied), and differ here: make "
                           "the model with tie_word_embeddings=False")

    def _ignored(self, name: str, when: str) -> bool:
        """What transformers says may be missing, or may be too many (of older versions of the model)."""
        patterns = list(getattr(self._model, f"_keys_to_ignore_on_load_{when}", None) or ())
        if when == "unexpected":
            buffers = {each.rpartition(".")[2] for each, _ in self._model.named_buffers()}
            patterns += [rf"(^|\.){each}$" for each in ("inv_freq", "position_ids") if each in buffers]
        return any(re.search(pattern, name) for pattern in patterns)


def refuse_other_meta_tensors(model: nn.Module) -> None:
    found = [f"{prefix}.{key}" if prefix else key for prefix, module in model.named_modules()
             for key, each in vars(module).items() if isinstance(each, torch.Tensor) and each.is_meta]
    if found:
        raise ModelError(f"{some(found)} are tensors on 'meta' that are neither parameters nor buffers: no file has "
                         "their values; make the model within penstock.zero.Init(empty=True), which leaves "
                         "them as they are")


def make_nan(parameter: nn.Parameter) -> None:
    nan = torch.full((), float("nan"), dtype=parameter.dtype).expand(parameter.shape)
    exchange(parameter, nn.Parameter(nan, requires_grad=parameter.requires_grad))


def exchange(there: torch.Tensor, new: torch.Tensor) -> None:
    """The object stays, with its attributes; what it is becomes that of the other."""
    attributes = dict(there.__dict__)
    torch.utils.swap_tensors(there, new)
    there.__dict__.update(attributes)
