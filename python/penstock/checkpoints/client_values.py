"""Values of a program's own as trees of lists and plain values, which checkpoints and commits keep; no code runs when
they are read.

A tree is None, a bool, an int, a float, a text, a tensor, or a list: the name of a kind and what a value of that kind
is made of, trees again. `encode()` refuses by its place what has no kind, and what would not come back equal.
"""
from __future__ import annotations

import argparse
import base64
import collections
import ctypes
import datetime
import decimal
import enum
import fractions
import json
import math
import pathlib
import sys
import types
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any

import torch
from torch import nn

from ..errors import PenstockError, UsageError
from ..weights.bits import same_bits
from ..weights.parameter import Managed, Released

Tree = Any
PLAIN = (type(None), bool, int, float, str)
LONGEST_INT = 1 << 63  # longer ones are texts: Python reads no decimal number of more than 4,300 digits
FACTORIES: dict[str, Any] = {each.__name__: each for each in (list, dict, set, int, float, str, bool)}


class Unreadable(PenstockError):
    """A tree that this version does not know."""


@dataclass(frozen=True)
class Kind:
    """`parts`: what a value is made of, values again; `make`: the value of them."""

    parts: Callable[[Any], Sequence[Any]]
    make: Callable[..., Any]


def encode(value: Any, place: str, compare: bool = True) -> Tree:
    """Raises UsageError, which names the part that is not kept; `place` names the whole. Without `compare` nobody looks
    at what comes back: a value of the same make was compared before."""
    try:
        tree = _encode(value, ())
        if compare and not same(_decode(tree), value):
            raise _NotKept("does not come back equal")
    except _NotKept as problem:
        raise UsageError(f"{place}{problem.where} {problem.reason}") from None
    except Unreadable as problem:
        raise UsageError(f"{place} has {problem}, so that it would not come back") from None
    return tree


def decode(tree: Tree) -> Any:
    """A value of its own at each call, but for tensors. Raises Unreadable."""
    try:
        return _decode(tree)
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as problem:
        raise Unreadable(f"a value that cannot be read: {problem}") from problem


def to_text(value: Any, place: str, compare: bool = True) -> str:
    """As encode(), for what a step commits."""
    return json.dumps(encode(value, place, compare), default=_packed, separators=(",", ":"))


def from_text(text: str) -> Any:
    return decode(json.loads(text, object_hook=_unpacked))


def same(a: Any, b: Any) -> bool:
    """Of one type, and made of the same: NaN is equal to NaN, and -0.0 is not 0.0."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, torch.Tensor):
        return a.device == b.device and a.requires_grad == b.requires_grad and same_bits(_plain(a), _plain(b))
    if type(a) in PLAIN or isinstance(a, (set, frozenset, enum.Enum)):
        return bool(a == b)
    name = _name_of(a)
    if name is None:
        return bool(a == b)
    x, y = _KINDS[name].parts(a), _KINDS[name].parts(b)
    return len(x) == len(y) and all(same(one, other) for one, other in zip(x, y))


# Private.
class _NotKept(Exception):
    def __init__(self, reason: str) -> None:
        self.reason, self.where = reason, ""


def _encode(value: Any, around: tuple[int, ...]) -> Tree:
    kept = type(value) in PLAIN and not (type(value) is int and abs(value) >= LONGEST_INT)
    if kept or _is_kept_tensor(value):
        return value
    if id(value) in around:
        raise _NotKept("holds itself")
    name = _name_of(value)
    if name is None:
        raise _NotKept(f"is a {_type_name(value)}, which is not kept: {_remedy(value)}")
    tree = [name]
    for at, part in enumerate(_KINDS[name].parts(value)):
        try:
            tree.append(_encode(part, (*around, id(value))))
        except _NotKept as problem:
            problem.where = _part_of(value, at) + problem.where
            raise
    return tree


def _decode(tree: Tree) -> Any:
    if not isinstance(tree, list):
        return tree
    kind = _KINDS.get(tree[0])
    if kind is None:
        raise Unreadable(f"a value of the kind '{tree[0]}', which this version of penstock does not know")
    return kind.make(*[_decode(each) for each in tree[1:]])


def _name_of(value: Any) -> str | None:
    """Of its kind; None: there is none."""
    own = _NAMES.get(type(value))
    if own is not None:
        return own if own != "default" or value.default_factory in (None, *FACTORIES.values()) else None
    if isinstance(value, enum.Enum):
        return "enum" if type(value).__members__.get(value.name or "") is value else None
    if type(value) is nn.Parameter and _is_kept_tensor(value.data):
        return "parameter"
    if type(value) is torch.Tensor and not value.is_meta and value.layout == torch.strided and value.is_leaf \
            and not value.is_quantized:
        return "tensor"
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic) and not value.dtype.hasobject and not value.dtype.names:
        return "numpy_value"
    if numpy is not None and type(value) is numpy.ndarray and not value.dtype.hasobject and not value.dtype.names:
        return "numpy_array"
    return None


def _is_kept_tensor(value: Any) -> bool:
    return (type(value) is torch.Tensor and value.layout == torch.strided and value.device.type == "cpu"
            and not value.requires_grad and not value.is_quantized and not value.is_conj() and not value.is_neg())


def _part_of(value: Any, at: int) -> str:
    """As the program writes it."""
    if isinstance(value, (argparse.Namespace, types.SimpleNamespace)):
        return f".{list(vars(value))[at // 2]}"
    if isinstance(value, dict):
        return f"[{list(value)[(at - isinstance(value, collections.defaultdict)) // 2]!r}]"
    return f"[{at}]" if isinstance(value, (list, tuple)) else ""


def _type_name(value: Any) -> str:
    kind = type(value)
    own = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if own else f"{kind.__module__}.{kind.__qualname__}"


def _remedy(value: Any) -> str:
    if isinstance(value, (Managed, Released)):
        return "the store has the model's parameters; leave it out"
    if isinstance(value, torch.Tensor):
        return "give a dense tensor without a graph, as tensor.detach().clone() is"
    if isinstance(value, torch.Generator):
        return "give its get_state()"
    if type(value).__module__.startswith("numpy.random") or type(value).__name__ == "Random":
        return "give its state: getstate() of Python's, get_state() or bit_generator.state of numpy's"
    if is_dataclass(value):
        return "give dataclasses.asdict() of it"
    if isinstance(value, tuple):
        return "give _asdict() of a named tuple, or a plain tuple"
    if isinstance(value, enum.Enum):
        return "give its value"
    if hasattr(value, "state_dict") and not isinstance(value, type):
        return "give its state_dict()"
    if callable(value):
        return "functions and classes are code; give the name"
    if isinstance(value, dict):
        return "give a dict"
    return "give plain values: numbers, texts, lists, tuples, dicts, sets, tensors, arrays, paths, dates"


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg()


def _packed(tensor: Any) -> dict[str, Any]:
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape),
            "bytes": base64.b64encode(bytes_of(tensor)).decode()}


def _unpacked(packed: dict[str, Any]) -> torch.Tensor:
    return tensor_of(base64.b64decode(packed["bytes"])).view(_dtype(packed["dtype"])).view(packed["shape"])


def bytes_of(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().contiguous()
    return ctypes.string_at(flat.data_ptr(), flat.nbytes) if flat.nbytes else b""


def tensor_of(data: bytes) -> torch.Tensor:
    """Of uint8."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise Unreadable(f"a tensor of the type '{name}', which this torch does not have")
    return found


def _moved(device: str, tensor: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    """Where its device is not there, on the CPU."""
    kind = device.partition(":")[0]
    there = kind == "cpu" or (kind == "cuda" and torch.cuda.is_available())
    return (tensor.to(device) if there else tensor).requires_grad_(requires_grad)


def _member(module: str, name: str, member: str) -> Any:
    """Of an Enum that the program has; nothing is imported."""
    found: Any = sys.modules.get(module)
    for each in name.split("."):
        found = getattr(found, each, None)
    if not (isinstance(found, type) and issubclass(found, enum.Enum)) or member not in found.__members__:
        raise Unreadable(f"{module}.{name}.{member}, which nothing finds by this name: define it at the "
                         f"top of a module, and import that one before")
    return found.__members__[member]


def _numpy_array(dtype: str, shape: tuple[int, ...], data: bytes) -> Any:
    import numpy
    return numpy.frombuffer(bytearray(data), dtype=numpy.dtype(dtype)).reshape(shape)


def _time_of(value: Any) -> tuple[Any, ...]:
    return (value.hour, value.minute, value.second, value.microsecond, value.tzinfo, value.fold)


def _filled(factory: str | None, pairs: list[Any]) -> Any:
    return collections.defaultdict(None if factory is None else FACTORIES[factory], pairs)


def _flat(items: Any) -> list[Any]:
    """Keys and values by turns."""
    return [each for pair in items for each in pair]


def _pairs(flat: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2]))


def _attributes(make: Callable[..., Any]) -> Kind:
    return Kind(lambda value: _flat(vars(value).items()), lambda *flat: make(**dict(_pairs(flat))))


def _text(make: Callable[[str], Any]) -> Kind:
    return Kind(lambda value: [str(value)], make)


_BY_TYPE: dict[type, tuple[str, Kind]] = {
    int: ("int", Kind(lambda value: [hex(value)], lambda text: int(text, 16))),
    complex: ("complex", Kind(lambda value: [value.real, value.imag], complex)),
    bytes: ("bytes", Kind(lambda value: [base64.b64encode(value).decode()], base64.b64decode)),
    bytearray: ("bytearray", Kind(lambda value: [bytes(value)], bytearray)),
    list: ("list", Kind(list, lambda *parts: list(parts))),
    tuple: ("tuple", Kind(list, lambda *parts: parts)),
    set: ("set", Kind(list, lambda *parts: set(parts))),
    frozenset: ("frozenset", Kind(list, lambda *parts: frozenset(parts))),
    range: ("range", Kind(lambda value: [value.start, value.stop, value.step], range)),
    slice: ("slice", Kind(lambda value: [value.start, value.stop, value.step], slice)),
    dict: ("dict", Kind(lambda value: _flat(value.items()), lambda *flat: dict(_pairs(flat)))),
    collections.OrderedDict: ("ordered", Kind(lambda value: _flat(value.items()),
                                              lambda *flat: collections.OrderedDict(_pairs(flat)))),
    collections.Counter: ("counter", Kind(lambda value: _flat(value.items()),
                                          lambda *flat: collections.Counter(dict(_pairs(flat))))),
    collections.defaultdict: ("default", Kind(
        lambda value: [getattr(value.default_factory, "__name__", None), *_flat(value.items())],
        lambda factory, *flat: _filled(factory, _pairs(flat)))),
    collections.deque: ("deque", Kind(lambda value: [value.maxlen, *value],
                                      lambda most, *parts: collections.deque(parts, most))),
    argparse.Namespace: ("namespace", _attributes(argparse.Namespace)),
    types.SimpleNamespace: ("simple_namespace", _attributes(types.SimpleNamespace)),
    type(pathlib.Path()): ("path", _text(pathlib.Path)),
    pathlib.PurePosixPath: ("posix_path", _text(pathlib.PurePosixPath)),
    pathlib.PureWindowsPath: ("windows_path", _text(pathlib.PureWindowsPath)),
    uuid.UUID: ("uuid", _text(uuid.UUID)),
    decimal.Decimal: ("decimal", _text(decimal.Decimal)),
    fractions.Fraction: ("fraction", _text(fractions.Fraction)),
    datetime.timezone: ("timezone", Kind(lambda value: [value.utcoffset(None), value.tzname(None)],
                                         lambda offset, name: _timezone(offset, name))),
    datetime.timedelta: ("timedelta", Kind(lambda value: [value.days, value.seconds, value.microseconds],
                                           datetime.timedelta)),
    datetime.date: ("date", Kind(lambda value: [value.year, value.month, value.day], datetime.date)),
    datetime.time: ("time", Kind(_time_of, lambda *parts: datetime.time(*parts[:5], fold=parts[5]))),
    datetime.datetime: ("datetime", Kind(lambda value: (value.year, value.month, value.day, *_time_of(value)),
                                         lambda *parts: datetime.datetime(*parts[:8], fold=parts[8]))),
    torch.Size: ("size", Kind(list, lambda *parts: torch.Size(parts))),
    torch.dtype: ("dtype", Kind(lambda value: [str(value).removeprefix("torch.")], _dtype)),
    torch.device: ("device", _text(torch.device)),
}


def _timezone(offset: datetime.timedelta, name: str) -> datetime.timezone:
    plain = datetime.timezone(offset)
    if plain.tzname(None) == name:
        return datetime.timezone.utc if not offset else plain
    return datetime.timezone(offset, name)


_NAMES = {kind: name for kind, (name, _) in _BY_TYPE.items()}
_KINDS: dict[str, Kind] = {
    **dict(_BY_TYPE.values()),
    "enum": Kind(lambda value: [type(value).__module__, type(value).__qualname__, value.name], _member),
    "tensor": Kind(lambda value: [str(value.device), _plain(value).cpu(), value.requires_grad], _moved),
    "parameter": Kind(lambda value: [value.data, value.requires_grad], nn.Parameter),
    "numpy_value": Kind(lambda value: [value.dtype.str, value.tobytes()],
                        lambda dtype, data: _numpy_array(dtype, (), data)[()]),
    "numpy_array": Kind(lambda value: [value.dtype.str, value.shape, value.tobytes()], _numpy_array),
}
