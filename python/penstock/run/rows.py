"""Which rows of an epoch a rank takes. Over all ranks and batches they are the epoch's rows in its order, so that a run
of another number of ranks goes on at a row."""
from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import IterableDataset, Sampler


@dataclass(frozen=True)
class Share:
    """Each `ranks`-th row, from the `rank`-th on. All ranks take as many: where the last turn has too few, rows of the
    epoch's beginning fill it up, or, with drop_last, nobody takes them. So torch's DistributedSampler has it, which
    DeepSpeed's loader uses, there without drop_last."""

    rank: int = 0
    ranks: int = 1

    def count(self, rows: int, drop_last: bool) -> int:
        """How many of so many rows a rank takes."""
        return turns(rows, self.ranks, drop_last)


def turns(rows: int, each: int, drop_last: bool) -> int:
    """In how many turns of `each` rows they are taken."""
    return rows // each if drop_last else -(-rows // each)


class Order(Sampler[int]):
    """Of a data set with so many rows: a rank's in each epoch. With `shuffle` seed and epoch say which permutation."""

    def __init__(self, rows: int, shuffle: bool, seed: int, share: Share, drop_last: bool) -> None:
        self._rows, self._shuffle, self._seed, self._share, self._drop_last = rows, shuffle, seed, share, drop_last
        self.epoch, self.first = 0, 0  # of the next iterator: which permutation, and at which of its rows it begins

    def begin(self, epoch: int, first: int) -> None:
        """The next iterator's. `first`: of all ranks' rows."""
        self.epoch, self.first = epoch, min(first, self._rows)

    def __iter__(self) -> Iterator[int]:
        order: range | list[int] = range(self._rows)
        if self._shuffle:
            chance = torch.Generator().manual_seed(self._seed + self.epoch)
            order = torch.randperm(self._rows, generator=chance).tolist()
        ranks = self._share.ranks
        end = self.first + ranks * self._share.count(self._rows - self.first, self._drop_last)
        return (order[each % self._rows] for each in range(self.first + self._share.rank, end, ranks))

    def __len__(self) -> int:
        """Of a whole epoch."""
        return self._share.count(self._rows, self._drop_last)


class Part(IterableDataset[Any]):
    """Of a stream: a rank's rows, from the `first` of all ranks' on. It reads them all, and so knows by itself where the
    stream ends for all. REQUIRES: the stream gives the same rows on all ranks."""

    def __init__(self, stream: Any, share: Share, first: int, drop_last: bool) -> None:
        self._stream, self._share, self._first, self._drop_last = stream, share, first, drop_last

    def __iter__(self) -> Iterator[Any]:
        rank, ranks = self._share.rank, self._share.ranks
        rows = iter(self._stream)
        beginning = list(itertools.islice(rows, ranks))
        rows = itertools.islice(itertools.chain(beginning, rows), self._first, None)
        while len(turn := list(itertools.islice(rows, ranks))) == ranks:
            yield turn[rank]
        if turn and not self._drop_last:
            yield turn[rank] if rank < len(turn) else beginning[(rank - len(turn)) % len(beginning)]
