"""Checkpoints: tags that are replaced whole, arguments of DeepSpeed's, and client states that come back equal."""
from __future__ import annotations

import argparse
import collections
import os
import random
import shutil
from pathlib import Path

import numpy
import pytest
import torch

import penstock
import small_models as small
from compare import adamw
from cores import test_core as OpenCore
from penstock.checkpoints import checkpoint
from penstock.checkpoints.client_values import same
from penstock.weights.bits import same_bits
from resumed import losses_of, start
from test_client_values import plain_values, states_of_generators, tensors_and_arrays


def weights(engine):
    return {name: each.clone() for name, each in engine.state_dict().items()}


def equal(a, b) -> bool:
    return a.keys() == b.keys() and all(same_bits(a[name], b[name]) for name in a)


@pytest.mark.parametrize("tag", ["best", 7, numpy.int64(7)])
def test_a_tag_that_is_there_is_replaced_whole(tag, tmp_path):
    engine = start(tmp_path / "a", "multi_step")
    for step in range(3):
        losses_of(engine, step + 1)
        expected = weights(engine)
        place = engine.save_checkpoint(tmp_path / "c", tag, {"step": step})
        assert place == str(tmp_path / "c" / str(tag))
        assert sorted(os.listdir(place)) == ["engine.pt", "store" if step == 0 else f"store.{step + 1}"]
    losses_of(engine, 5)
    assert engine.load_checkpoint(tmp_path / "c") == (place, {"step": 2})
    assert equal(expected, weights(engine)) and engine.global_steps == 3
    assert engine.load_checkpoint(tmp_path / "c", tag)[1] == {"step": 2}


def test_a_tag_that_is_there_may_be_refused(tmp_path):
    engine = start(tmp_path / "a", "none")
    engine.save_checkpoint(tmp_path / "c", "one", {"of": 1})
    with pytest.raises(penstock.StorageError, match="there already"):
        engine.save_checkpoint(tmp_path / "c", "one", {"of": 2}, overwrite=False)
    assert engine.load_checkpoint(tmp_path / "c", "one")[1] == {"of": 1}


@pytest.mark.parametrize("tag", ["../one", "", ".", "..", "a/b", "latest"])
def test_what_names_no_directory_is_no_tag(tag, tmp_path):
    engine = start(tmp_path / "a", "none")
    for call in (engine.save_checkpoint, engine.load_checkpoint):
        with pytest.raises(penstock.UsageError, match="is no tag"):
            call(tmp_path / "c", tag)


class Killed(BaseException):
    pass


CUTS = ["mkdir", "begin_snapshot", "finish_snapshot", "save", "replace", "rmtree"]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("after", [False, True])
def test_one_of_them_is_whole_wherever_its_replacement_is_cut(cut, after, tmp_path, monkeypatch):
    engine = start(tmp_path / "a", "none")
    first = engine.save_checkpoint(tmp_path / "c", "best", {"of": 0}) and weights(engine)
    losses_of(engine, 1)
    second = weights(engine)
    owner = {"mkdir": checkpoint.Path, "begin_snapshot": engine.core, "finish_snapshot": engine.core, "save": torch,
             "replace": os, "rmtree": shutil}[cut]
    there = getattr(owner, cut)

    def cut_here(*args, **kwargs):
        if after:
            there(*args, **kwargs)
        raise Killed
    with monkeypatch.context() as patch:
        patch.setattr(owner, cut, cut_here)
        with pytest.raises(Killed):
            engine.save_checkpoint(tmp_path / "c", "best", {"of": 1})
    engine.core.finish_snapshot()
    of = engine.load_checkpoint(tmp_path / "c", "best")[1]["of"]
    assert equal(weights(engine), [first, second][of])
    assert of == (1 if (cut, after) in (("replace", True), ("rmtree", False), ("rmtree", True)) else 0)
    engine.save_checkpoint(tmp_path / "c", "best", {"of": 2})
    assert engine.load_checkpoint(tmp_path / "c")[1] == {"of": 2} and len(os.listdir(tmp_path / "c" / "best")) == 2


def test_the_same_step_saved_again_is_not_copied_again(tmp_path, monkeypatch):
    """Trainer's save calls save_checkpoint() for the weights and once more for the optimizer."""
    engine = start(tmp_path / "a", "none")
    losses_of(engine, 1)
    place = Path(engine.save_checkpoint(tmp_path / "c", "one", {"of": 1}))
    with monkeypatch.context() as patch:
        patch.setattr(engine.core, "begin_snapshot", None)
        engine.save_checkpoint(tmp_path / "c", "one", {"of": 2})
    assert sorted(os.listdir(place)) == ["engine.pt", "store"]
    saved = weights(engine)
    losses_of(engine, 2)
    assert engine.load_checkpoint(tmp_path / "c")[1] == {"of": 2} and equal(weights(engine), saved)


def states(engine):
    return {(name, what): engine.weight(name, what).clone() for name, _ in engine.named_weights()
            for what in ("weight", "master", "moment0")}


def a_step(engine, place):
    losses_of(engine, 2)


def a_weight_written(engine, place):
    name, value = next(iter(engine.named_weights()))
    engine.set_weight(name, value + 1)


def a_moment_written(engine, place):
    name, value = next(iter(engine.named_weights()))
    engine.set_weight(name, torch.full_like(value, 0.5), "moment0")


def a_weight_written_in_place(engine, place):
    parameter = next(iter(engine.module.parameters()))
    with torch.no_grad(), engine.gathered(parameter, modify=True):
        parameter.add_(1)


def another_loaded(engine, place):
    engine.load_checkpoint(place.parent, "before")


def gone(engine, place):
    shutil.rmtree(place / "store")


def a_file_of_it_gone(engine, place):
    next(each for each in (place / "store").iterdir() if each.is_file()).unlink()


@pytest.mark.parametrize("between", [a_step, a_weight_written, a_weight_written_in_place, a_moment_written,
                                     another_loaded, gone, a_file_of_it_gone],
                         ids=lambda each: each.__name__)
def test_what_has_changed_since_is_copied(between, tmp_path):
    engine = start(tmp_path / "a", "none")
    engine.save_checkpoint(tmp_path / "c", "before")
    losses_of(engine, 1)
    place = Path(engine.save_checkpoint(tmp_path / "c", "one"))
    between(engine, place)
    now = states(engine)
    engine.save_checkpoint(tmp_path / "c", "one")
    losses_of(engine, 3)
    engine.load_checkpoint(tmp_path / "c", "one")
    assert equal(states(engine), now)


def test_files_of_the_users_beside_a_checkpoint_stay(tmp_path):
    engine = start(tmp_path / "a", "none")
    engine.save_checkpoint(tmp_path / "c", "best")
    for name in ("store.txt", "tokenizer.json"):
        (tmp_path / "c" / "best" / name).write_text("mine")
    engine.save_checkpoint(tmp_path / "c", "best")
    assert {"store.txt", "tokenizer.json"} < set(os.listdir(tmp_path / "c" / "best"))


def test_a_snapshot_beside_trainers_files_is_whole_or_not_there(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    from penstock.hugging_face import KeepSnapshots
    engine = start(tmp_path / "a", "none")
    losses_of(engine, 1)
    args = argparse.Namespace(output_dir=str(tmp_path / "out"), save_total_limit=1)
    state = argparse.Namespace(global_step=1)
    checkpoint_1 = tmp_path / "out" / "checkpoint-1"
    checkpoint_1.mkdir(parents=True)
    callback = KeepSnapshots(engine)
    with monkeypatch.context() as patch:
        patch.setattr(engine.core, "finish_snapshot", lambda: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            callback.on_save(args, state, None)
    engine.core.finish_snapshot()
    assert os.listdir(checkpoint_1) == ["penstock-step-1.new"]
    callback.on_train_begin(args, state, None)
    assert os.listdir(checkpoint_1) == ["penstock-step-1"]
    before = dict(engine.named_weights())
    losses_of(engine, 2)
    callback.on_init_end(args, state, None)
    engine.optimizer.go_back(1)
    assert equal(before, dict(engine.named_weights()))


def test_latest_is_written_unless_it_is_not_wanted(tmp_path):
    engine = start(tmp_path / "a", "none")
    engine.save_checkpoint(tmp_path / "c", "one")
    engine.save_checkpoint(tmp_path / "c", "two", save_latest=False)
    assert (tmp_path / "c" / "latest").read_text() == "one"
    assert engine.load_checkpoint(tmp_path / "c")[0].endswith("one")


def test_arguments_that_a_snapshot_cannot_obey_are_refused_by_name(tmp_path):
    engine = start(tmp_path / "a", "none")
    with pytest.raises(penstock.UsageError, match="exclude_frozen_parameters"):
        engine.save_checkpoint(tmp_path / "c", exclude_frozen_parameters=True)
    engine.save_checkpoint(tmp_path / "c", exclude_frozen_parameters=False)
    with pytest.raises(penstock.UsageError, match="custom_load_fn"):
        engine.load_checkpoint(tmp_path / "c", custom_load_fn=print)
    engine.load_checkpoint(tmp_path / "c", None, True, True, True, False, None)


def test_the_remedy_for_weights_alone_helps(tmp_path):
    engine = start(tmp_path / "a", "none")
    losses_of(engine, 2)
    engine.save_checkpoint(tmp_path / "c")
    losses_of(engine, 3)
    engine.load_checkpoint(tmp_path / "c")
    expected = weights(engine)
    engine.save_pretrained(tmp_path / "weights")
    model = small.Stack(block=small.Normed)
    fresh = penstock.initialize(model, adamw(model.parameters()), core=OpenCore(), weights=tmp_path / "weights")[0]
    assert equal(expected, weights(fresh)) and fresh.global_steps == 0


def test_the_schedulers_state_may_be_left(tmp_path):
    engine = start(tmp_path / "a", "multi_step")
    losses_of(engine, 1)
    engine.save_checkpoint(tmp_path / "c")
    losses_of(engine, 3)
    engine.load_checkpoint(tmp_path / "c", load_lr_scheduler_states=False)
    assert engine.lr_scheduler.last_epoch == 3 and engine.global_steps == 1
    engine.load_checkpoint(tmp_path / "c")
    assert engine.lr_scheduler.last_epoch == 1


def test_buffers_that_the_model_does_not_have_are_refused_or_passed_over(tmp_path):
    engine = start(tmp_path / "a", "none")
    engine.save_checkpoint(tmp_path / "c")
    before = weights(engine)
    module = engine.module.blocks[0]
    name = next(iter(module.norm._buffers))
    taken = module.norm._buffers.pop(name)
    with pytest.raises(penstock.ModelError, match="load_module_strict=False"):
        engine.load_checkpoint(tmp_path / "c")
    engine.load_checkpoint(tmp_path / "c", load_module_strict=False)
    module.norm.register_buffer(name, taken)
    assert equal(before, weights(engine))


def test_a_client_state_of_any_kind_comes_back_equal(tmp_path):
    engine = start(tmp_path / "a", "none")
    values = [*plain_values(), *tensors_and_arrays(), *states_of_generators()]
    given = {"values": values, "args": argparse.Namespace(lr=0.1), ("a", 1): collections.Counter({2: 3}), "best": numpy.float64(0.5)}
    engine.save_checkpoint(tmp_path / "c", client_state=given)
    found = engine.load_checkpoint(tmp_path / "c")[1]
    assert same(found, given)
    random.setstate(found["values"][-8])


def test_a_client_state_that_would_not_come_back_is_refused_before_anything_is_made(tmp_path):
    engine = start(tmp_path / "a", "none")
    with pytest.raises(penstock.UsageError, match=r"^client_state\['model'\] is a .*Linear.*state_dict\(\)"):
        engine.save_checkpoint(tmp_path / "c", client_state={"model": torch.nn.Linear(1, 1)})
    with pytest.raises(penstock.UsageError, match="the store has the model's parameters"):
        engine.save_checkpoint(tmp_path / "c", client_state={"weight": engine.module.head.weight})
    assert not (tmp_path / "c").exists()


def test_rates_that_numpy_computed_are_saved(tmp_path):
    engine = start(tmp_path / "a", "none")
    engine.optimizer.param_groups[0]["lr"] = numpy.float64(0.005)
    losses_of(engine, 1)
    engine.save_checkpoint(tmp_path / "c")
    losses_of(engine, 2)
    engine.load_checkpoint(tmp_path / "c")
    assert engine.get_lr() == [0.005]


def test_a_checkpoint_of_an_earlier_version_is_taken(tmp_path):
    engine = start(tmp_path / "a", "multi_step")
    losses_of(engine, 1)
    place = tmp_path / "c" / "old"
    engine.save_checkpoint(tmp_path / "c", "old", {"epoch": 1})
    state, snapshot = checkpoint._read(place, tmp_path / "c")
    assert snapshot == "store"
    torch.save(state, place / "engine.pt")
    expected = losses_of(engine, 3)
    engine.load_checkpoint(tmp_path / "c", restore_random=True)
    assert losses_of(engine, 3) == expected
    engine.save_checkpoint(tmp_path / "c", "old", {"epoch": 2})
    assert engine.load_checkpoint(tmp_path / "c")[1] == {"epoch": 2}


def test_a_checkpoint_with_a_value_of_a_later_version_says_so(tmp_path):
    engine = start(tmp_path / "a", "none")
    engine.save_checkpoint(tmp_path / "c", "one")
    torch.save({"snapshot": "store", "values": {"client_state": ["a kind of tomorrow"], "engine": ["dict"]}}, tmp_path / "c" / "one" / "engine.pt")
    with pytest.raises(penstock.StorageError, match="a kind of tomorrow"):
        engine.load_checkpoint(tmp_path / "c", "one")
