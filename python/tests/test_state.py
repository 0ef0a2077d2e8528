"""Weights in and out: state_dict, load_state_dict, gathered; checkpoints; a process that is stopped and goes on."""
from __future__ import annotations

import copy
import io

import pytest
import torch

import penstock
import small_models as small
from compare import adamw
from cores import test_core as OpenFakeCore
from penstock.weights.bits import same_bits


def open_engine(folder=None, block=small.Block, tied=False, scheduler=None, **settings):
    torch.manual_seed(0)
    model = small.Stack(block=block, tied=tied)
    opener = OpenFakeCore(folder=folder)
    engine, _, _, _ = penstock.initialize(model, adamw(model.parameters()), core=opener, lr_scheduler=scheduler,
                                          settings=penstock.Settings(**settings))
    return engine


def train(engine, first: int, last: int) -> list[float]:
    losses = []
    for step in range(first, last):
        torch.manual_seed(step)
        value = small.loss(engine, small.ids(step))
        engine.backward(value)
        engine.step()
        losses.append(value.item())
    return losses


def equal(a, b) -> bool:
    return a.keys() == b.keys() and all(same_bits(a[name], b[name]) for name in a)


def test_state_dict_has_the_weights_and_ties_share_memory():
    engine = open_engine(tied=True)
    torch.manual_seed(0)
    plain = small.Stack(tied=True)
    state = engine.state_dict()
    assert equal(dict(plain.state_dict()), dict(state))
    assert state["head.weight"].data_ptr() == state["embedding.weight"].data_ptr()


@pytest.mark.afterwards
def test_state_dict_may_be_taken_between_forward_and_backward():
    engine = open_engine()
    value = small.loss(engine, small.ids())
    before = copy.deepcopy(engine.state_dict())
    engine.backward(value)
    assert equal(before, engine.state_dict())
    engine.step()
    assert not equal(before, engine.state_dict())


def test_named_weights_streams_weights_masters_and_moments():
    engine = open_engine()
    train(engine, 0, 2)
    assert equal(dict(engine.named_weights()), dict(engine.state_dict()))
    assert equal(dict(engine.named_weights("master")), dict(engine.state_dict()))
    assert all(each.abs().sum() > 0 for name, each in engine.named_weights("moment1") if "embedding" not in name)


def test_load_state_dict_writes_to_the_store():
    engine, other = open_engine(), small.Stack()
    engine.load_state_dict(other.state_dict())
    assert equal(dict(other.state_dict()), dict(engine.state_dict()))
    with torch.no_grad():
        assert torch.equal(engine.eval()(small.ids()), other.eval()(small.ids()))


def test_loading_what_is_there_leaves_the_masters_alone():
    torch.manual_seed(0)
    model = small.Stack().bfloat16()
    engine, _, _, _ = penstock.initialize(model, adamw(model.parameters()), core=OpenFakeCore())
    train(engine, 0, 2)
    masters = dict(engine.named_weights("master"))
    assert any(not torch.equal(each, each.bfloat16().float()) for each in masters.values())
    engine.load_state_dict(engine.state_dict())
    assert equal(masters, dict(engine.named_weights("master")))


def test_a_weight_of_another_shape_or_name_is_refused_and_the_rest_is_as_it_was():
    engine = open_engine()
    before = dict(engine.state_dict())
    with pytest.raises(RuntimeError, match="size mismatch for head.weight"):
        engine.load_state_dict({**before, "head.weight": torch.zeros(3, 3)})
    with pytest.raises(RuntimeError, match="Unexpected key"):
        engine.load_state_dict({**before, "strange": torch.zeros(3)})
    with pytest.raises(RuntimeError, match="Missing key"):
        engine.load_state_dict({"head.weight": before["head.weight"]})
    assert equal(before, dict(engine.state_dict()))
    with pytest.raises(penstock.ModelError, match="assign"):
        engine.load_state_dict(before, assign=True)


def test_resident_units_follow_what_is_loaded():
    torch.manual_seed(0)
    model = small.Stack()
    engine, _, _, _ = penstock.initialize(model, core=OpenFakeCore(), resident=["norm"])
    engine.load_state_dict({**engine.state_dict(), "norm.weight": torch.full((small.WIDTH,), 3.0)})
    assert torch.equal(model.norm.weight, torch.full((small.WIDTH,), 3.0))


def test_gathered_reads_and_writes():
    engine = open_engine()
    weight = engine.module.head.weight
    with engine.gathered(weight):
        assert torch.equal(weight, engine.state_dict()["head.weight"])
    with engine.gathered([weight], modify=True):
        weight.data.zero_()
    assert engine.weight("head.weight").abs().sum() == 0
    engine.set_weight("head.weight", torch.ones(weight.shape))
    assert engine.weight("head.weight").sum() == weight.numel()
    with pytest.raises(penstock.UsageError, match="no parameter 'nothing'"):
        engine.weight("nothing")


def test_masters_and_moments_may_be_set():
    model = small.Stack().bfloat16()
    engine, optimizer, *_ = penstock.initialize(model, core=OpenFakeCore())
    wanted = torch.full((11, small.WIDTH), 1 + 2 ** -12)  # which bfloat16 rounds to 1
    engine.set_weight("head.weight", wanted, "master")
    assert torch.equal(engine.weight("head.weight", "master"), wanted) and (engine.weight("head.weight") == 1).all()
    engine.set_weight("head.weight", torch.ones(11, small.WIDTH))  # which it is: the master keeps its lower bits
    assert torch.equal(engine.weight("head.weight", "master"), wanted)
    engine.set_weight("head.weight", torch.ones(11, small.WIDTH), "master")
    assert (engine.weight("head.weight", "master") == 1).all()
    engine.set_weight("head.weight", wanted, "moment1")
    engine.backward(small.loss(engine, small.ids(0)).float())
    engine.step()
    assert torch.equal(optimizer.state[model.head.weight]["exp_avg_sq"], engine.weight("head.weight", "moment1"))
    assert engine.weight("head.weight", "moment1").min() > 0.99


def test_a_managed_model_is_neither_moved_nor_pickled():
    engine = open_engine()
    assert engine.module.to("cpu") is engine.module and engine.module.float() is engine.module
    for move in (lambda: engine.module.half(), lambda: engine.module.to("meta"), lambda: engine.module.head.double()):
        with pytest.raises(penstock.ModelError, match="cannot become"):
            move()
    with pytest.raises(penstock.PenstockError):
        torch.save(engine.module, io.BytesIO())


def test_a_checkpoint_brings_back_everything(tmp_path):
    make = {"block": small.Normed, "scheduler": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.5)}
    engine = open_engine(**make)
    train(engine, 0, 2)
    place = engine.save_checkpoint(tmp_path, client_state={"epoch": 3})
    assert place == str(tmp_path / "global_step2")
    expected = train(engine, 2, 5)
    end = copy.deepcopy(engine.state_dict())
    assert engine.load_checkpoint(tmp_path) == (place, {"epoch": 3})
    assert engine.global_steps == 2 and engine.get_lr() == [1e-2 * 0.25]
    assert train(engine, 2, 5) == expected and equal(end, engine.state_dict())
    other = open_engine(**make)
    other.load_checkpoint(tmp_path, "global_step2")
    assert train(other, 2, 5) == expected and equal(end, other.state_dict())


def test_a_program_that_is_stopped_goes_on_from_its_last_step(tmp_path):
    make = {"block": small.Normed, "scheduler": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.5),
            "accumulation": 1}
    engine = open_engine(tmp_path / "a", **make)
    expected = train(engine, 0, 5)
    end = engine.state_dict()
    first = open_engine(tmp_path / "b", **make)
    assert train(first, 0, 3) == expected[:3]
    small.loss(first, small.ids()).backward()  # and is killed
    first.core.close()
    second = open_engine(tmp_path / "b", **make)
    assert second.global_steps == 3 and second.micro_steps == 3
    assert train(second, 3, 5) == expected[3:] and equal(end, second.state_dict())


def test_there_is_no_checkpoint_yet(tmp_path):
    engine = open_engine()
    assert engine.load_checkpoint(tmp_path) == (None, {})
    with pytest.raises(penstock.StorageError, match="no checkpoint is there"):
        engine.load_checkpoint(tmp_path, "nothing")


def test_optimizer_state_goes_back_to_its_snapshot(tmp_path):
    engine = open_engine()
    engine.optimizer.leave_moments_to(lambda updates: engine.binding.go_back(str(tmp_path / f"step-{updates}")))
    train(engine, 0, 2)
    state = engine.optimizer.state_dict()
    engine.core.begin_snapshot(str(tmp_path / "step-2"))
    expected = train(engine, 2, 4)
    engine.optimizer.load_state_dict(state)
    assert engine.global_steps == 2 and train(engine, 2, 4) == expected
    with pytest.raises(ValueError, match="group"):
        engine.optimizer.load_state_dict(adamw([torch.nn.Parameter(torch.zeros(1))]).state_dict())


def test_resident_units_follow_the_store_to_a_snapshot(tmp_path):
    torch.manual_seed(0)
    opener = OpenFakeCore(folder=tmp_path / "a")
    engine, _, _, _ = penstock.initialize(small.Stack(), core=opener, resident=["norm"])
    train(engine, 0, 1)
    path = engine.save_checkpoint(tmp_path / "checkpoints")
    before = engine.module.norm.weight.clone()
    train(engine, 1, 3)
    assert not same_bits(before, engine.module.norm.weight)
    engine.load_checkpoint(tmp_path / "checkpoints")
    assert same_bits(before, engine.module.norm.weight), path
    assert len(train(engine, 1, 3)) == 2


def test_a_snapshot_that_is_not_there_changes_nothing(tmp_path):
    engine = open_engine(tmp_path / "a")
    train(engine, 0, 2)
    before = engine.state_dict()
    with pytest.raises(penstock.StorageError, match="nowhere"):
        engine.binding.go_back(str(tmp_path / "nowhere"))
    assert equal(before, engine.state_dict())
    train(engine, 2, 3)
