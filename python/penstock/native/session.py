"""The session's C interface (zero_infinity/capi/penstock_session.h) as Python calls: statuses are exceptions."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from . import structs as c
from ..errors import EndedError, FitError, NonFiniteError, PeerError, PenstockError, StorageError, UsageError
from ..store import STORE_KEYS
from .library import library, library_of

TYPES = {torch.bfloat16: c.BF16, torch.float16: c.FP16, torch.float32: c.FP32, torch.uint8: c.U8}
DTYPES = {number: dtype for dtype, number in TYPES.items()}
KINDS: dict[int, type[PenstockError]] = {
    c.USAGE: UsageError, c.DOES_NOT_FIT: FitError, c.STORAGE: StorageError, c.DAMAGED: StorageError,
    c.POISONED: EndedError, c.NON_FINITE: NonFiniteError, c.PEER_LOST: PeerError,
    c.BUSY: UsageError}


HOST = torch.device("cpu")


class NotFound(PenstockError):
    """What is asked for is not there, which is no error of the caller's."""


def functions() -> dict[str, Callable[..., None]]:
    """Of "penstock_session_"."""
    return functions_of("penstock_session_", c.FUNCTIONS)


def reading() -> dict[str, Callable[..., None]]:
    """Of "penstock_reader_"."""
    return functions_of("penstock_reader_", c.READER_FUNCTIONS)


def note(pointer: ctypes.c_void_p, index: int) -> str | None:
    """A line for the log; None past the last."""
    told = library().penstock_session_note
    told.argtypes, told.restype = (ctypes.c_void_p, ctypes.c_size_t), ctypes.c_char_p
    line: bytes | None = told(pointer, index)
    return None if line is None else line.decode(errors="replace")


def functions_of(prefix: str, named: Mapping[str, tuple[Any, ...]]) -> dict[str, Callable[..., None]]:
    """By their names without the prefix, and their arguments but for the error. Each raises what its status says."""
    loaded = library_of("penstock_session.h", "penstock_session_abi_version", c.ABI)
    return {name: _checked(getattr(loaded, prefix + name), arguments) for name, arguments in named.items()}


def _checked(function: Any, arguments: tuple[Any, ...]) -> Callable[..., None]:
    function.argtypes = (*arguments, ctypes.POINTER(c.Error))
    function.restype = ctypes.c_int
    error = c.Error()  # one caller at a time
    place = ctypes.byref(error)

    def call(*given: Any) -> None:
        status = function(*given, place)
        if status != c.OK:
            raise error_of(status, error.message)
    return call


def _in_words_of_store(text: str) -> str:
    """A key that a store said is named as its field, too."""
    for field, key in STORE_KEYS.items():
        text = text.replace(f"key '{key}' is", f"Store({field}=...), {key} of a configuration, is")
    return text


def error_of(status: int, message: bytes) -> PenstockError | MemoryError:
    text = message.decode(errors="replace")
    if status == c.OUT_OF_MEMORY:
        return MemoryError(text)
    if status == c.USAGE:
        text = _in_words_of_store(text)
    return (NotFound if status == c.NOT_FOUND else KINDS.get(status, PenstockError))(text)


def made(struct: type[Any], **members: Any) -> Any:
    """A structure that says its own size."""
    return struct(struct_bytes=ctypes.sizeof(struct), **members)


def array(struct: type[Any], elements: Sequence[Any]) -> Any:
    return (struct * len(elements))(*elements)


def values_of(values: Mapping[str, str]) -> Any:
    """As an array of penstock_value, which keeps alive what it points at."""
    encoded = [(key.encode(), value.encode()) for key, value in values.items()]
    listed = array(c.Value, [c.Value(key, ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p), len(value))
                             for key, value in encoded])
    listed.encoded = encoded
    return listed


def visits_of(visits: Sequence[Sequence[int]]) -> Any:
    units = [array(ctypes.c_uint32, list(each)) for each in visits]
    listed = array(c.Visit, [c.Visit(each, len(each)) for each in units])
    listed.units = units
    return listed


class Handle:
    """An open session. Ends when it is told to; its memory goes with the last tensor over it."""

    def __init__(self, call: dict[str, Callable[..., None]], pointer: ctypes.c_void_p) -> None:
        self._close, self.pointer = call["close"], pointer

    def __del__(self) -> None:
        self._close(self.pointer)

    def tensor(self, address: int, numel: int, dtype: torch.dtype, device: torch.device = HOST) -> torch.Tensor:
        """A flat tensor over the session's memory, of the host's or a GPU's."""
        if device.type == "cuda":
            return torch.as_tensor(GpuMemory(self, address, numel * dtype.itemsize), device=device).view(dtype)
        memory = (ctypes.c_char * (numel * dtype.itemsize)).from_address(address)
        memory.owner = self  # type: ignore[attr-defined]
        return torch.frombuffer(memory, dtype=dtype)


class GpuMemory:
    """Bytes on a GPU as numba's protocol has them, which torch takes without a copy and keeps alive."""

    def __init__(self, owner: Handle, address: int, count: int) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "|u1", "data": (address, False),
                                         "strides": None, "version": 3}


def client_state(call: dict[str, Callable[..., None]], pointer: ctypes.c_void_p) -> Iterator[tuple[str, str]]:
    """What the generation that a session went on from was committed with."""
    value = c.Value()
    index = 0
    while True:
        try:
            call["value_at"](pointer, index, ctypes.byref(value))
        except NotFound:
            return
        yield value.key.decode(), ctypes.string_at(value.data, value.bytes).decode(errors="replace")
        index += 1
