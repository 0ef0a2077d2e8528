"""Several processes that a launcher has started."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import forked
import penstock
import small_models as small
from fake_core import OpenFakeCore
from penstock.machine.processes import COUNTS

TESTS = Path(__file__).resolve().parent


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in (*COUNTS, "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)


def open_engine(**options):
    return penstock.initialize(small.Stack(), core=OpenFakeCore(), **options)[0]


@pytest.mark.parametrize("name", COUNTS[1:])
def test_several_that_do_not_know_each_other_are_refused_by_name(name, monkeypatch):
    monkeypatch.setenv(name, "2")
    with pytest.raises(penstock.UsageError, match=rf"{name} is 2.*ranks=False.*directory of its own"):
        open_engine()
    assert open_engine(ranks=False).global_steps == 0
    for one in ("1", "", "none", "01"):
        monkeypatch.setenv(name, one)
        open_engine()


def test_a_core_of_the_callers_is_one_processs(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(penstock.UsageError, match=r"core=\.\.\.\) in one of several processes.*ranks=False"):
        open_engine()
    assert open_engine(ranks=False).global_steps == 0


def test_an_allocation_of_slurms_is_no_process(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "8")
    open_engine()


def test_nothing_is_made_and_the_model_is_as_it_was(monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "4")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    model = small.Stack()
    with pytest.raises(penstock.UsageError, match="WORLD_SIZE is 4, and RANK, MASTER_ADDR, MASTER_PORT are not set"):
        penstock.initialize(model, store=tmp_path / "store")
    assert not (tmp_path / "store").exists()
    assert all(type(each) is torch.nn.Parameter for each in model.parameters())


@pytest.mark.parametrize("ranks", [True, 2, object()])
def test_ranks_are_those_that_there_are(ranks):
    with pytest.raises(penstock.UsageError, match="the processes that there are train one model"):
        open_engine(ranks=ranks)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_ranks_of_torch_without_a_variable_are_seen(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    with pytest.raises(penstock.UsageError, match="in one of several processes"):
        open_engine()


ALONE = """
import sys, torch, penstock, small_models as small
from fake_core import OpenFakeCore
torch.manual_seed(0)
engine, *_ = penstock.initialize(small.Stack(), core=OpenFakeCore(folder=sys.argv[1]), ranks=False)
engine.backward(small.loss(engine, small.ids(0)))
engine.step()
print(engine.global_steps)
"""


def test_two_that_train_alone_each_have_a_store(tmp_path):
    path = os.pathsep.join((str(TESTS), os.environ.get("PENSTOCK_PACKAGE_AT", str(TESTS.parent))))
    both = [forked.Popen([sys.executable, "-c", ALONE, str(tmp_path / str(rank))], stdout=subprocess.PIPE,
                         text=True, env={**os.environ, "PYTHONPATH": path, "WORLD_SIZE": "2", "RANK": str(rank)})
            for rank in range(2)]
    assert [each.communicate()[0] for each in both] == ["1\n", "1\n"]
