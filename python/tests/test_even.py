"""even(): loops over loaders of different lengths, which ranks go through and end together."""
from __future__ import annotations

import random
import threading

import pytest

from penstock import PeerError, UsageError
from penstock.ranks.even import even
from rank_threads import on_ranks


def given(lengths, until, loops=1):
    """What each rank is given of a loader of so many batches, and which of them count."""
    def work(rank, gathered):
        batches = even(gathered, [f"{rank}.{number}" for number in range(lengths[rank])], until)
        return [[(batch, batches.counts) for batch in batches] for _ in range(loops)]
    return on_ranks(len(lengths), work)


def test_one_rank_has_its_loader_itself():
    loader = [1, 2]
    assert even(None, loader) is even(None, loader, "longest") is loader


def test_until_is_one_of_two_words():
    with pytest.raises(UsageError, match='until=.*shortest'):
        even(None, [], "middle")


@pytest.mark.parametrize("seed", range(20))
def test_all_end_together(seed):
    chance = random.Random(seed)
    lengths = [chance.randint(1, 6) for _ in range(chance.randint(1, 4))]
    for rank, loops in enumerate(given(lengths, "shortest", 2)):
        assert loops == [[(f"{rank}.{number}", True) for number in range(min(lengths))]] * 2
    for rank, loops in enumerate(given(lengths, "longest", 2)):
        own = lengths[rank]
        assert loops == [[(f"{rank}.{min(number, own - 1)}", number < own) for number in range(max(lengths))]] * 2


def test_nobody_waits_for_a_loader_without_batches():
    assert given([0, 2, 0], "shortest") == [[[]]] * 3
    assert given([0, 0], "longest") == [[[]]] * 2
    for error in given([2, 0, 2], "longest"):
        assert isinstance(error, UsageError) and "rank 1 has no batch at all" in str(error)


def test_batches_count_again_behind_a_loop_however_it_ends():
    def work(rank, gathered):
        batches = even(gathered, range(rank + 1), "longest")
        counted = []
        for number, _ in enumerate(batches):
            counted.append(batches.counts)
            if number == 1:
                break
        return counted, batches.counts
    assert on_ranks(3, work) == [([True, False], True), ([True, True], True), ([True, True], True)]


class Broken:
    """It gives so many batches and fails, or fails when it begins."""

    def __init__(self, batches, problem):
        self.batches, self.problem = batches, problem

    def __iter__(self):
        if self.batches is None:
            raise self.problem
        return self.rows()

    def rows(self):
        yield from range(self.batches)
        raise self.problem


@pytest.mark.parametrize("until", ["shortest", "longest"])
@pytest.mark.parametrize("batches", [None, 0, 2])
def test_an_exception_of_a_loader_is_its_ranks_and_its_words_are_the_others(until, batches):
    problem = FileNotFoundError("shard 7 " * 1000)
    seen = [[], [], []]

    def work(rank, gathered):
        for batch in even(gathered, Broken(batches, problem) if rank == 1 else range(4), until):
            seen[rank].append(batch)
    first, own, last = on_ranks(3, work)
    assert own is problem
    for error in (first, last):
        assert isinstance(error, PeerError) and len(str(error)) < 2200
        assert str(error).startswith(f"even(): rank 1 could not load batch {batches or 0}: FileNotFoundError: shard 7")
    assert seen == [[*range(batches or 0)]] * 3


def test_a_rank_raises_its_own_exception_though_the_others_are_gone():
    problem = ValueError("its own")

    def work(rank, gathered):
        return None if rank == 0 else list(even(gathered, Broken(0, problem)))
    assert on_ranks(2, work, deadline=0.2) == [None, problem]


def test_who_leaves_alone_and_begins_the_next_loop_is_told_where_all_are():
    def work(rank, gathered):
        for loop in range(2):
            for number, _ in enumerate(even(gathered, range(6))):
                if rank == loop == 0 and number == 2:
                    break
    for error in on_ranks(2, work):
        assert isinstance(error, UsageError)
        assert 'rank 0 at batch 0 (until="shortest"), rank 1 at batch 3 (until="shortest")' in str(error)


def test_who_leaves_alone_and_calls_something_else_is_told():
    def work(rank, gathered):
        if rank == 0:
            return gathered(7)[0]
        return list(even(gathered, range(6)))
    seven, error = on_ranks(2, work)
    assert seven == 7 and isinstance(error, UsageError) and "rank 0 at another call, rank 1 at batch 0" in str(error)


def test_loops_with_different_ends_are_told():
    for error in on_ranks(2, lambda rank, gathered: list(even(gathered, range(3), ("shortest", "longest")[rank]))):
        assert isinstance(error, UsageError)
        assert 'rank 0 at batch 0 (until="shortest"), rank 1 at batch 0 (until="longest")' in str(error)


def test_who_leaves_alone_for_good_leaves_the_others_until_the_deadline():
    def work(rank, gathered):
        for number, _ in enumerate(even(gathered, range(6))):
            if rank == 0 and number == 2:
                return number
    ended, waited = on_ranks(2, work, deadline=0.2)
    assert ended == 2 and isinstance(waited, threading.BrokenBarrierError)


def test_an_interrupt_is_told_to_nobody():
    calls = []

    def gathered(value):
        calls.append(value)
        return [value]
    with pytest.raises(KeyboardInterrupt):
        list(even(gathered, Broken(0, KeyboardInterrupt())))
    assert calls == []


def test_a_loader_that_is_left_is_closed():
    closed = []

    def rows():
        try:
            yield from range(9)
        finally:
            closed.append(True)
    for _ in even(lambda value: [value], rows()):
        break
    assert closed == [True]
