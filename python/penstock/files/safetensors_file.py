"""The safetensors format: eight bytes with the length of a header, the header in JSON, the tensors' bytes.

Read and written one tensor at a time, into and from ordinary memory. What the header says is believed of nobody: it
is checked as a whole before a byte of the tensors is read.
"""
from __future__ import annotations

import ctypes
import json
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from ..errors import WeightsError

HEADER_BYTES_MAX = 100_000_000  # as the safetensors library has it
DIMENSIONS_MAX = 64
ELEMENTS_MAX = 1 << 62
ONE_WRITE_BYTES = 1 << 30  # the kernel writes at most 2 GiB at once

# The format's names; those of torch that this torch does not have are left out.
TYPES: dict[str, torch.dtype] = {name: getattr(torch, attribute) for name, attribute in {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64", "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "C64": "complex64"}.items() if hasattr(torch, attribute)}
NAMES = {dtype: name for name, dtype in TYPES.items()}


@dataclass(frozen=True)
class TensorInfo:
    """What there is to know of a tensor without its values. `begin` counts from the file's first byte."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    begin: int = 0

    @property
    def byte_count(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize


class SafetensorsFile:
    """A file that is there. Its header was found right when this was made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                self.tensors = self._header(file.read(8), file, size)
        except OSError as error:
            raise WeightsError(f"{path}: {error.strerror}; is the download complete?") from error

    def read(self, name: str) -> torch.Tensor:
        info = self.tensors[name]
        values = torch.empty(info.shape, dtype=info.dtype)
        try:
            with open(self.path, "rb") as file:
                file.seek(info.begin)
                got = file.readinto(bytes_of(values)) if info.byte_count else 0
        except OSError as error:
            raise WeightsError(f"{self.path}: tensor '{name}' cannot be read: {error.strerror}") from error
        if got != info.byte_count:
            raise WeightsError(f"{self.path}: tensor '{name}' ends after {got} of {info.byte_count} bytes: the file "
                               "has become shorter while it was read")
        return values

    # Private.
    def _refuse(self, what: str) -> WeightsError:
        return WeightsError(f"{self.path}: no whole safetensors file: {what}; download or write it again")

    def _header(self, first: bytes, file: Any, size: int) -> dict[str, TensorInfo]:
        if len(first) < 8:
            raise self._refuse(f"it has {size} bytes, a header's length alone takes 8")
        length, = struct.unpack("<Q", first)
        if length > HEADER_BYTES_MAX:
            raise self._refuse(f"its header is said to have {length} bytes, more than the {HEADER_BYTES_MAX} that the "
                               "format allows")
        if 8 + length > size:
            raise self._refuse(f"its header is said to have {length} bytes, the file has {size}")
        try:
            text = file.read(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._refuse(f"its header is not UTF-8 at byte {error.start}") from error
        try:
            said = json.loads(text, object_pairs_hook=self._object)
        except (ValueError, RecursionError) as error:
            raise self._refuse(f"its header is no JSON ({error})") from error
        if not isinstance(said, dict):
            raise self._refuse("its header is no object")
        self._check_metadata(said.pop("__metadata__", {}))
        tensors = {name: self._tensor(name, each, 8 + length, size) for name, each in said.items()}
        self._check_cover(tensors, 8 + length, size)
        return tensors

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise self._refuse(f"its header has {_shown(twice)} twice")
        return made

    def _check_metadata(self, metadata: Any) -> None:
        if not isinstance(metadata, dict) or not all(isinstance(each, str) for each in metadata.values()):
            raise self._refuse("its __metadata__ is not an object of texts")

    def _tensor(self, name: str, said: Any, data: int, size: int) -> TensorInfo:
        shown = _shown(name)
        if not is_utf8(name):
            raise self._refuse(f"a tensor's name, {shown}, is not UTF-8")
        if not isinstance(said, dict) or said.keys() != {"dtype", "shape", "data_offsets"}:
            raise self._refuse(f"tensor {shown} is not said by dtype, shape and data_offsets")
        dtype, shape, offsets = said["dtype"], said["shape"], said["data_offsets"]
        if not isinstance(dtype, str) or dtype not in TYPES:
            raise self._refuse(f"tensor {shown} is of the unknown type {_shown(dtype)}; there are {', '.join(TYPES)}")
        if not _are_counts(shape) or len(shape) > DIMENSIONS_MAX or any(each > ELEMENTS_MAX for each in shape):
            raise self._refuse(f"tensor {shown} has the shape {_shown(shape)}")
        if not _are_counts(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= size - data:
            raise self._refuse(f"tensor {shown} is said to lie at {_shown(offsets)} of {size - data} bytes")
        elements = 1
        for each in shape:
            elements *= each
        if elements * TYPES[dtype].itemsize != offsets[1] - offsets[0]:
            raise self._refuse(f"tensor {shown} of shape {_shown(shape)} and type {dtype} takes "
                               f"{_shown(elements * TYPES[dtype].itemsize)} bytes, not {offsets[1] - offsets[0]}")
        if max((*shape, 1)) * TYPES[dtype].itemsize >= ELEMENTS_MAX:
            raise self._refuse(f"tensor {shown} has the shape {_shown(shape)}")  # of no elements, and still too long
        return TensorInfo(tuple(shape), TYPES[dtype], data + offsets[0])

    def _check_cover(self, tensors: Mapping[str, TensorInfo], at: int, size: int) -> None:
        for name, info in sorted(tensors.items(), key=lambda each: (each[1].begin, each[1].byte_count)):
            if info.begin != at:
                what = "overlaps" if info.begin < at else "does not begin at the end of"
                raise self._refuse(f"tensor {_shown(name)} {what} the one before it")
            at += info.byte_count
        if at != size:
            raise self._refuse(f"{size - at} bytes at its end belong to no tensor")


class SafetensorsWriter:
    """A new file, written one tensor after the other in any order; durable once close() has returned."""

    def __init__(self, path: Path, tensors: Mapping[str, TensorInfo]) -> None:
        self._infos, header = layout(tensors)
        self._left = set(tensors)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        self._write(memoryview(header), 0)

    def write(self, name: str, values: torch.Tensor) -> None:
        info = self._infos[name]
        if tuple(values.shape) != info.shape or values.dtype != info.dtype:
            raise AssertionError(f"'{name}': {tuple(values.shape)} of {values.dtype}, not {info.shape} of {info.dtype}")
        values = values.detach().cpu().contiguous()
        self._write(bytes_of(values), info.begin)
        self._left.discard(name)

    def close(self) -> None:
        if self._left:
            raise AssertionError(f"not written: {sorted(self._left)}")
        os.fsync(self._file)
        self.abandon()

    def abandon(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> SafetensorsWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if kind is None:
            self.close()
        self.abandon()

    def _write(self, data: memoryview, at: int) -> None:
        while len(data):
            done = os.pwrite(self._file, data[:ONE_WRITE_BYTES], at)
            data, at = data[done:], at + done


def layout(tensors: Mapping[str, TensorInfo]) -> tuple[dict[str, TensorInfo], bytes]:
    """Where each tensor lies, and the file's bytes before them. The widest types come first: all are aligned."""
    order = sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)
    said: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name in order:
        info = tensors[name]
        said[name] = {"dtype": NAMES[info.dtype], "shape": list(info.shape),
                      "data_offsets": [at, at + info.byte_count]}
        at += info.byte_count
    text = json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    data = 8 + len(text)
    placed = {name: TensorInfo(tensors[name].shape, tensors[name].dtype, data + said[name]["data_offsets"][0])
              for name in order}
    return placed, struct.pack("<Q", len(text)) + text


def bytes_of(values: torch.Tensor) -> memoryview:
    """The memory of a contiguous tensor, as long as it lives; without numpy."""
    count = values.numel() * values.element_size()
    return memoryview((ctypes.c_char * count).from_address(values.data_ptr())).cast("B") if count else memoryview(b"")


def _shown(value: Any) -> str:
    """For an error: printable and short, whatever it is."""
    try:
        text = ascii(value)
    except (ValueError, RecursionError):  # an integer of too many digits
        return "something too long to show"
    return text if len(text) <= 120 else f"{text[:100]}... ({len(text)} characters)"


def is_utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _are_counts(values: Iterable[Any]) -> bool:
    return isinstance(values, list) and all(type(each) is int and each >= 0 for each in values)
