"""torch.compile: what is compiled within units is used and gives the bits of the plain loop compiled the same way; what
is compiled as a whole trains all the same, and is told of."""
from __future__ import annotations

import pytest
import torch

import small_models as small
from compare import Training

COMPILED: list[int] = []


@pytest.fixture(autouse=True)
def nothing_is_compiled_yet():
    torch._dynamo.reset()
    COMPILED.clear()
    yield
    torch._dynamo.reset()


def backend(graph, inputs):
    COMPILED.append(len(inputs))
    return torch._dynamo.backends.registry.lookup_backend("aot_eager")(graph, inputs)


def compiled(thing):
    return torch.compile(thing, backend=backend)


def each(how):
    def make():
        model = small.Stack()
        for index, block in enumerate(model.blocks):
            how(model, index, block)
        return model
    return make


def submodule(_, __, block):
    block.linear = compiled(block.linear)


def unit(model, index, block):
    model.blocks[index] = compiled(block)


def forward(_, __, block):
    block.forward = compiled(block.forward)


def in_place(_, __, block):
    block.compile(backend=backend)


def the_model(in_place):
    model = small.Stack()
    if not in_place:
        return compiled(model)
    model.compile(backend=backend)
    return model


def training(make):
    return Training(make, [small.ids(seed) for seed in range(3)], loss=small.loss)


@pytest.mark.parametrize("how", [submodule, unit, forward], ids=lambda how: how.__name__)
def test_what_is_compiled_within_units_is_used(how, caplog):
    expected = training(each(how)).plain()
    COMPILED.clear()
    torch._dynamo.reset()
    found = training(each(how)).managed()
    assert COMPILED and found.losses == expected.losses
    assert all(torch.equal(expected.state[name], found.state[name]) for name in expected.state)
    assert "compiled" not in caplog.text


@pytest.mark.parametrize("make, name", [(each(in_place), "'blocks.0'"), (lambda: the_model(True), "'the model'"),
                                        (lambda: the_model(False), "'the model'")])
def test_what_is_compiled_as_a_whole_trains_all_the_same_and_is_told(make, name, caplog):
    training(make).check()
    assert "compiled as a whole" in caplog.text and name in caplog.text


def test_compiling_afterwards_changes_nothing():
    expected = training(small.Stack).plain()
    for change in (lambda model: model.compile(backend=backend), each_in_place):
        def loss(model, ids, change=change):
            if hasattr(model, "core"):
                change(model.module)
            return small.loss(model, ids)
        assert Training(small.Stack, [small.ids(seed) for seed in range(3)], loss=loss).managed().losses == \
            expected.losses


def each_in_place(model):
    for block in model.blocks:
        block.compile(backend=backend)
