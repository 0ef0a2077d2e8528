"""Equality of bits: NaN equals the same NaN, and -0 is not 0."""
from __future__ import annotations

import torch

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    kind = INTEGERS[a.element_size()]
    return torch.equal(a.detach().reshape(-1).view(kind), b.detach().reshape(-1).view(kind))


def differing(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Which elements do, of two tensors of one type."""
    kind = INTEGERS[a.element_size()]
    return a.view(kind) != b.view(kind)
