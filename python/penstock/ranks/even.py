"""Loaders of a program's own, of which some ranks may give more batches than others: all go on, or end, together."""
from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Literal, NamedTuple, NoReturn, TypeVar

from ..errors import PeerError, UsageError

Batch = TypeVar("Batch")
Gathered = Callable[[Any], list[Any]]  # Group.gathered: what each rank says, in their order
Until = Literal["shortest", "longest"]
OVER: Any = object()  # in the place of a batch
MOST_WORDS = 2000  # of another rank's exception


class Turn(NamedTuple):
    """What a rank says before each batch of a loop."""

    until: Until
    number: int  # of the batch, from 0
    there: bool  # whether the rank has it
    problem: str = ""  # why it could not be loaded


def even(gathered: Gathered | None, loader: Iterable[Batch], until: Until = "shortest") -> Iterable[Batch]:
    """A loop over it has as many batches on all ranks. It may be gone through again and again, as the loader.

    gathered: Group.gathered, of the ranks; None: of one rank, whose loader it is itself.
    loader: The program's, of whatever batches; nothing is said of those to the others.
    until: "shortest": it ends for all where it ends for one, and what others have beyond is not given. "longest": it
        ends where it ends for all, and who has no batch any more gets its last one again, see Even.counts."""
    if until not in ("shortest", "longest"):
        raise UsageError(f"even(until={until!r}): \"shortest\" or \"longest\"")
    return loader if gathered is None else Even(gathered, loader, until)


class Even(Generic[Batch]):
    """Collective: each batch, and the loop's end, is a gather of some 100 bytes, once the rank has its batch. All ranks
    begin loops in the same order. A loop is left early by all ranks, at the same batch, or by none: `break` says
    nothing to the others, so its condition must be the same everywhere. Where one rank leaves alone, the others wait in
    their next batch until it comes to a gather, too. Where that is of its next loop, all get a UsageError that says
    where each is; where it is of another call, those who wait get it; where none comes, their group's deadline ends
    them.

    An exception of a rank's loader is that rank's, and the others get a PeerError with its words. What is none of the
    loader's (KeyboardInterrupt, SystemExit) is told to nobody: that ends the process, which others notice otherwise."""

    def __init__(self, gathered: Gathered, loader: Iterable[Batch], until: Until) -> None:
        self._gathered, self._loader, self._until = gathered, loader, until
        self._counts = True

    @property
    def counts(self) -> bool:
        """Whether the newest batch is new. False: with until="longest" it was given before, and comes again so that
        the rank makes the passes and steps of the others. Its loss must be multiplied by 0, and no figure be made of
        it. For engine.backward() to ask, so that a program has nothing to say; one that calls loss.backward() itself
        multiplies by it (twice is as once). The mean stays that over all ranks, as under the Join of
        DistributedDataParallel. True between loops."""
        return self._counts

    def __iter__(self) -> Iterator[Batch]:
        batches = _of(self._loader)
        last: Batch = OVER
        try:
            for number in itertools.count():
                batch = self._drawn(batches, number)
                if not self._goes_on(Turn(self._until, number, batch is not OVER)):
                    return
                self._counts = batch is not OVER
                if batch is OVER:
                    batch = last
                elif self._until == "longest":
                    last = batch
                yield batch
        finally:
            self._counts = True

    # Private.
    def _drawn(self, batches: Iterator[Batch], number: int) -> Batch:
        """Before anything is asked: who has none says so, and nobody waits for who cannot."""
        try:
            return next(batches, OVER)
        except Exception as problem:
            words = f"{type(problem).__name__}: {problem}"[:MOST_WORDS]
            with contextlib.suppress(Exception):  # the ranks are not there any more: its own goes first
                self._gathered(Turn(self._until, number, False, words))
            raise

    def _goes_on(self, mine: Turn) -> bool:
        """Whether all have another batch: the same answer on all ranks, as each has the same turns."""
        turns = self._gathered(mine)
        for rank, turn in enumerate(turns):
            if isinstance(turn, Turn) and turn.problem:
                raise PeerError(f"even(): rank {rank} could not load batch {turn.number}: {turn.problem}")
        if any(not isinstance(turn, Turn) or turn[:2] != mine[:2] for turn in turns):
            _refuse_apart(turns)
        there = [turn.there for turn in turns]
        if self._until == "longest" and mine.number == 0 and any(there) and not all(there):
            raise UsageError(f"even(until=\"longest\"): the loader of rank {there.index(False)} has no batch at all, "
                             "of which the last could be given again; \"shortest\" ends there")
        return all(there) if self._until == "shortest" else any(there)


def _of(loader: Iterable[Batch]) -> Iterator[Batch]:
    """What is raised when it begins, too, comes with its first batch; behind its end it is not asked again."""
    yield from loader


def _refuse_apart(turns: list[Any]) -> NoReturn:
    where = [f"rank {rank} at batch {turn.number} (until=\"{turn.until}\")" if isinstance(turn, Turn) else
             f"rank {rank} at another call" for rank, turn in enumerate(turns)]
    raise UsageError("even(): the ranks are not at the same batch of a loop: " + ", ".join(where) +
                     ". Leave a loop before its end on all ranks, at the same batch")
