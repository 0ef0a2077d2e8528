"""The arguments of a unit's call as they were, whatever they lie in: what a recompute is given."""
from __future__ import annotations

import copy
import enum
import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from . import generators
from .shelf import Shelf
from ..weights.parameter import Managed
from ..weights.weight_view import WeightView

DEEPEST = 8
AS_THEY_ARE = frozenset({
    int, float, str, bool, bytes, complex, type(None), torch.dtype, torch.device, torch.Size, torch.layout,
    torch.memory_format, slice, range, types.FunctionType, types.BuiltinFunctionType, types.MethodType, type(Ellipsis),
    functools.partial, types.ModuleType, type, type(NotImplemented)})

TakenOut = Callable[[torch.Tensor], "WeightView | None"]
Brought = Callable[[Any], torch.Tensor]


class Given:
    """A tensor among the arguments. `kept` is it without its graph, or which weight it is, or a copy, or what it was
    laid aside as."""

    __slots__ = ("kept", "version", "requires_grad", "is_leaf", "origin", "own")

    def __init__(self, tensor: torch.Tensor, kept: Any) -> None:
        self.kept, self.requires_grad, self.is_leaf = kept, tensor.requires_grad, tensor.is_leaf
        self.version = 0 if tensor.is_inference() else tensor._version
        self.origin = weakref.ref(tensor)
        self.own = False  # a copy: nobody else changes it

    def copy(self) -> None:
        """The program may change in place what is given."""
        self.kept, self.own = self.kept.clone(), True

    def lay(self, shelf: Shelf) -> None:
        """Aside, where the shelf takes it."""
        origin = self.origin()
        laid = shelf.pack(self.kept if origin is None else origin, self.kept)
        self.own, self.kept = laid is not self.kept, laid

    @property
    def is_weight(self) -> bool:
        return type(self.kept) is WeightView


class Arguments:
    """Of one call. A tensor that is given twice is one tensor in the recompute, too: attention asks `query is key`.
    `copies`: tensors are copied at once, because the call changes them in place. `why_not`: what cannot be put back."""

    def __init__(self, args: Any, kwargs: Any, taken_out: TakenOut, copies: bool = False) -> None:
        self.why_not: str | None = None
        self.given: dict[int, Given] = {}
        self.generators: list[tuple[Any, generators.State]] = []
        self._taken_out, self._copies = taken_out, copies
        self._args = self._freeze(args, 0)
        self._kwargs = self._freeze(kwargs, 0) if kwargs else kwargs
        del self._taken_out

    def moved(self) -> bool:
        """Whether one was changed in place since."""
        for each in self.given.values():
            if not each.own and type(each.kept) is torch.Tensor and each.kept._version != each.version:
                return True
        return False

    def thaw(self, brought: Brought) -> tuple[Any, Any]:
        """As they were, in containers of their own."""
        there: dict[int, torch.Tensor] = {}

        def again(each: Given) -> torch.Tensor:
            if id(each) not in there:
                kept = each.kept if type(each.kept) is torch.Tensor else brought(each.kept)
                tensor = kept.detach().requires_grad_(each.requires_grad)
                if each.own and type(each.kept) is torch.Tensor:  # the recompute after this one needs it, too
                    with torch.set_grad_enabled(not each.is_leaf):  # no leaf may be changed in place
                        tensor = tensor.clone().requires_grad_(each.requires_grad)
                there[id(each)] = tensor
            return there[id(each)]
        return _thaw(self._args, again), _thaw(self._kwargs, again)

    # Private.
    def _freeze(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in AS_THEY_ARE or issubclass(kind, Managed):
            return value
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if kind is tuple or kind is list:
            return kind([self._freeze(each, depth + 1) for each in value])
        if kind is dict:
            return {key: self._freeze(each, depth + 1) for key, each in value.items()}
        return self._other(value, depth)

    def _tensor(self, tensor: torch.Tensor) -> Given:
        given = self.given.get(id(tensor))
        if given is None:
            kept: Any = self._taken_out(tensor)
            if kept is None:
                kept = tensor.detach()
            given = self.given[id(tensor)] = Given(tensor, kept)
            if tensor.is_inference():
                self.why_not = "it is given a tensor of inference mode, whose changes nobody counts"
            elif self._copies and not given.is_weight:
                given.copy()
        return given

    def _other(self, value: Any, depth: int) -> Any:
        """A dataclass, a namespace, a cache, a mapping of the program's: a copy whose contents are frozen."""
        if isinstance(value, (nn.Module, type, enum.Enum)):
            return value
        state = generators.state_of(value)
        if state is not None:
            self.generators.append((value, state))
            return value
        try:
            if depth > DEEPEST:
                raise TypeError("too deep")
            return _Copied(value, lambda each: self._freeze(each, depth + 1))
        except Exception:
            self.why_not = f"it is given a {type(value).__name__}, which cannot be put back as it was"
            return value


class _Copied:
    """An object whose attributes, and elements where it is a list or a mapping, are frozen."""

    __slots__ = ("like", "attributes", "elements")

    def __init__(self, value: Any, freeze: Callable[[Any], Any]) -> None:
        self.like = copy.copy(value)
        self.attributes: dict[str, Any] | None = None
        self.elements: Any = None
        if isinstance(value, tuple):  # a named one
            self.elements = tuple(freeze(each) for each in value)
        elif isinstance(value, list):
            self.elements = [freeze(each) for each in value]
        elif isinstance(value, dict):
            self.elements = {key: freeze(each) for key, each in value.items()}
        elif isinstance(value, (set, frozenset)):
            self.elements = set(value)
        if hasattr(value, "__dict__"):
            self.attributes = {key: freeze(each) for key, each in vars(value).items()}
        elif hasattr(value, "__slots__"):
            self.attributes = {key: freeze(getattr(value, key)) for key in _slots(value) if hasattr(value, key)}
        elif self.elements is None and type(value).__module__ not in ("numpy", "datetime", "pathlib"):
            raise TypeError(f"a {type(value).__name__} has no attributes")

    def thaw(self, again: Callable[[Given], torch.Tensor]) -> Any:
        if isinstance(self.like, tuple):
            return type(self.like)(*[_thaw(each, again) for each in self.elements])
        other = copy.copy(self.like)
        if isinstance(other, list):
            other[:] = [_thaw(each, again) for each in self.elements]
        elif isinstance(other, dict):
            for key, each in self.elements.items():
                dict.__setitem__(other, key, _thaw(each, again))
        for key, each in (self.attributes or {}).items():
            object.__setattr__(other, key, _thaw(each, again))
        return other


def _slots(value: Any) -> list[str]:
    return [key for kind in type(value).__mro__ for key in getattr(kind, "__slots__", ()) if key != "__weakref__"]


def _thaw(value: Any, again: Callable[[Given], torch.Tensor]) -> Any:
    kind = type(value)
    if kind is Given:
        return again(value)
    if kind is tuple or kind is list:
        return kind([_thaw(each, again) for each in value])
    if kind is dict:
        return {key: _thaw(each, again) for key, each in value.items()}
    return value.thaw(again) if kind is _Copied else value
