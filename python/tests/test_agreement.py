"""What ranks must have alike: whoever differs is named, with the same words on all, before anything is made."""
from __future__ import annotations

import socket
from dataclasses import replace

import pytest

import penstock
from penstock.ranks.agreement import Said, agree, disagreement, values_of
from penstock.run.loader import Loader, Loading
from penstock.run.rows import Share
from penstock.settings import Settings
from penstock.store import Store
from rank_threads import on_ranks

HOST = socket.gethostname()


def values(rank=0, rows=22, settings=Settings(micro_batch=2), loading=Loading(), store=Store("/nvme/run")):
    return values_of(store, settings, Loader(range(rows), settings, loading, Share(rank, 2)).alike())


OTHERS = {
    "rows": ({"rows": 23}, "training_data 23 rows, the other has 22 rows"),
    "micro-batch": ({"settings": Settings(micro_batch=3)}, "rows of a micro-batch 3, the other has 2"),
    "accumulation": ({"settings": Settings(micro_batch=2, accumulation=4)}, "micro-batches a step 4, the other has 1"),
    "shuffle": ({"loading": Loading(shuffle=False)}, "shuffle False, the other has True"),
    "seed": ({"loading": Loading(seed=7)}, "shuffle_seed 7, the other has 0"),
    "drop_last": ({"settings": Settings(micro_batch=2, drop_last=True)}, "drop_last True, the other has False"),
    "directory": ({"store": Store("/nvme/run1")}, "the directory of the store /nvme/run1, the other has /nvme/run"),
    "directories": ({"store": Store(["/nvme/run", "/b"])}, "the directory of the store (number 1) /b, the other has nothing")}


@pytest.mark.parametrize("what", OTHERS)
def test_who_differs_is_named_by_all_with_the_same_words(what):
    changed, words = OTHERS[what]
    ends = on_ranks(2, lambda rank, gathered: agree(gathered, values(rank, **(changed if rank else {}))))
    assert [type(each) for each in ends] == [penstock.UsageError] * 2
    assert {str(each) for each in ends} == {f"the processes do not train the same: rank 1 ({HOST}) differs: {words}"}


def test_ranks_that_have_all_alike_go_on():
    assert on_ranks(3, lambda rank, gathered: agree(gathered, values(rank))) == [None] * 3


def test_one_place_may_be_spelled_in_two_ways_and_one_of_a_single_run_is_each_ranks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert values(store=Store("a/../run")) == values(store=Store(tmp_path / "run"))
    assert values(store=Store("/drive0", keep=False)) == values(store=Store("/drive1", keep=False))
    assert values(store=replace(Store.in_memory(), directories="/tmp/1")) == values(store=Store.in_memory())


def test_a_loader_that_one_rank_has_alone_is_named():
    told = [Said("a", values()), Said("b", values_of(Store("/nvme/run"), Settings(micro_batch=2), {}))]
    assert disagreement(told).startswith("rank 1 (b) differs: training_data nothing, the other has 22 rows; ")


def test_most_are_right_and_a_rank_of_another_version_is_one_sentence():
    told = [Said(f"worker-{rank // 2}", {"torch": "2.8" if rank == 2 else "2.11", "penstock": "0" if rank == 2 else "1",
                                         "shuffle_seed": str(rank if rank > 2 else 0)}) for rank in range(5)]
    assert disagreement(told) == ("rank 2 (worker-1) differs: torch 2.8, the others have 2.11; penstock 0, the others have 1. "
                                  "rank 3 (worker-1) differs: shuffle_seed 3, most others have 0. "
                                  "rank 4 (worker-2) differs: shuffle_seed 4, most others have 0")
