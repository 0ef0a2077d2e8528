"""Others in the place of a model's weights: functional calls of the model, of parts of it, and shallow copies of modules."""
from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call

import penstock
import small_models as small
from cores import ACTIVATIONS, WITHIN_BACKWARD
from test_given_up import RandomRoom
from twice import check, managed, step

WAYS = {"as it is": dict(activations=ACTIVATIONS), "given up": dict(activations="auto", room=lambda: 0.0),
        "at random": dict(activations="auto", room=RandomRoom(5)), "recompute": dict(activations="recompute")}


def trained(loss, model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
    return [step(model, optimizer, number, loss) for number in range(4)]


def all_moved(model, ids):
    moved = {name: each * 0.9 + 0.01 for name, each in model.named_parameters()}
    return functional_call(model, moved, (ids,)).square().mean()


def some_moved(model, ids):
    moved = {name: each + 0.1 for name, each in model.named_parameters() if name.startswith("blocks.1")}
    return functional_call(model, moved, (ids,)).square().mean() + small.loss(model, ids)


def detached_and_trained_by_hand(model, ids):
    """A few steps of weights of the program's own, then the model's."""
    fast = {name: each.detach().clone().requires_grad_() for name, each in model.named_parameters()}
    for _ in range(2):
        loss = functional_call(model, fast, (ids,)).square().mean()
        gradients = torch.autograd.grad(loss, list(fast.values()))
        fast = {name: (each - 0.1 * own).detach().requires_grad_() for (name, each), own in zip(fast.items(), gradients)}
    distance = sum((each - fast[name]).square().sum() for name, each in model.named_parameters())
    return small.loss(model, ids) + 0.1 * distance


def parameters_stand_in(model, ids):
    other = {name: nn.Parameter(each.detach() * 0.5) for name, each in model.named_parameters()}
    with torch.no_grad():
        target = functional_call(model, other, (ids,))
    return (model(ids) - target).square().mean()


def without_gradients_between(model, ids):
    fast = {name: each.detach() * 1.1 for name, each in model.named_parameters()}
    out = model(ids)
    with torch.no_grad():
        functional_call(model, fast, (ids,))
    return out.square().mean()


def of_a_unit(model, ids):
    block = model.blocks[0]
    moved = {name: each.square() for name, each in model.blocks[1].named_parameters()}
    x = functional_call(block, moved, (model.embedding(ids),))
    return (x.square().mean() + small.loss(model, ids))


LOSSES = [all_moved, some_moved, detached_and_trained_by_hand, parameters_stand_in, without_gradients_between, of_a_unit]


@pytest.mark.skipif(WITHIN_BACKWARD, reason="weights are read between backward and step, or a step has several backwards")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("loss", LOSSES, ids=[each.__name__ for each in LOSSES])
def test_a_functional_call_trains_to_the_same_bits(loss, way):
    check(lambda model, optimizer: trained(loss, model, optimizer), settings=penstock.Settings(**WAYS[way]))


def test_after_a_functional_call_a_model_that_is_another_one_is_named():
    engine = managed()
    fast = {name: each.detach().clone() for name, each in engine.module.named_parameters()}
    with torch.no_grad():
        functional_call(engine.module, fast, (small.ids(0),))
    engine.module.head.weight = nn.Parameter(torch.ones_like(fast["head.weight"]))
    with pytest.raises(penstock.ModelError, match="'head.weight' .*replaced"):
        engine(small.ids(0))


# Shallow copies.
def clone_of(module: nn.Module, change) -> nn.Module:
    """As meta-learning libraries clone: every module anew, over other tensors."""
    other = module.__new__(type(module))
    other.__dict__ = module.__dict__.copy()
    other._parameters = {name: None if each is None else change(each) for name, each in module._parameters.items()}
    other._buffers = dict(module._buffers)
    other._modules = {name: None if each is None else clone_of(each, change) for name, each in module._modules.items()}
    return other


def shallow(module: nn.Module) -> nn.Module:
    """It shares what it is made of, until others are put in."""
    other = copy.copy(module)
    other._modules = dict(module._modules)
    return other


def a_clone_takes_a_step(model, ids):
    fast = clone_of(model, lambda each: each * 1.0)
    loss = fast(ids).square().mean()
    weights = [each for module in fast.modules() for each in module._parameters.values() if each is not None]
    gradients = torch.autograd.grad(loss, weights, create_graph=True)
    moved = {id(each): each - 0.1 * own for each, own in zip(weights, gradients)}
    return clone_of(fast, lambda each: moved[id(each)])(ids.flip(0)).square().mean()


def a_shallow_copy_with_another_attribute(model, ids):
    block = shallow(model.blocks[0])
    block.linear, block.training = model.blocks[1].linear, False
    x = model.embedding(ids)
    return (block(x) - model.blocks[0](x)).square().mean() + small.loss(model, ids)


def a_shallow_copy_of_all(model, ids):
    other = shallow(model)
    other.blocks = nn.ModuleList([shallow(model.blocks[1]), shallow(model.blocks[0])])
    return other(ids).square().mean() + small.loss(model, ids)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("loss", [a_clone_takes_a_step, a_shallow_copy_with_another_attribute, a_shallow_copy_of_all],
                         ids=["a clone", "an attribute", "all"])
def test_a_shallow_copy_trains_to_the_same_bits(loss, way):
    check(lambda model, optimizer: trained(loss, model, optimizer), settings=penstock.Settings(**WAYS[way]))
