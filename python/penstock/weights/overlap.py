"""Whether two tensors have memory in common."""
from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """To the element: columns of one matrix do not."""
    if a.device != b.device or not _has_memory(a) or not _has_memory(b):
        return False
    (begin, end), (other_begin, other_end) = _range(a), _range(b)
    if end <= other_begin or other_end <= begin:
        return False
    if a.is_contiguous() and b.is_contiguous():
        return True
    first = min(begin, other_begin)
    taken = torch.zeros(max(end, other_end) - first, dtype=torch.bool)
    _bytes_of(taken, a, begin - first).fill_(True)
    return bool(_bytes_of(taken, b, other_begin - first).any())


def overlapping(named: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, str]]:
    """Names of those that do, each with one that begins before it."""
    there = [(_range(each), name, each) for name, each in named if _has_memory(each)]
    there.sort(key=lambda each: (str(each[2].device), each[0]))
    before: list[tuple[tuple[int, int], str, torch.Tensor]] = []
    for each in there:
        before = [other for other in before if other[2].device == each[2].device and other[0][1] > each[0][0]]
        for _, name, tensor in before:
            if overlap(tensor, each[2]):
                yield name, each[1]
        before.append(each)


def memory_of_sparse(sparse: torch.Tensor) -> torch.Tensor | None:
    """What it has memory of, beside indices; None of a layout that is none of these."""
    if sparse.layout is torch.sparse_coo:
        return sparse.detach()._values()
    return sparse.detach().values() if sparse.layout in COMPRESSED else None


def _has_memory(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_meta and tensor.numel() > 0


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses of its first byte, and of that behind its last one."""
    begin = tensor.data_ptr()
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    return begin, begin + (last + 1) * tensor.element_size()


def _bytes_of(taken: torch.Tensor, tensor: torch.Tensor, offset: int) -> torch.Tensor:
    """A byte each, as the tensor has them."""
    size = tensor.element_size()
    return taken.as_strided((*tensor.shape, size), (*(step * size for step in tensor.stride()), 1), offset)
