"""What a parameter's memory is while its values are in the store: of its shape, contiguous as they are, and without any."""
from __future__ import annotations

import ctypes
import mmap
import os
import warnings

import torch

from .lent import Lent, forbids

PIECES_MAX = 1024  # mappings are counted by the system
MAP_FIXED = 0x10
_map = ctypes.CDLL(None).mmap
_map.restype, _map.argtypes = ctypes.c_size_t, (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                                                ctypes.c_long)


class Nothing:
    """NaNs in address space that all parameters of a model share, and in next to no memory. To read it is an error by name, for
    code that goes around the class of a parameter. Where torch cannot forbid that (lent.forbids), or the device is not
    the host, it is a view of a single NaN, which is not contiguous."""

    def __init__(self, largest_bytes: int, device: torch.device) -> None:
        self._device = device
        self._space = _space(largest_bytes) if forbids is not None and device.type == "cpu" else None

    def like(self, parameter: torch.Tensor, name: str) -> torch.Tensor:
        if self._space is None:
            own = torch.full((), float("nan"), dtype=parameter.dtype, device=self._device)
            made = own.expand(parameter.shape)
        else:
            own = made = _over(self._space, parameter)
        Lent([own]).forbid(0, f"parameter '{name}' is read while its values are in the store, by a function of torch's that does "
                              "not tell the class of it (torch.tensor, torch.Tensor, sparse and nested tensors; a graph from "
                              "before penstock.initialize()): give it a copy, parameter.detach().clone()")
        return made


def _space(byte_count: int) -> mmap.mmap | None:
    """NaNs of every type, also to who reads past what torch forbids. Memory has one piece of them, which stands there again
    and again, and nobody may write it."""
    piece = max(2 << 20, -(-byte_count // PIECES_MAX) + 4095 & ~4095)
    size = max(-(-byte_count // piece), 1) * piece
    try:
        space = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
        with open(os.memfd_create("penstock-nothing"), "wb") as file:
            file.write(b"\xff" * piece)
            file.flush()
            start = _frombuffer(space, torch.uint8, size).data_ptr()
            for at in range(start, start + size, piece):
                if _map(at, piece, mmap.PROT_READ, mmap.MAP_SHARED | MAP_FIXED, file.fileno(), 0) != at:
                    return None
    except (OSError, AttributeError):  # of a system that has no such files
        return None
    return space


def _over(space: mmap.mmap, parameter: torch.Tensor) -> torch.Tensor:
    """In a storage of its own."""
    if parameter.numel() == 0:
        return torch.empty_like(parameter)
    return _frombuffer(space, parameter.dtype, parameter.numel()).view(parameter.shape)


def _frombuffer(space: mmap.mmap, dtype: torch.dtype, count: int) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nobody writes it
        return torch.frombuffer(space, dtype=dtype, count=count)
