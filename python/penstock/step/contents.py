"""What values of a program hold beside their identity, as it is at one moment, and put back as it was."""
from __future__ import annotations

import array
import copy
import functools
import itertools
import types
from collections import deque
from collections.abc import Iterable, Iterator, Set
from typing import Any

import torch
from torch import nn

from . import generators
from ..weights.bits import hash_of, same_bits

CONTAINERS = (list, dict, set, deque)
NOT_OF_THE_PROGRAM = frozenset(("torch", "builtins", "functools", "transformers", "typing", "weakref", "threading", "_thread"))
FUNCTIONS = (types.FunctionType, types.BuiltinMethodType)
DEEPEST, MOST = 8, 1000  # of what containers hold


class Contents:
    """What is reached from some values, at one moment: containers and objects with what they hold, generators with their
    states, tensors with their versions and, of those in `copied` or with `copies` of all, their values; with `bits` the
    others' hashes."""

    def __init__(self, tensors: Iterable[torch.Tensor], roots: Iterable[Any], copied: Set[int], copies: bool = False,
                 bits: bool = False) -> None:
        """`copied`: ids."""
        self._copied, self._copies, self._bits = copied, copies, bits
        self._contents: list[tuple[Any, Any]] = []  # a container or the attributes of an object, and a copy
        self._generators: list[tuple[Any, generators.State]] = []
        self._tensors: list[tuple[torch.Tensor, int, Any, torch.Tensor | None]] = []  # version, hash, values
        self._seen: set[int] = set()
        for tensor in tensors:
            self._take_tensor(tensor)
        for root in roots:
            self._take(root, 0)
        del self._seen

    def moved(self) -> list[torch.Tensor]:
        """Tensors that were changed in place since and of which there is no copy."""
        return [each for each, version, number, values in self._tensors if values is None and (
            _version(each) != version or number is not None and _hash(each) != number)]

    def put(self) -> None:
        for there, content in self._contents:
            refill(there, content)
        for generator, state in self._generators:
            generators.set_state(generator, state)
        for tensor, version, _, values in self._tensors:
            if values is not None:
                if not _is_same(tensor, values):
                    tensor.data.copy_(values)  # counts no version
                _set_version(tensor, version)  # graphs that saved it, before or now, find it as torch's would

    # Private.
    def _take(self, value: Any, depth: int) -> None:
        if isinstance(value, torch.Tensor):
            if not isinstance(value, nn.Parameter):
                self._take_tensor(value)
            return
        if isinstance(value, types.MethodType):
            return self._take(value.__self__, depth)
        if not is_state(value) or depth > DEEPEST or id(value) in self._seen or len(self._seen) > MOST:
            return
        self._seen.add(id(value))
        state = generators.state_of(value)
        if state is not None:
            self._generators.append((value, state))
            return
        for there in _parts_of(value):
            self._contents.append((there, _content_of(there)))
        for each in itertools.islice(_elements_of(value), MOST):
            self._take(each, depth + 1)

    def _take_tensor(self, tensor: torch.Tensor) -> None:
        if id(tensor) not in self._seen:
            self._seen.add(id(tensor))
            values = _copy_of(tensor) if self._copies or id(tensor) in self._copied else None
            number = _hash(tensor) if self._bits and values is None else None
            self._tensors.append((tensor, _version(tensor), number, values))


def is_state(value: Any) -> bool:
    """More than its identity may change."""
    kind = type(value)
    if kind in (int, float, str, bool, type(None), torch.dtype):
        return False
    if isinstance(value, (*CONTAINERS, tuple)):
        return bool(value) or not isinstance(value, tuple)
    if isinstance(value, torch.Tensor):
        return not isinstance(value, nn.Parameter)
    if isinstance(value, (nn.Module, type)):
        return False
    if isinstance(value, types.MethodType):
        return is_state(value.__self__)
    if isinstance(value, functools.partial):
        return any(map(is_state, _bound_by(value)))
    if isinstance(value, FUNCTIONS):
        return False  # who watches calls from a closure sees each that is made
    if generators.is_one(value) or kind is bytearray or _is_array(value):
        return True
    return bool(kind.__dictoffset__ or _slots(kind)) and not _is_foreign(kind.__module__)


def _is_foreign(module: str | None) -> bool:
    return (module or "").partition(".")[0] in NOT_OF_THE_PROGRAM


def _is_array(value: Any) -> bool:
    """Of numpy's, or Python's."""
    return type(value) is array.array or type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"


def _bound_by(value: functools.partial[Any]) -> tuple[Any, ...]:
    return value.func, *value.args, *value.keywords.values()


def _slots(kind: type[Any]) -> tuple[str, ...]:
    if kind not in _SLOTS:
        named = (getattr(each, "__slots__", ()) for each in kind.__mro__)
        _SLOTS[kind] = tuple(name for each in named for name in ((each,) if isinstance(each, str) else each)
                             if name not in ("__dict__", "__weakref__"))
    return _SLOTS[kind]


_SLOTS: dict[type[Any], tuple[str, ...]] = {}


class _Slots:
    """Of an object, as one thing."""

    def __init__(self, of: Any) -> None:
        self.of = of


def _parts_of(value: Any) -> Iterator[Any]:
    """What of it can be put back."""
    if isinstance(value, (*CONTAINERS, bytearray)) or _is_array(value):
        yield value
    elif not isinstance(value, (tuple, functools.partial)):
        if hasattr(value, "__dict__"):
            yield vars(value)
        if _slots(type(value)):
            yield _Slots(value)


def _elements_of(value: Any) -> Iterator[Any]:
    """What is reached from it."""
    if isinstance(value, dict):
        yield from list(value.values())
    elif isinstance(value, functools.partial):
        yield from _bound_by(value)
    elif isinstance(value, (*CONTAINERS, tuple)):
        yield from list(value)
    elif not isinstance(value, bytearray) and not _is_array(value):
        yield from list(getattr(value, "__dict__", {}).values())
        yield from [getattr(value, name) for name in _slots(type(value)) if hasattr(value, name)]


def _content_of(there: Any) -> Any:
    if isinstance(there, _Slots):
        return {name: getattr(there.of, name) for name in _slots(type(there.of)) if hasattr(there.of, name)}
    return copy.copy(there)


def refill(there: Any, content: Any) -> None:
    """In place: others may have the same one."""
    if isinstance(there, (list, bytearray)):
        there[:] = content
    elif isinstance(there, _Slots):
        for name, value in content.items():
            object.__setattr__(there.of, name, value)
    elif isinstance(there, array.array):
        there[:] = content
    elif _is_array(there):
        there[...] = content
    else:
        there.clear()
        (there.extend if isinstance(there, deque) else there.update)(content)


def _copy_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """None of one that cannot be put back."""
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_inference():
        return None
    try:
        return tensor.detach().clone()
    except RuntimeError:  # memory that is no more to be read: a view of a weight
        return None


def _is_same(tensor: torch.Tensor, values: torch.Tensor) -> bool:
    try:
        return same_bits(tensor, values)
    except RuntimeError:  # the same
        return True


def _hash(tensor: torch.Tensor) -> Any:
    try:
        return None if tensor.layout is not torch.strided or tensor.is_meta else hash_of(tensor)
    except (RuntimeError, KeyError):  # memory that is no more to be read, elements of no size that is compared
        return None


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _set_version(tensor: torch.Tensor, version: int) -> None:
    if _version(tensor) == version:
        return
    try:
        torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))
    except TypeError:  # torch 2.4 takes one
        torch._C._autograd._unsafe_set_version_counter(tensor, version)  # type: ignore[arg-type]
