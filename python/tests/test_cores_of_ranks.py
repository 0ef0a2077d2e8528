"""Threads of ranks that share the cores of a machine."""
from __future__ import annotations

import os

import pytest
import torch

from penstock.ranks.cores import of_torchrun, with_own_cores
from penstock.store import Store


class Ranks:
    """All on one machine, with the same cores."""

    def __init__(self, rank, ranks=2):
        self.rank, self.ranks = rank, ranks

    def gathered(self, value):
        return [value] * self.ranks


@pytest.fixture
def eight(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(8)})
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    for name in ("OMP_NUM_THREADS", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)


def test_ranks_of_a_machine_divide_its_cores(eight, monkeypatch, caplog):
    assert with_own_cores(Store("x"), Ranks(0)).threads == 4
    assert with_own_cores(Store("x", threads=3), Ranks(0)).threads == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert with_own_cores(Store("x"), Ranks(0)).threads == 0 and not caplog.records, "who has said it is obeyed"


def test_torchruns_one_thread_is_told_of_by_rank_0_where_there_are_more_cores(eight, monkeypatch, caplog):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    with_own_cores(Store("x"), Ranks(1))
    with_own_cores(Store("x", threads=4), Ranks(0))
    with_own_cores(Store("x"), Ranks(0, ranks=8))
    assert not caplog.records
    with_own_cores(Store("x"), Ranks(0))
    assert [each.message for each in caplog.records] == [of_torchrun(os.environ, 4)]
    assert "one thread of its 4 cores. OMP_NUM_THREADS=4 torchrun ..." in caplog.text


@pytest.mark.parametrize("threads", [None, "2", "8"])
def test_nothing_is_told_of_threads_that_somebody_has_said(threads):
    environment = {"TORCHELASTIC_RUN_ID": "none"} | ({} if threads is None else {"OMP_NUM_THREADS": threads})
    assert of_torchrun(environment, 4) is None
