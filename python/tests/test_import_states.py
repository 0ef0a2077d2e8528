"""States of an optimizer of torch's that has trained go into an engine, and come out again: training goes on as torch's."""
from __future__ import annotations

import pytest
import torch

import penstock
import small_models as small
from compare import adamw
from cores import round_each_operation
from cores import test_core as OpenCore

MAKERS = {
    "adamw": adamw, "adam": lambda given: torch.optim.Adam(given, 1e-2),
    "sgd": lambda given: torch.optim.SGD(given, 0.1), "momentum": lambda given: torch.optim.SGD(given, 0.1, momentum=0.9),
    "adagrad": lambda given: torch.optim.Adagrad(given, 1e-2)}


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "sqrt", torch.Tensor.sqrt)
    round_each_operation()


def stack():
    torch.manual_seed(0)
    return small.Stack(block=lambda: small.Block(0.0))


def plain(model, optimizer, first, last):
    for number in range(first, last):
        optimizer.zero_grad()
        small.loss(model, small.ids(number)).backward()
        optimizer.step()


def managed(engine, first, last):
    for number in range(first, last):
        engine.backward(small.loss(engine, small.ids(number)))
        engine.step()


def same(model, engine):
    return all(torch.allclose(each, engine.weight(name), rtol=0, atol=1e-7) for name, each in model.named_parameters())


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("way", ["optimizer", "state_dict"])
def test_what_torch_has_trained_goes_on(kind, way):
    model = stack()
    optimizer = MAKERS[kind](model.parameters())
    plain(model, optimizer, 0, 3)
    ours = stack()
    ours.load_state_dict(model.state_dict())
    engine = penstock.initialize(ours, MAKERS[kind](ours.parameters()), core=OpenCore())[0]
    if way == "state_dict":
        engine.import_states(optimizer.state_dict())
    else:  # one that has the engine's parameters, in groups of its own
        first, *others = engine.binding.named.values()
        regrouped = MAKERS[kind]([{"params": [first]}, {"params": others}])
        for old, new in zip(model.parameters(), engine.binding.named.values()):
            if old in optimizer.state:
                regrouped.state[new] = {key: each.clone() for key, each in optimizer.state[old].items() if each is not None}
        engine.import_states(regrouped)
    assert engine.global_steps == {"sgd": 0, "momentum": 1}.get(kind, 3)
    plain(model, optimizer, 3, 6)
    managed(engine, 3, 6)
    assert same(model, engine)


@pytest.mark.parametrize("kind", MAKERS)
def test_what_was_trained_here_goes_on_in_torch(kind):
    ours = stack()
    engine = penstock.initialize(ours, MAKERS[kind](ours.parameters()), core=OpenCore())[0]
    managed(engine, 0, 3)
    model = stack()
    optimizer = MAKERS[kind](model.parameters())
    model.load_state_dict(engine.state_dict())
    optimizer.load_state_dict(engine.export_states())
    plain(model, optimizer, 3, 6)
    managed(engine, 3, 6)
    assert same(model, engine)


def test_what_does_not_fit_is_refused_and_nothing_has_happened():
    engine = penstock.initialize(model := stack(), adamw(model.parameters()), core=OpenCore())[0]
    managed(engine, 0, 2)
    before = {name: engine.weight(name, "moment0") for name in engine.binding.named}
    other = stack()
    for make, words in ((MAKERS["momentum"], "states are momentum_buffer"),
                        (lambda given: torch.optim.AdamW(given, amsgrad=True), "max_exp_avg_sq"),
                        (adamw, "are not this engine's")):
        optimizer = make(other.parameters())
        plain(other, optimizer, 0, 1)
        with pytest.raises(penstock.UsageError, match=words):
            engine.import_states(optimizer if words == "are not this engine's" else optimizer.state_dict())
    uneven = adamw(other.parameters())
    plain(other, uneven, 0, 2)
    uneven.state[other.head.weight]["step"] -= 1
    with pytest.raises(penstock.UsageError, match="part of 1 to 2 steps"):
        engine.import_states(uneven.state_dict())
    assert all(torch.equal(engine.weight(name, "moment0"), each) for name, each in before.items()) and engine.global_steps == 2
