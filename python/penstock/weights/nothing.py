"""What a parameter's memory is while its values are in the store: of its shape, contiguous as they are, and without any."""
from __future__ import annotations

import mmap
import warnings

import torch

from .lent import Lent, forbids


class Nothing:
    """Address space alone, which all parameters of a model share: its pages are never there. To read it is an error by name,
    for code that goes around the class of a parameter. Where torch cannot forbid that (lent.forbids), or the device is not
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
    """That nobody may write: a system that promises no more memory than it has counts none of it."""
    try:
        return mmap.mmap(-1, max(byte_count, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
    except OSError:
        return None


def _over(space: mmap.mmap, parameter: torch.Tensor) -> torch.Tensor:
    """In a storage of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nobody writes it
        return torch.frombuffer(space, dtype=parameter.dtype, count=parameter.numel()).view(parameter.shape)
