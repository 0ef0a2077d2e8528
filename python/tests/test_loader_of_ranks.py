"""The loader of training_data over several ranks: whose rows are whose, and how another number of ranks goes on."""
from __future__ import annotations

import json
import random
from dataclasses import dataclass

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, get_worker_info

from penstock import Settings
from penstock.run.loader import Loader, Loading
from penstock.run.rows import Share


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, index):
        return index


class Stream(IterableDataset):
    """Workers share it out, as a stream's have to."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        worker = get_worker_info()
        return iter(range(self.rows) if worker is None else range(worker.id, self.rows, worker.num_workers))


class Sized(Stream):
    def __len__(self):
        return self.rows


@dataclass
class Life:
    """Of a training: all its ranks, which make their steps together."""

    data: Dataset
    ranks: int = 1
    rows: int = 2  # of a micro-batch
    shuffle: bool = True
    drop_last: bool = False
    seed: int = 0
    workers: int = 0

    def __post_init__(self):
        self.steps = 0
        self.loaders = [Loader(self.data, Settings(micro_batch=self.rows, drop_last=self.drop_last),
                               Loading(self.shuffle, self.seed, self.workers), Share(rank, self.ranks))
                        for rank in range(self.ranks)]
        for each in self.loaders:
            each.follow(lambda: self.steps)

    def go_to(self, position):
        for each in self.loaders:
            each.go_to(position)
        return self

    def epoch(self, most=None):
        """The batches of each step, rank by rank, with which it was trained; so many steps at most."""
        steps = []
        iterators = [iter(each) for each in self.loaders]
        while most is None or len(steps) < most:
            batches = [next(each, None) for each in iterators]
            there = [each is not None for each in batches]
            if not all(there):
                assert not any(there), "not all ranks have a batch"
                break
            self.steps += 1
            steps.append([each.tolist() for each in batches])
        return steps

    def position(self):
        said = {each.position() for each in self.loaders}
        assert len(said) == 1, "ranks say different places"
        return said.pop()


def in_order(steps):
    """The rows of all ranks as the epoch's order has them."""
    return [row for batches in steps for turn in zip(*batches, strict=True) for row in turn]


def permuted(rows, shuffle, seed, epoch):
    sampler = DistributedSampler(Rows(rows), num_replicas=1, rank=0, shuffle=shuffle, seed=seed)
    sampler.set_epoch(epoch)
    return list(sampler)


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_those_of_torchs_distributed_sampler(seed):
    chance = random.Random(seed)
    for _ in range(25):
        rows, ranks, micro = chance.randint(1, 50), chance.randint(1, 5), chance.randint(1, 6)
        shuffle, drop_last, shuffle_seed = chance.random() < 0.5, chance.random() < 0.5, chance.randint(0, 99)
        life = Life(Rows(rows), ranks, micro, shuffle, drop_last, shuffle_seed)
        samplers = [DistributedSampler(Rows(rows), ranks, rank, shuffle, shuffle_seed, drop_last)
                    for rank in range(ranks)]
        theirs = [DataLoader(Rows(rows), micro, sampler=each, drop_last=drop_last) for each in samplers]
        assert {len(each) for each in life.loaders} == {len(each) for each in theirs}
        for epoch in range(3):
            for each in samplers:
                each.set_epoch(epoch)
            wanted = [[batch.tolist() for batch in each] for each in theirs]
            steps = life.epoch()
            assert [[batches[rank] for batches in steps] for rank in range(ranks)] == wanted
            if not steps:
                break  # an epoch without batches is never used


@pytest.mark.parametrize("data", [Rows, Stream])
@pytest.mark.parametrize("seed", range(6))
def test_whatever_ranks_go_on_each_row_of_the_epoch_is_taken_once(data, seed):
    chance = random.Random(seed)
    for _ in range(20):
        rows, drop_last = chance.randint(1, 60), chance.random() < 0.3
        shuffle = data is Rows and chance.random() < 0.7
        order, seen, text = permuted(rows, shuffle, 0, 0), [], None
        for stay in range(4):
            life = Life(data(rows), chance.randint(1 + (stay % 2), 5), chance.randint(1, 4), shuffle, drop_last)
            if text is not None:
                life.go_to(text)
            left, turn = rows - len(seen), life.ranks * life.rows
            seen += in_order(life.epoch(chance.randint(0, min(3, (left - 1) // turn)) if stay < 3 else None))
            text = life.position()
        if drop_last and left < turn:
            continue  # there is no batch any more, and the next epoch was given
        assert life.loaders[0].epoch == 1 and json.loads(text)[:2] == [1, 0]
        assert seen[:rows] == order[:len(seen)], "each once"
        if drop_last:
            assert rows - turn < len(seen) <= rows
        else:
            assert seen[rows:] == [order[each % rows] for each in range(len(seen) - rows)], "filled up"
            assert len(seen) - rows < life.ranks


@pytest.mark.parametrize("now", [1, 2, 3, 4])
@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("data", [Rows, Stream])
def test_a_stop_in_the_middle_and_at_the_end(data, before, now):
    """23 rows, 2 a batch: the next epoch is whole for all."""
    shuffle = data is Rows
    for steps in range(1, 13):
        first = Life(data(23), before, shuffle=shuffle)
        seen = in_order(first.epoch(steps))
        then = Life(data(23), now, shuffle=shuffle).go_to(first.position())
        at_end = len(seen) >= 23
        seen += [] if at_end else in_order(then.epoch())
        assert seen[:23] == permuted(23, shuffle, 0, 0) and len(seen) <= 26
        assert in_order(then.epoch())[:23] == permuted(23, shuffle, 0, 1) and then.loaders[0].epoch == 2


def test_the_same_ranks_go_on_with_the_batches_that_there_would_have_been():
    for data in (Rows(23), Stream(23)):
        whole = Life(data, 3).epoch()
        for steps in range(1, 5):
            first = Life(data, 3)
            begun = first.epoch(steps)
            then = Life(data, 3).go_to(first.position())
            assert then.position() == first.position()
            if steps < 4:
                assert begun + then.epoch() == whole


OLD = "[1, 3, [11, 2, true, 0, false]]"  # what one rank has committed since there is a loader


def test_what_one_rank_commits_stays_as_it_was_and_is_read():
    life = Life(Rows(11))
    life.epoch()
    life.epoch(3)
    assert life.position() == OLD
    rest = permuted(11, True, 0, 1)[6:]
    one = Life(Rows(11)).go_to(OLD)
    assert one.position() == OLD and in_order(one.epoch()) == rest
    for ranks in (2, 5):
        assert in_order(Life(Rows(11), ranks, rows=1).go_to(OLD).epoch())[:5] == rest


def test_one_rank_goes_on_where_several_were_and_says_so_until_the_epoch_ends():
    several = Life(Rows(23), 3, rows=1)
    begun = several.epoch(3)
    one = Life(Rows(23)).go_to(several.position())
    middle = one.epoch(2)
    assert json.loads(one.position()) == [0, 2, [23, 2, True, 0, False, 1, 9]]
    last = Life(Rows(23)).go_to(one.position())
    assert in_order(begun + middle) + in_order(last.epoch()) == permuted(23, True, 0, 0)
    last.epoch(1)
    assert json.loads(last.position()) == [1, 1, [23, 2, True, 0, False]]


def test_what_was_only_looked_at_behind_a_change_of_ranks_comes_again():
    several = Life(Rows(23), 3)
    several.epoch(2)
    one = Life(Rows(23)).go_to(several.position())
    text = one.position()
    looked = [next(iter(one.loaders[0])).tolist() for _ in range(2)]
    assert looked[0] == looked[1] == permuted(23, True, 0, 0)[12:14]
    assert one.position() == text


def test_other_data_begin_the_next_epoch_and_rank_0_tells_it(caplog):
    several = Life(Rows(23), 3)
    several.epoch(2)
    for other in (Life(Rows(24), 3), Life(Rows(23), 2, seed=1), Life(Rows(23), 2, shuffle=False)):
        caplog.clear()
        other.go_to(several.position())
        assert [each.levelname for each in caplog.records] == ["WARNING"] and "rows, batch size" in caplog.text
        assert other.loaders[0].epoch == 1 and len(other.epoch()) == len(other.loaders[0])
    caplog.clear()
    Life(Rows(23), 3, rows=5, drop_last=True).go_to(several.position())
    assert caplog.records == [], "batches of another size go on at the row"
    alone = Life(Rows(23))
    alone.epoch(2)
    assert Life(Rows(23), rows=5).go_to(alone.position()).loaders[0].epoch == 1 and "rows, batch size" in caplog.text


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_stream_is_read_by_all_and_has_as_many_batches_as_rows_in_order(drop_last):
    for rows in (1, 2, 7, 12, 23):
        for ranks in (2, 3, 5):
            plain = Life(Rows(rows), ranks, shuffle=False, drop_last=drop_last)
            life = Life(Sized(rows), ranks, shuffle=False, drop_last=drop_last)
            assert len(life.loaders[0]) == len(plain.loaders[0])
            assert life.epoch() == plain.epoch()


def test_that_a_stream_is_read_by_all_is_told_once(caplog):
    Life(Stream(7), 1)
    Life(Rows(7), 3)
    assert caplog.records == []
    Life(Stream(7), 3)
    assert caplog.text.count("each of 3 ranks reads all of it and takes one row of 3") == 1


def test_a_stream_of_several_workers_goes_on_with_as_many_ranks_alone(caplog):
    life = Life(Stream(23), 2, workers=2)
    seen = life.epoch(3)
    text = life.position()
    rest = Life(Stream(23), 2, workers=2).go_to(text).epoch()
    taken = [row for batches in seen + rest for batch in batches for row in batch]
    assert {*taken} == {*range(23)} and len(taken) == 24
    caplog.clear()
    other = Life(Stream(23), 3, workers=2).go_to(text)
    assert "no row at which 3 ranks with 2 rows a batch go on where 2 with 2 were" in caplog.text
    assert other.loaders[0].epoch == 1


class Seeds(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, _):
        return torch.initial_seed()


def test_workers_of_each_rank_have_seeds_of_their_own_and_those_of_rank_0_are_one_ranks():
    seeds = [{seed for batch in each for seed in batch.tolist()} for ranks in (1, 3)
             for each in Life(Seeds(), ranks, seed=5, workers=1).loaders]
    as_ever = torch.empty((), dtype=torch.int64).random_(generator=torch.Generator().manual_seed(5)).item()
    assert seeds[0] == seeds[1] == {as_ever}
    assert len(set.union(*seeds)) == 3


def test_torchs_random_states_stay_as_they_are():
    life = Life(Rows(23), 3)
    before = torch.get_rng_state()
    life.epoch()
    assert torch.equal(torch.get_rng_state(), before)
