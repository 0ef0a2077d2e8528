"""What a unit's forward may read and change beside its arguments: what its modules hold. A recompute finds it as the
forward did, and leaves it as the program has it."""
from __future__ import annotations

import copy
import itertools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from . import generators

CONTAINERS = (list, dict, set)
OWN = frozenset({  # what no forward changes
    "_parameters", "_modules", "_buffers", "_non_persistent_buffers_set", "_compiled_call_impl", "_state_dict_hooks",
    "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"})
NOT_OF_THE_PROGRAM = ("torch", "builtins", "functools", "types", "typing")


class Surroundings:
    """Attributes, buffers and containers of a unit's modules, as they are now. One object serves all calls between which
    no attribute was set. `copied`: tensors that calls were seen to change in place; they are copied with each call."""

    def __init__(self, module: nn.Module, copied: frozenset[int] = frozenset()) -> None:
        self.modules = list(module.modules())
        self.attributes = [dict(each.__dict__) for each in self.modules]
        self.buffers = [dict(each._buffers) for each in self.modules]
        self._find()
        self.copied = copied | {id(buffer) for each in self.modules if isinstance(each, nn.modules.batchnorm._NormBase)
                                for buffer in each._buffers.values()}  # its kernel counts no versions
        self._dicts = [each.__dict__ for each in self.modules] + [each._buffers for each in self.modules if each._buffers]
        self._values = [value for each in self._dicts for value in each.values()]

    def are_same(self) -> bool:
        """By identity: 20 ns a value."""
        return sum(map(len, self._dicts)) == len(self._values) and all(
            map(operator.is_, itertools.chain.from_iterable(map(dict.values, self._dicts)), self._values))

    # Private.
    def _find(self) -> None:
        """What is more than its identity."""
        self.containers: list[tuple[int, str, Any]] = []  # the module's number, the attribute's name
        self.objects: list[Any] = []  # of the program's: a counter, a namespace
        self.generators: list[Any] = []
        self.tensors = [each for named in self.buffers for each in named.values() if each is not None]
        for at, attributes in enumerate(self.attributes):
            for key, value in attributes.items():
                if key not in OWN:
                    self._sort(at, key, value)
        self.objects = list({id(each): each for each in self.objects}.values())

    def _sort(self, at: int, key: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            if not isinstance(value, nn.Parameter):
                self.tensors.append(value)
        elif isinstance(value, CONTAINERS):
            if value or not key.startswith("_"):  # those of hooks are mostly empty
                self.containers.append((at, key, value))
        elif generators.state_of(value) is not None:
            self.generators.append(value)
        elif (type(value).__dictoffset__ and not isinstance(value, (nn.Module, type)) and not callable(value)
              and not type(value).__module__.startswith(NOT_OF_THE_PROGRAM)):
            self.objects.append(value)


class AsItWas:
    """A unit's surroundings before one call of it."""

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self._containers = [copy.copy(value) for *_, value in around.containers]
        self._objects = [dict(vars(each)) for each in around.objects]
        self._generators = [generators.state_of(each) for each in around.generators]
        self._versions = [_version(each) for each in around.tensors]
        self._copies = [each.detach().clone() if id(each) in around.copied else None for each in around.tensors]

    def moved(self) -> list[torch.Tensor]:
        """Those that were changed in place since and of which there is no copy."""
        return [each for each, was, kept in zip(self.around.tensors, self._versions, self._copies)
                if kept is None and _version(each) != was]

    def put(self) -> Callable[[], None]:
        """Gives what brings back what is there now."""
        around, now = self.around, _Now(self.around)
        for module, attributes, buffers in zip(around.modules, around.attributes, around.buffers):
            _set(module.__dict__, attributes)
            _set(module._buffers, buffers)
        for (at, key, value), content in zip(around.containers, self._containers):
            around.modules[at].__dict__[key] = copy.copy(content)
        for each, attributes in zip(around.objects, self._objects):
            _set(vars(each), attributes)
        for each, state in zip(around.generators, self._generators):
            generators.set_state(each, state)
        _write(around.tensors, self._copies)
        return now.put


class _Now:
    """What the program has, while a recompute runs."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._attributes = [dict(each.__dict__) for each in around.modules]
        self._buffers = [dict(each._buffers) for each in around.modules]
        self._objects = [dict(vars(each)) for each in around.objects]
        self._generators = [generators.state_of(each) for each in around.generators]
        self._copies = [each.detach().clone() if id(each) in around.copied else None for each in around.tensors]

    def put(self) -> None:
        around = self._around
        _write(around.tensors, self._copies)
        for module, attributes, buffers in zip(around.modules, self._attributes, self._buffers):
            _set(module.__dict__, attributes)
            _set(module._buffers, buffers)
        for each, values in zip(around.objects, self._objects):
            _set(vars(each), values)
        for each, state in zip(around.generators, self._generators):
            generators.set_state(each, state)


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _set(there: dict[str, Any], values: dict[str, Any]) -> None:
    there.clear()
    there.update(values)


def _write(tensors: list[torch.Tensor], contents: list[torch.Tensor | None]) -> None:
    for each, content in zip(tensors, contents):
        if content is not None:
            each.data.copy_(content)  # no version moves: graphs that saved it are no concern of a recompute
