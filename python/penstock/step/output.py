"""What a unit's forward gave, so that a recompute can be held against it."""
from __future__ import annotations

from typing import Any

import torch

from ..weights.bits import number_of
from .leaves import leaves_of

MOST = 1 << 22  # elements that are hashed of one tensor: of a larger one each so many-th
SAMPLE = 1024  # elements that are compared where kernels do not give the same bits each time
CLOSE = 1e-2  # of the largest of them


class Seen:
    """Of the outputs: shapes and types, plain values, and of each tensor a number of its bits; on a device whose kernels are
    not told to be deterministic a sample of its values. On a GPU these stay there until they are asked for."""

    def __init__(self, output: Any) -> None:
        leaves = leaves_of(output)
        self.shapes = [_shape(each) for each in leaves]
        self.marks = [_mark(each) for each in leaves if isinstance(each, torch.Tensor)]

    def difference(self, other: Seen) -> str | None:
        """In words, between a forward's and its recompute's; None where there is none that counts."""
        if len(self.shapes) != len(other.shapes):
            return f"{len(other.shapes)} outputs in the place of {len(self.shapes)}"
        for at, (was, now) in enumerate(zip(self.shapes, other.shapes)):
            if was != now:
                return f"output {at} is {_words(now)}, it was {_words(was)}"
        for at, (was, now) in enumerate(zip(self.marks, other.marks)):
            if not _are_close(was, now):
                return f"output {at} has other values"
        return None

    def is_same(self, other: Seen) -> bool:
        """To the bit, where there is no difference()."""
        return all(_are_same(was, now) for was, now in zip(self.marks, other.marks))


def _shape(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.is_nested:
            return f"nested of {value.dtype}"
        return tuple(value.shape), value.dtype, value.requires_grad
    if isinstance(value, float) and value != value:
        return "nan"  # which is not itself
    return value if isinstance(value, (bool, int, float, str)) else type(value).__name__


def _words(shape: Any) -> str:
    return f"{shape[1]} of shape {shape[0]}" if isinstance(shape, tuple) else repr(shape)


def _mark(tensor: torch.Tensor) -> Any:
    """None of what has no bits to be looked at so."""
    if (type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.is_nested or tensor.numel() == 0
            or tensor.is_conj() or tensor.is_neg()):
        return None
    flat = tensor.detach()
    if flat.dtype.is_complex:
        flat = torch.view_as_real(flat)
    if flat.device.type != "cpu" and flat.is_floating_point() and not torch.are_deterministic_algorithms_enabled():
        flat = flat.flatten()
        return flat[::flat.numel() // SAMPLE + 1].clone()
    if flat.numel() > MOST:
        flat = flat.flatten()[::flat.numel() // MOST + 1]
    return number_of(flat)


def _are_close(was: Any, now: Any) -> bool:
    if not isinstance(was, torch.Tensor) or was.dim() == 0:
        return _are_same(was, now)
    apart, most = (was.float() - now.float()).abs().max().item(), was.float().abs().max().item()
    return apart <= CLOSE * most or (apart != apart and most != most)


def _are_same(was: Any, now: Any) -> bool:
    return bool((was == now).all()) if isinstance(was, torch.Tensor) else bool(was == now)
