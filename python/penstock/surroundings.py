"""What a unit's forward may read and change besides its arguments: buffers, random states, caches it is given.

A recompute must find them as the forward did, and leave no trace of its own.
"""
from __future__ import annotations

import copy
import random
import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .bits import same_bits
from .errors import ModelError


@dataclass
class SavedBuffer:
    """`before` is None when the forward did not change the buffer; `version` is that after the forward."""

    module: nn.Module
    name: str
    tensor: torch.Tensor
    before: torch.Tensor | None
    version: int


Now = tuple[SavedBuffer, torch.Tensor | None, torch.Tensor | None]  # the present buffer, and its contents


class Buffers:
    """The buffers of a unit as they were before one call of it."""

    def __init__(self, module: nn.Module) -> None:
        self._saved = [SavedBuffer(each, name, tensor, tensor.clone(), tensor._version)
                       for each in module.modules() for name, tensor in each._buffers.items() if tensor is not None]

    def called(self) -> None:
        """The call has ended: what it left alone needs no copy. BatchNorm counts no versions: bits are compared."""
        for each in self._saved:
            each.version = each.tensor._version
            if each.before is not None and same_bits(each.before, each.tensor):
                each.before = None

    def restore(self) -> list[Now]:
        """As before the call; gives what `undo` takes to bring back what is there now."""
        now = []
        for each in self._saved:
            present = each.module._buffers[each.name]
            if each.before is None and each.tensor._version != each.version:
                raise ModelError(f"buffer '{each.name}' of {type(each.module).__name__} was changed between this "
                                 "unit's forward and its backward, by somebody else: its recompute would differ")
            now.append((each, present, None if each.before is None else each.tensor.clone()))
            each.module._buffers[each.name] = each.tensor
            if each.before is not None:
                each.tensor.data.copy_(each.before)
        return now

    @staticmethod
    def undo(now: list[Now]) -> None:
        for each, present, content in now:
            if content is not None:
                each.tensor.data.copy_(content)
            each.module._buffers[each.name] = present


class RandomStates:
    """Python's generator and numpy's global one; torch's own checkpoint keeps torch's."""

    def __init__(self) -> None:
        self._python = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy = numpy.random.get_state() if numpy is not None else None

    def restore(self) -> None:
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)


def as_it_was(value: Any) -> Any:
    """A copy of a key-value cache that a unit may write into; other values as they are.

    Caches are known by their classes' names, so that transformers need not be installed. Their tensors are replaced,
    not overwritten, as long as a graph is recorded; so a copy of the lists that hold them is enough."""
    if not _is_cache(value):
        return value
    other = copy.copy(value)
    for key, each in vars(value).items():
        vars(other)[key] = _copied(each)
    return other


def _is_cache(value: Any) -> bool:
    return any("Cache" in each.__name__ for each in type(value).__mro__) and hasattr(value, "__dict__")


def _copied(value: Any) -> Any:
    if isinstance(value, list):
        return [_copied(each) for each in value]
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return as_it_was(value)
