"""Tensors whose memory is a file's: what is not used leaves memory, what is written comes back as it was."""
from __future__ import annotations

import bisect
import mmap
import os
import tempfile
import threading
import warnings
from pathlib import Path

import torch
from torch import nn

from ..errors import StorageError

ARENA_BYTES = 1 << 30  # of address space; a tensor that is larger has one of its own


class Spill:
    """A file without a name, which goes with the last tensor in it. Any thread may use its tensors."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        try:
            self._file = tempfile.TemporaryFile(prefix="penstock-", dir=self._directory)
        except OSError as error:
            raise StorageError(f"penstock.zero.Init(): no file can be made in {self._directory}: {error.strerror}; "
                               "name a directory on a drive: penstock.zero.Init(directory)") from error
        if _is_in_memory(self._directory):
            warnings.warn(f"penstock.zero.Init(): {self._directory} is a file system in memory, so that the model is "
                          "whole in memory: name a directory on a drive", stacklevel=4)
        self._maps: list[tuple[int, mmap.mmap]] = []  # by address
        self._arena: tuple[mmap.mmap, int] | None = None  # and what is taken of it
        self._end = 0  # of the file
        self._lock = threading.Lock()

    def copy(self, values: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        return self.empty(values.shape, dtype or values.dtype).copy_(values)

    def empty(self, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        count = shape.numel()
        with self._lock:
            arena, at = self._take(max(count, 1) * dtype.itemsize)
            made = torch.frombuffer(arena, dtype=dtype, count=count, offset=at)
        made = made.view(shape)
        made.untyped_storage().penstock_spill = self  # type: ignore[attr-defined]
        return made

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether its memory is of this file."""
        if tensor.device.type != "cpu" or tensor.layout != torch.strided:
            return False
        address = tensor.data_ptr()
        at = bisect.bisect_right(self._maps, address, key=lambda each: each[0]) - 1
        return at >= 0 and address < self._maps[at][0] + len(self._maps[at][1])

    def let_go(self) -> None:
        """The pages leave this process; what they hold is the file's."""
        for _, each in self._maps:
            each.madvise(mmap.MADV_DONTNEED)

    # Private.
    def _take(self, byte_count: int) -> tuple[mmap.mmap, int]:
        byte_count += -byte_count % mmap.PAGESIZE
        if self._arena is None or self._arena[1] + byte_count > len(self._arena[0]):
            self._arena = self._map(max(byte_count, ARENA_BYTES)), 0
        arena, at = self._arena
        self._reserve(self._end - len(arena) + at, byte_count)
        self._arena = arena, at + byte_count
        return arena, at

    def _map(self, byte_count: int) -> mmap.mmap:
        os.ftruncate(self._file.fileno(), self._end + byte_count)
        made = mmap.mmap(self._file.fileno(), byte_count, offset=self._end)
        self._end += byte_count
        bisect.insort(self._maps, (torch.frombuffer(made, dtype=torch.uint8).data_ptr(), made))
        return made

    def _reserve(self, at: int, byte_count: int) -> None:
        """Now, because a write to a mapped page without room on the drive would end the process."""
        try:
            os.posix_fallocate(self._file.fileno(), at, byte_count)
        except OSError as error:
            raise StorageError(f"penstock.zero.Init(): no room for {byte_count} bytes more in {self._directory} "
                               f"({error.strerror}), where {at} are taken: name a directory with room for the whole "
                               "model: penstock.zero.Init(directory)") from error


def first_value(parameter: torch.Tensor) -> torch.Tensor:
    """As it was made; those that were given before leave memory."""
    spill = _spill_of(parameter)
    if spill is not None:
        spill.let_go()
    return parameter.detach()


def to_type(model: nn.Module, dtype: torch.dtype) -> None:
    """model.to(dtype), where what is spilled stays so."""
    def changed(each: torch.Tensor) -> torch.Tensor:
        spill = _spill_of(each)
        if spill is None or each.dtype == dtype or not each.is_floating_point():
            return each.to(dtype if each.is_floating_point() or each.is_complex() else None)
        spill.let_go()
        return spill.copy(each, dtype)
    if any(_spill_of(each) is not None for each in model.parameters()):
        model._apply(changed)
    else:
        model.to(dtype)


def _spill_of(tensor: torch.Tensor) -> Spill | None:
    return getattr(tensor.untyped_storage(), "penstock_spill", None)


def _is_in_memory(directory: Path) -> bool:
    """By the longest mount point that the directory lies beneath."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return False
    place = directory.resolve()
    beneath = [(len(point), kind) for point, kind in mounts if Path(point) == place or Path(point) in place.parents]
    return bool(beneath) and max(beneath)[1] in ("tmpfs", "ramfs")
