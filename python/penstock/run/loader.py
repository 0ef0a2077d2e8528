"""The loader that penstock.initialize(training_data=...) gives: torch's, shuffled anew in each epoch, which knows how
far the training has come in it."""
from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler

from ..errors import UsageError
from ..settings import Settings

LOGGER = logging.getLogger("penstock")
Trained = Callable[[], Hashable]


@dataclass(frozen=True)
class Loading:
    """What penstock.initialize() is told of it."""

    shuffle: bool = True
    seed: int = 0
    num_workers: int = 0  # processes that load
    pin_memory: bool = False  # batches come in memory that a GPU copies from
    collate_fn: Callable[[list[Any]], Any] | None = None


@dataclass(frozen=True, eq=False)
class Begun:
    """An iterator: where it began, and what trained() was then."""

    epoch: int
    batches: int
    trained: Hashable


class Order(Sampler[int]):
    """Of one epoch's rows: with `shuffle` that of torch's DistributedSampler on one rank, as DeepSpeed takes it."""

    def __init__(self, rows: int, shuffle: bool, seed: int) -> None:
        self._rows, self._shuffle, self._seed = rows, shuffle, seed
        self.epoch, self.first = 0, 0  # of the next iterator: which permutation, and at which of its rows it begins

    def begin(self, epoch: int, first: int) -> None:
        """The next iterator's."""
        self.epoch, self.first = epoch, first

    def __iter__(self) -> Iterator[int]:
        if not self._shuffle:
            return iter(range(self.first, self._rows))
        chance = torch.Generator().manual_seed(self._seed + self.epoch)
        return iter(torch.randperm(self._rows, generator=chance).tolist()[self.first:])

    def __len__(self) -> int:
        return self._rows


class Loader(DataLoader[Any]):
    """An iterator goes on where the training is: behind the last batch that one gave before the newest step. What was
    only looked at, without a gradient or a step, comes again; an epoch that a training left early is over, and the next
    iterator begins the next one. Workers are seeded by seed and epoch, and torch's random states stay as they are."""

    def __init__(self, data: Any, settings: Settings, loading: Loading) -> None:
        if isinstance(data, DataLoader):
            raise UsageError("penstock.initialize(training_data=...): a data set, of which a loader is made; a loader "
                             "of your own needs nothing of ours: iterate over it")
        streams = isinstance(data, IterableDataset)
        if not streams and len(data) == 0:
            raise UsageError("penstock.initialize(training_data=...): the data set has no rows; a loop that goes over it until "
                             "so many steps are made would never end")
        self._order = None if streams else Order(len(data), loading.shuffle, loading.seed)
        self._seed = loading.seed
        self._trained: Trained = lambda: None
        self.epoch, self.batches = 0, 0  # where the newest iterator is: so many batches of this epoch were given
        self._begun: Begun | None = None  # the newest iterator
        super().__init__(data, batch_size=settings.micro_batch or 1, sampler=self._order,
                         collate_fn=loading.collate_fn, drop_last=settings.drop_last, num_workers=loading.num_workers,
                         pin_memory=loading.pin_memory, generator=torch.Generator())
        # What a position counts in: of other data, or another order, it would mean other rows.
        self._of = [None if streams else len(data), self.batch_size, loading.shuffle, loading.seed, settings.drop_last]

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self.epoch, self.batches = self._next()
        begun = self._begun = Begun(self.epoch, self.batches, self._trained())
        if self._order is not None:
            self._order.begin(begun.epoch, begun.batches * (self.batch_size or 1))
        self.generator.manual_seed(self._seed + begun.epoch)
        made: Iterator[Any] = super().__iter__()
        return self._given(made if self._order is not None else itertools.islice(made, begun.batches, None), begun)

    def follow(self, trained: Trained) -> None:
        """The training of which `trained` gives another value whenever it has used a batch."""
        self._trained = trained

    def position(self) -> str:
        """Of the training; what go_to() takes."""
        looked_at = self._begun is not None and self._trained() == self._begun.trained
        at = (self._begun.epoch, self._begun.batches) if looked_at and self._begun else (self.epoch, self.batches)
        return json.dumps([*at, self._of])

    def go_to(self, position: str) -> None:
        """The next iterator begins there; with other data in the epoch after that one's, which is told."""
        self.epoch, self.batches, of = json.loads(position)
        self._begun = None
        if of != self._of:
            LOGGER.warning("training_data: rows, batch size, shuffling, seed and drop_last were %s and are %s: the "
                           "order of epoch %d is gone, and epoch %d begins", of, self._of, self.epoch, self.epoch + 1)
            self.epoch, self.batches = self.epoch + 1, 0

    # Private.
    def _next(self) -> tuple[int, int]:
        """Where a new iterator begins."""
        begun = self._begun
        if begun is None:
            return self.epoch, self.batches
        used = self.batches > begun.batches and self._trained() != begun.trained
        return (self.epoch + 1, 0) if used else (begun.epoch, begun.batches)

    def _given(self, batches: Iterator[Any], begun: Begun) -> Iterator[Any]:
        empty = True
        for batch in batches:
            if self._begun is begun:  # else a newer iterator says where the training is
                self.batches += 1
            empty = False
            yield batch
        if self._begun is not begun:
            return
        resumed_at_its_end = empty and begun.batches > 0
        if resumed_at_its_end or self._trained() != begun.trained:
            self.epoch, self.batches = self.epoch + 1, 0
        else:
            self.epoch, self.batches = begun.epoch, begun.batches
        self._begun = None
        if resumed_at_its_end:
            yield from self
