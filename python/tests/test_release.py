"""engine.release(): the model is an ordinary one again."""
from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import penstock
import small_models as small
from compare import adamw
from cores import test_core
from penstock.machine.host_memory import HostMemory
from penstock.weights.bits import same_bits
from twice import RESIDENT, managed, step


def things_in(model: nn.Module) -> list[Any]:
    """What a module has of its own, and how many hooks."""
    return [(name, sorted(module.__dict__), {key: len(each) for key, each in module.__dict__.items() if "hooks" in key})
            for name, module in model.named_modules()]


def plain(make=small.Stack, steps: int = 2) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = make()
    optimizer = adamw(model.parameters())
    torch.manual_seed(1)
    for number in range(steps):
        step(model, optimizer, number)
    return model, optimizer


def trained(make=small.Stack, steps: int = 2, **options: Any) -> penstock.Engine:
    engine = managed(make, **options)
    torch.manual_seed(1)
    for number in range(steps):
        step(engine.module, engine.optimizer, number)
    return engine


@RESIDENT
def test_it_is_the_model_that_was_given_with_the_weights_that_were_trained(resident):
    torch.manual_seed(0)
    before = things_in(small.Stack())
    expected, _ = plain()
    model = trained(resident=resident).release()
    assert things_in(model) == before
    for (name, each), (_, own) in zip(model.named_parameters(), expected.named_parameters()):
        assert type(each) is nn.Parameter and each.is_leaf and each.requires_grad and each.grad is None, name
        assert not vars(each) and not each._post_accumulate_grad_hooks and same_bits(each, own), name
    state = pickle.loads(pickle.dumps(model)).state_dict()
    assert all(same_bits(each, state[name]) for name, each in copy.deepcopy(expected).state_dict().items())


def test_the_optimizer_that_was_given_is_its_own_again():
    model = small.Stack()
    given = adamw(model.parameters())
    torch.optim.lr_scheduler.LambdaLR(given, lambda epoch: 1.0)
    before = dict(vars(given))
    engine, *_ = penstock.initialize(model, given, core=test_core())
    step(model, given, 0)
    moments = engine.export_states()
    expected = engine.release()
    assert {key: each for key, each in vars(given).items() if key != "_opt_called"} == before
    given.load_state_dict(moments)
    twin = copy.deepcopy(expected)
    theirs = adamw(twin.parameters())
    theirs.load_state_dict(copy.deepcopy(moments))
    for each, optimizer in ((expected, given), (twin, theirs)):
        torch.manual_seed(1)
        step(each, optimizer, 1)
    assert all(same_bits(each, own) for each, own in zip(expected.parameters(), twin.parameters()))


def test_torch_goes_on_with_it():
    model, expected = trained().release(), plain()[0]
    for each in (model, expected):
        torch.manual_seed(2)
        optimizer = torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9, foreach=False)
        for number in range(3):
            step(each, optimizer, number)
    assert all(same_bits(each, own) for each, own in zip(model.parameters(), expected.parameters()))
    model.double().half()
    model.head.weight = nn.Parameter(torch.zeros(3, 8))
    model.load_state_dict(model.state_dict(), assign=True)


def test_it_may_be_managed_again_and_again():
    """A second training with a new optimizer, as in a search for hyperparameters."""
    model, expected = trained().release(), plain()[0]
    for again in range(2):
        engine = penstock.initialize(model, adamw(model.parameters()), core=test_core())[0]
        optimizer = adamw(expected.parameters())
        for each, used in ((engine.module, engine.optimizer), (expected, optimizer)):
            torch.manual_seed(3 + again)
            step(each, used, again)
        assert engine.release() is model
        assert all(same_bits(each, own) for each, own in zip(model.parameters(), expected.parameters()))


def test_what_the_program_has_put_into_it_stays():
    seen: list[str] = []
    torch.manual_seed(0)
    model = small.Stack(tied=True)
    model.embedding.weight.register_post_accumulate_grad_hook(lambda each: seen.append("accumulated"))
    model.norm.weight.requires_grad_(False)
    engine = penstock.initialize(model, adamw([each for each in model.parameters() if each.requires_grad]), core=test_core())[0]
    model.blocks[1].register_forward_hook(lambda *_: seen.append("forward"))
    model.blocks[1].note = "kept"
    step(model, engine.optimizer, 0)
    engine.release()
    assert seen == ["forward", "accumulated"] and model.blocks[1].note == "kept" and model.head.weight is model.embedding.weight
    assert not model.norm.weight.requires_grad
    small.loss(model, small.ids()).backward()
    assert seen[2:] == ["forward", "accumulated"] and model.head.weight.grad is not None


def test_a_model_that_was_opened_for_forwards_alone():
    torch.manual_seed(0)
    model = small.Stack().requires_grad_(False).eval()
    expected = model(small.ids())
    engine = penstock.initialize(model, core=test_core())[0]
    assert same_bits(engine(small.ids()), expected)
    assert same_bits(engine.release()(small.ids()), expected)


def test_gradients_that_wait_go_and_a_graph_that_is_there_is_an_error():
    engine = trained()
    value = small.loss(engine, small.ids(5))
    waiting = small.loss(engine, small.ids(6))
    waiting.backward()
    model = engine.release()
    assert all(each.grad is None for each in model.parameters())
    with pytest.raises(penstock.PenstockError, match="a graph from before it has no weights"):
        value.backward()
    assert all(each.grad is None for each in model.parameters())


def test_where_there_is_no_room_it_is_an_error_and_the_training_goes_on(monkeypatch):
    engine, (expected, optimizer) = trained(), plain()
    monkeypatch.setattr("penstock.weights.loans.LITTLE_BYTES", 0)
    engine.binding.loans.room = lambda: HostMemory(100, "a test")
    with pytest.raises(penstock.FitError, match="the model with its weights in memory would take.*a test"):
        engine.release()
    for each, used in ((engine.module, engine.optimizer), (expected, optimizer)):
        torch.manual_seed(2)
        step(each, used, 2)
    assert all(same_bits(each, engine.weight(name)) for name, each in expected.named_parameters())


def test_when_it_may_not_be_called():
    engine = managed()
    told: list[str] = []

    def hook(*_: Any) -> None:
        with pytest.raises(penstock.UsageError, match="within a forward or backward") as error:
            engine.release()
        told.append(str(error.value))
    handle = engine.module.norm.register_forward_hook(hook)
    engine(small.ids())
    handle.remove()
    assert len(told) == 1
    engine.close()
    with pytest.raises(penstock.UsageError, match=r"after engine.close\(\)"):
        engine.release()


def test_the_engine_is_closed_by_it():
    engine = trained()
    engine.release()
    engine.close()
    engine.backward(small.loss(engine, small.ids()))  # of an ordinary model
    for use in (engine.step, engine.optimizer.step, lambda: engine.weight("head.weight"), engine.release):
        with pytest.raises(penstock.PenstockError):
            use()


def test_a_commit_that_fails_is_told_and_the_model_is_given_back(monkeypatch):
    engine, expected = trained(), plain()[0]
    monkeypatch.setattr("penstock.run.ending.settle", lambda core: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        engine.release()
    assert all(type(each) is nn.Parameter and same_bits(each, own)
               for each, own in zip(engine.module.parameters(), expected.parameters()))
