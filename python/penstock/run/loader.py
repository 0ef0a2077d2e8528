"""The loader that penstock.initialize(training_data=...) gives: torch's, shuffled anew in each epoch, which knows how
far the training has come in it."""
from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from ..errors import UsageError
from ..settings import Settings
from .rows import Order, Part, Share, turns

LOGGER = logging.getLogger("penstock")
Trained = Callable[[], Hashable]
ALONE = Share()


@dataclass(frozen=True)
class Loading:
    """What penstock.initialize() is told of it."""

    shuffle: bool = True
    seed: int = 0
    num_workers: int = 0  # processes that load
    pin_memory: bool = False  # batches come in memory that a GPU copies from
    collate_fn: Callable[[list[Any]], Any] | None = None


@dataclass(frozen=True)
class Place:
    """In the data, the same on all ranks: so many batches of this epoch were given to each rank, behind this row."""

    epoch: int = 0
    batches: int = 0
    first: int = 0  # 0, unless another number of ranks, or batches of another size, came before

    @property
    def is_begun(self) -> bool:
        return self.batches > 0 or self.first > 0

    def row(self, rows: int) -> int:
        """Of the epoch's order, where all ranks together take so many rows by a batch."""
        return self.first + self.batches * rows

    def next_epoch(self) -> Place:
        return Place(self.epoch + 1)


@dataclass(frozen=True, eq=False)
class Begun:
    """An iterator: where it began, and what trained() was then."""

    place: Place
    trained: Hashable


class Loader(DataLoader[Any]):
    """An iterator goes on where the training is: behind the last batch that one gave before the newest step. What was
    only looked at, without a gradient or a step, comes again; an epoch that a training left early is over, and the next
    iterator begins the next one. Workers are seeded by seed, epoch and rank; torch's random states stay as they are.

    Over several ranks `share` says which rows are this one's (run/rows.py). A batch is micro_batch rows of one rank,
    and len() counts batches of one rank. Nothing is collective: each rank has as many batches, and ranks that make the
    same steps are at the same place. Their position is a row of the epoch's order, at which another number of ranks
    goes on. Each row of the epoch is taken once, but for the first ones that fill up its last turn, and the last ones
    where drop_last leaves them out. A stream that several workers read has no such row, because batches come from one
    worker after the other: another number of ranks begins the next epoch, which is told.

    Of a stream (an IterableDataset) each rank reads all rows and takes one of `ranks`, which is told, too. One that
    gives each rank rows of its own is for a loader of the program's own (ranks/even.py)."""

    def __init__(self, data: Any, settings: Settings, loading: Loading, share: Share = ALONE) -> None:
        if isinstance(data, DataLoader):
            raise UsageError("penstock.initialize(training_data=...): a data set, of which a loader is made; a loader "
                             "of your own needs nothing of ours: iterate over it")
        streams = isinstance(data, IterableDataset)
        if not streams and len(data) == 0:
            raise UsageError("penstock.initialize(training_data=...): the data set has no rows; a loop that goes over it until "
                             "so many steps are made would never end")
        self._order = None if streams else Order(len(data), loading.shuffle, loading.seed, share, settings.drop_last)
        self._seed, self._share = loading.seed, share
        self._trained: Trained = lambda: None
        self._place = Place()  # where the newest iterator is
        self._begun: Begun | None = None  # the newest iterator
        super().__init__(data, batch_size=settings.micro_batch or 1, sampler=self._order,
                         collate_fn=loading.collate_fn, drop_last=settings.drop_last, num_workers=loading.num_workers,
                         pin_memory=loading.pin_memory, generator=torch.Generator())
        # What a position counts in: of other data, or another order, it would mean other rows.
        self._of = [None if streams else len(data), self.batch_size, loading.shuffle, loading.seed, settings.drop_last]
        if streams and share.ranks > 1:
            self._warn(f"training_data is a stream: each of {share.ranks} ranks reads all of it and takes one row "
                       f"of {share.ranks}; a stream that gives each rank rows of its own is for a loader of your own")

    @property
    def epoch(self) -> int:
        """Of the newest iterator."""
        return self._place.epoch

    @property
    def batches(self) -> int:
        """That were given in it, since another number of ranks gave some."""
        return self._place.batches

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self._place = self._next()
        begun = self._begun = Begun(self._place, self._trained())
        self._seed_workers(begun.place.epoch)
        return self._given(self._made(begun.place), begun)

    def __len__(self) -> int:
        """Batches of a whole epoch, of one rank."""
        if self._order is not None or self._share.ranks == 1:
            return super().__len__()
        rows = self._share.count(len(self.dataset), self.drop_last)  # type: ignore[arg-type]
        return turns(rows, self._micro_batch, self.drop_last)

    def alike(self) -> dict[str, str]:
        """What all ranks must have said of it: else some rows are taken twice, and others by nobody."""
        rows, micro_batch, shuffle, seed, drop_last = self._of
        return {"training_data": "a stream" if rows is None else f"{rows} rows", "rows of a micro-batch": f"{micro_batch}",
                "shuffle": f"{shuffle}", "shuffle_seed": f"{seed}", "drop_last": f"{drop_last}"}

    def follow(self, trained: Trained) -> None:
        """The training of which `trained` gives another value whenever it has used a batch."""
        self._trained = trained

    def position(self) -> str:
        """Of the training; what go_to() takes, also that of another number of ranks."""
        looked_at = self._begun is not None and self._trained() == self._begun.trained
        at = self._begun.place if looked_at and self._begun else self._place
        ranks = [] if self._share == ALONE and at.first == 0 else [self._share.ranks, at.first]
        return json.dumps([at.epoch, at.batches, self._of + ranks])

    def go_to(self, position: str) -> None:
        """The next iterator begins there; with other data in the epoch after that one's, which is told."""
        epoch, batches, of = json.loads(position)
        of, (ranks, first) = of[:5], of[5:] or (1, 0)
        place = Place(epoch, batches, first)
        same = (of, ranks) == (self._of, self._share.ranks)
        other = None if same else self._other(of, ranks)
        self._begun = None
        if other is not None:
            self._warn(f"training_data: {other}: the order of epoch {epoch} is gone, and epoch {epoch + 1} begins")
            self._place = place.next_epoch()
        else:
            self._place = place if same else Place(epoch, first=place.row(of[1] * ranks))

    # Private.
    @property
    def _micro_batch(self) -> int:
        return self.batch_size or 1

    def _other(self, of: list[Any], ranks: int) -> str | None:
        """Why a row of what another run counted in is none of this one's."""
        (rows, _, *order, _), (own_rows, _, *own_order, _) = of, self._of
        alone = ranks == self._share.ranks == 1  # batches of another size begin the next epoch then, as ever
        if alone or (rows, order) != (own_rows, own_order):
            return f"rows, batch size, shuffling, seed and drop_last were {of} and are {self._of}"
        if self._order is None and self.num_workers > 1:
            return (f"a stream that {self.num_workers} workers read has no row at which {self._share.ranks} ranks with "
                    f"{self._micro_batch} rows a batch go on where {ranks} with {of[1]} were")
        return None

    def _warn(self, text: str) -> None:
        if self._share.rank == 0:
            LOGGER.warning("%s", text)

    def _seed_workers(self, epoch: int) -> None:
        """A rank has the number behind those of the ranks before it. (Of a seed the generator takes 32 bits.)"""
        self.generator.manual_seed(self._seed + epoch)
        torch.empty(self._share.rank, dtype=torch.int64).random_(generator=self.generator)

    def _next(self) -> Place:
        """Where a new iterator begins."""
        begun = self._begun
        if begun is None:
            return self._place
        used = self._place.batches > begun.place.batches and self._trained() != begun.trained
        return self._place.next_epoch() if used else begun.place

    def _made(self, place: Place) -> Iterator[Any]:
        """torch's, which begins there."""
        if self._order is not None:
            self._order.begin(place.epoch, place.row(self._micro_batch * self._share.ranks))
            return super().__iter__()
        made: Iterator[Any] = super().__iter__() if self._share == ALONE and place.first == 0 else iter(DataLoader(
            Part(self.dataset, self._share, place.first, self.drop_last), self.batch_size, drop_last=self.drop_last,
            collate_fn=self.collate_fn, num_workers=self.num_workers, pin_memory=self.pin_memory,
            generator=self.generator))
        return itertools.islice(made, place.batches, None)

    def _given(self, batches: Iterator[Any], begun: Begun) -> Iterator[Any]:
        empty = True
        for batch in batches:
            if self._begun is begun:  # else a newer iterator says where the training is
                self._place = replace(self._place, batches=self._place.batches + 1)
            empty = False
            yield batch
        if self._begun is not begun:
            return
        resumed_at_its_end = empty and begun.place.is_begun
        if resumed_at_its_end or self._trained() != begun.trained:
            self._place = self._place.next_epoch()
        else:
            self._place = begun.place
        self._begun = None
        if resumed_at_its_end:
            yield from self
