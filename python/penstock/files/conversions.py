"""From the tensors of files to those of a model and back. With transformers 5 they are not always the same: names
differ, and the experts of a layer, one by one in files, are one tensor in the model. Alone here imports transformers.

Nothing is kept in memory: each Step says which tensors it takes and gives, and makes them when asked.
"""
from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from .safetensors_file import TensorInfo


@dataclass
class Step:
    """`takes` of one side make `gives` of the other. Without a transform it is one tensor under another name."""

    takes: list[str]
    gives: dict[str, TensorInfo] = field(default_factory=dict)
    problem: str = ""  # why they do not make anything
    _transform: Any = None
    _patterns: list[str] = field(default_factory=list)
    _first: str = ""
    _rename: Callable[[str], str] = str
    _model: nn.Module | None = None

    @property
    def transforms(self) -> bool:
        """More than a name becomes another."""
        return self._transform is not None

    def make(self, values: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        if self._transform is None:
            return dict.fromkeys(self.gives, values[0])
        transform = copy.deepcopy(self._transform)
        for name, pattern, value in zip(self.takes, self._patterns, values):
            transform.add_tensor(self._first, name, pattern, value)
        made = transform.convert(self._first, model=self._model, config=self._model.config)  # type: ignore[union-attr]
        made = made[0] if isinstance(made, tuple) else made  # 5.0 gives what went wrong, too
        return {self._rename(name): each[0] if isinstance(each, list) else each for name, each in made.items()}

    def find_what_it_gives(self, infos: Mapping[str, TensorInfo]) -> None:
        """By making it of tensors without memory."""
        try:
            made = self.make([torch.empty(infos[name].shape, dtype=infos[name].dtype, device="meta")
                              for name in self.takes])
            self.gives = {name: TensorInfo(tuple(each.shape), each.dtype) for name, each in made.items()}
        except Exception as error:  # whatever transformers' operations raise at shapes that they do not expect
            self.problem = f"{type(error).__name__}: {error}".splitlines()[0][:200]


def into_model(model: nn.Module, files: Mapping[str, TensorInfo],
               own: Mapping[str, TensorInfo]) -> tuple[list[Step], list[Any] | None]:
    """Also the conversions that were used, for the attribute of the model by which transformers saves it the same way.
    A tensor that the model has no place for is given under its own name."""
    conversion = _loading(model)
    if conversion is None:
        return [Step([name], {name: info}) for name, info in files.items()], None
    library, listed = conversion
    renamings, converters = _apart(library, listed)
    steps: dict[str, Step] = {}
    for name in sorted(files, key=library.dot_natural_key):
        to, pattern = library.rename_source_key(name, renamings, converters, model.base_model_prefix, own)
        if to not in own and name in own:
            to, pattern = library.rename_source_key(name, [], [], model.base_model_prefix, own)
        if to in own and pattern is not None:
            step = steps.setdefault(to, _converting(model, converters, pattern, to))
            step.takes.append(name)
            step._patterns.append(pattern)
        else:
            to = to if to in own and to not in steps else name
            steps[to] = Step([name], {to: files[name]})
    return _complete(steps, files), [each for each in listed if not hasattr(each, "was_used") or each.was_used()]


def out_of_model(model: nn.Module, own: Mapping[str, TensorInfo]) -> list[Step]:
    """As transformers' save_pretrained does it."""
    conversion = _saving(model)
    if conversion is None:
        return [Step([name], {name: info}) for name, info in own.items()]
    library, listed = conversion
    renamings, converters = _apart(library, [each.reverse_transform() for each in reversed(listed)])
    steps: dict[str, Step] = {}
    for name in sorted(own, key=library.dot_natural_key):
        to, pattern = _converted(name, converters)
        if pattern is not None:
            step = steps.setdefault(to, _converting(model, converters, pattern, to))
            step.takes.append(name)
            step._patterns.append(pattern)
            step._rename = lambda each: _renamed(each, renamings)
        else:
            to = _renamed(name, renamings)
            steps[to] = Step([name], {to: own[name]})
    return _complete(steps, own)


def problem_of(steps: list[Step]) -> str:
    """Of what out_of_model() gave, in words; empty where all of them make something."""
    problems = [f"{each.takes[0]}: {each.problem}" for each in steps if each.problem]
    return f"transformers' names for files cannot be given to {'; '.join(problems)}" if problems else ""


def _complete(steps: dict[str, Step], infos: Mapping[str, TensorInfo]) -> list[Step]:
    for each in steps.values():
        if not each.gives:
            each.find_what_it_gives(infos)
    return list(steps.values())


def _converting(model: nn.Module, converters: list[Any], pattern: str, first: str) -> Step:
    transform = next(each for each in reversed(converters) if pattern in each.source_patterns)
    return Step([], _transform=transform, _first=first, _model=model)


def _converted(name: str, converters: list[Any]) -> tuple[str, str | None]:
    """By the first that knows it, with the pattern by which it does. (The first versions of transformers 5 have no call
    for it.)"""
    for each in converters:
        to, pattern = each.rename_source_key(name)
        if pattern is not None:
            return to, pattern
    return name, None


def _renamed(name: str, renamings: list[Any]) -> str:
    for each in renamings:
        name, _ = each.rename_source_key(name)
    return name


def _apart(library: Any, listed: list[Any]) -> tuple[list[Any], list[Any]]:
    return ([each for each in listed if isinstance(each, library.WeightRenaming)],
            [each for each in listed if isinstance(each, library.WeightConverter)])


def _loading(model: nn.Module) -> tuple[Any, list[Any]] | None:
    library = _library(model)
    return None if library is None else (library[0], list(library[1](model)))


def _saving(model: nn.Module) -> tuple[Any, list[Any]] | None:
    library = _library(model)
    if library is None:
        return None
    listed = getattr(model, "_weight_conversions", None)
    if listed is None:
        without = getattr(library[0], "PrefixChange", ())  # not in the first versions
        listed = [each for each in library[1](model, add_legacy=False) if not isinstance(each, without)]
    return (library[0], list(listed)) if listed else None


def _library(model: nn.Module) -> tuple[Any, Callable[..., Any]] | None:
    """transformers 5, for its own models; before it, and for others, files and models have the same names."""
    if not hasattr(model, "base_model_prefix") or not any(
            each.__module__.startswith("transformers.") for each in type(model).__mro__):
        return None
    try:
        from transformers import core_model_loading
        from transformers.conversion_mapping import get_model_conversion_mapping
    except ImportError:
        return None
    return core_model_loading, get_model_conversion_mapping

