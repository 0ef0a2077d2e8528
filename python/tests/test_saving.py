"""Checkpoints that are copied while training goes on: those of the step that they were asked in, there when they are whole."""
from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pytest

import forked
import penstock
import small_models as small
from compare import adamw
from cores import NATIVE
from cores import test_core as OpenCore
from penstock.errors import StorageError

HERE = Path(__file__).resolve().parent


def start(folder, seed=0):
    import torch
    torch.manual_seed(seed)
    model = small.Stack()
    return penstock.initialize(model, adamw(model.parameters()), core=OpenCore(folder=folder))[0]


def train(engine, steps):
    for number in range(steps):
        engine.backward(small.loss(engine, small.ids(number)))
        engine.step()


def weights(engine):
    return {name: engine.weight(name, "master").tolist() for name in engine.binding.named}


class Slow:
    """A copy takes as long as a test wants."""

    def __init__(self, engine, monkeypatch):
        self.under_way = True
        monkeypatch.setattr(engine.core, "copies_snapshot", lambda: self.under_way)


def test_it_is_of_the_step_in_which_it_was_asked_and_there_once_it_is_whole(tmp_path, monkeypatch):
    engine = start(tmp_path / "a")
    train(engine, 2)
    copy, expected = Slow(engine, monkeypatch), weights(engine)
    assert engine.save_checkpoint(tmp_path / "c", client_state={"epoch": 2}, wait=False) == str(tmp_path / "c" / "global_step2")
    train(engine, 2)
    assert not (tmp_path / "c" / "latest").exists() and not (tmp_path / "c" / "global_step2" / "engine.pt").exists()
    copy.under_way = False
    train(engine, 1)
    assert (tmp_path / "c" / "latest").read_text() == "global_step2"
    assert engine.load_checkpoint(tmp_path / "c")[1] == {"epoch": 2}
    assert weights(engine) == expected and engine.global_steps == 2


def test_steps_of_the_optimizer_alone_find_it_whole(tmp_path, monkeypatch):
    engine = start(tmp_path / "a")
    monkeypatch.setattr(engine.core, "copies_snapshot", lambda: False)
    engine.save_checkpoint(tmp_path / "c", "first", wait=False)
    small.loss(engine.module, small.ids()).backward()
    engine.optimizer.step()
    assert (tmp_path / "c" / "latest").read_text() == "first"


@pytest.mark.parametrize("ends", ["save", "load", "close", "collected"])
def test_whatever_comes_next_waits_for_it(tmp_path, monkeypatch, ends):
    engine = start(tmp_path / "a")
    train(engine, 1)
    Slow(engine, monkeypatch)
    engine.save_checkpoint(tmp_path / "c", "one", wait=False)
    if ends == "save":
        engine.save_checkpoint(tmp_path / "d")
    elif ends == "load":
        assert engine.load_checkpoint(tmp_path / "c")[0] == str(tmp_path / "c" / "one")
    elif ends == "close":
        engine.close()
    else:
        del engine
        import gc
        gc.collect()
    assert (tmp_path / "c" / "latest").read_text() == "one" and (tmp_path / "c" / "one" / "engine.pt").exists()


def test_one_that_fails_is_told_and_the_one_before_stays(tmp_path, monkeypatch):
    engine = start(tmp_path / "a")
    train(engine, 1)
    engine.save_checkpoint(tmp_path / "c", "best")
    train(engine, 1)

    def fails():
        raise StorageError("the disk is full")
    with monkeypatch.context() as patch:
        patch.setattr(engine.core, "finish_snapshot", fails)
        patch.setattr(engine.core, "copies_snapshot", lambda: False)
        engine.save_checkpoint(tmp_path / "c", "best", wait=False)
        with pytest.raises(StorageError, match="is full"):
            train(engine, 1)
    assert engine.global_steps == 3  # the step was made
    train(engine, 1)
    engine.load_checkpoint(tmp_path / "c")
    assert engine.global_steps == 1


@pytest.mark.skipif(not NATIVE, reason="of the core on NVMe")
def test_a_kill_leaves_the_one_before(tmp_path):
    script = f"""
import sys; sys.path[:0] = {sys.path!r}
import os
from test_saving import start, train
engine = start({str(tmp_path / "a")!r})
train(engine, 1)
engine.save_checkpoint({str(tmp_path / "c")!r}, "best")
train(engine, 1)
engine.core.copies_snapshot = lambda: True
engine.save_checkpoint({str(tmp_path / "c")!r}, "best", wait=False)
train(engine, 1)
os.kill(os.getpid(), 9)
"""
    forked.run([sys.executable, "-c", script], cwd=HERE, env={**os.environ, "PENSTOCK_TEST_CORE": "native"})
    engine = start(tmp_path / "a")
    assert engine.global_steps == 3
    engine.load_checkpoint(tmp_path / "c")
    assert engine.global_steps == 1
    engine.save_checkpoint(tmp_path / "c", "best")  # over what was left


def of_trainer(engine, tmp_path, limit=None):
    pytest.importorskip("transformers")
    from penstock.hugging_face import KeepSnapshots
    return KeepSnapshots(engine), argparse.Namespace(output_dir=str(tmp_path / "out"), save_total_limit=limit)


def test_trainers_next_save_finds_the_one_before_whole(tmp_path, monkeypatch):
    engine = start(tmp_path / "a")
    callback, args = of_trainer(engine, tmp_path)
    copy = Slow(engine, monkeypatch)
    for step in (1, 2):
        train(engine, 1)
        callback.on_step_end(args, argparse.Namespace(global_step=step), argparse.Namespace(should_save=True))
        assert step == 1 or os.listdir(tmp_path / "out" / "checkpoint-1") == ["penstock-step-1"]
        (tmp_path / "out" / f"checkpoint-{step}").mkdir(parents=True)
        callback.on_save(args, argparse.Namespace(global_step=step), None)
        assert f"penstock-step-{step}" not in os.listdir(tmp_path / "out" / f"checkpoint-{step}")
    assert copy.under_way
    callback.on_train_end(args, None, None)
    assert os.listdir(tmp_path / "out" / "checkpoint-2") == ["penstock-step-2"]


def test_where_trainer_keeps_one_checkpoint_it_is_waited_for(tmp_path, monkeypatch):
    engine = start(tmp_path / "a")
    callback, args = of_trainer(engine, tmp_path, limit=1)
    Slow(engine, monkeypatch)
    (tmp_path / "out" / "checkpoint-0").mkdir(parents=True)
    callback.on_save(args, argparse.Namespace(global_step=0), None)
    assert os.listdir(tmp_path / "out" / "checkpoint-0") == ["penstock-step-0"]


def test_a_checkpoint_of_trainers_that_is_not_whole_is_set_aside(tmp_path):
    engine = start(tmp_path / "a")
    callback, args = of_trainer(engine, tmp_path)
    for name in ("checkpoint-4/penstock-step-4", "checkpoint-6/penstock-step-6.new", "checkpoint-0/penstock-step-0.new"):
        (tmp_path / "out" / name).mkdir(parents=True)
    callback.on_init_end(args, None, None)
    assert sorted(os.listdir(tmp_path / "out")) == ["checkpoint-0", "checkpoint-4", "checkpoint-6.incomplete"]
