"""Equality of bits: NaN equals the same NaN, and -0 is not 0; and whether a tensor still has those that it had."""
from __future__ import annotations

import zlib
from typing import Any

import torch

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}
LARGE_BYTES = 1 << 20


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    kind = INTEGERS[a.element_size()]
    return torch.equal(a.detach().reshape(-1).view(kind), b.detach().reshape(-1).view(kind))


def differing(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Which elements do, of two tensors of one type."""
    kind = INTEGERS[a.element_size()]
    return a.view(kind) != b.view(kind)


def number_of(values: torch.Tensor) -> Any:
    """Another one for other bits, or the same in another order; of the host's memory an int, 1 ms for each MB of it. On a GPU it
    stays there, as a tensor. REQUIRES: strided."""
    if values.device.type == "cpu":
        return zlib.crc32(values.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    read = values.detach().contiguous().reshape(-1).view(INTEGERS[values.element_size()]).to(torch.int64)
    return (read * torch.arange(1, 2 * read.numel(), 2, device=read.device)).sum()  # where each is counts


class AsTheyWere:
    """Values at one moment, so that a change is seen: by their version, and with `bits` also where numpy, or .data of a view,
    has changed them without a count."""

    __slots__ = ("version", "number")

    def __init__(self, values: torch.Tensor, bits: bool = True) -> None:
        self.version, self.number = values._version, hash_of(values) if bits else None

    def differ_from(self, values: torch.Tensor) -> bool:
        return bool(values._version != self.version) or (self.number is not None and hash_of(values) != self.number)


def hash_of(values: torch.Tensor) -> Any:
    """0.1 ms for each MB of large ones, in which an exchange of elements alone is not seen."""
    with torch._C.DisableTorchFunctionSubclass():
        there = values.detach()
        if there.nbytes < LARGE_BYTES and there.device.type == "cpu":
            return number_of(there)
        return there.reshape(-1).view(INTEGERS[there.element_size()]).sum(dtype=torch.int64).item()
