"""When units are updated and where gradients are until then: the bits are those of the usual order in memory."""
from __future__ import annotations

import functools
import itertools
import logging

import pytest
import torch

import penstock
import small_models as small
from compare import adamw, masters_after, weights_equal
from cores import DEVICE, NATIVE, OPTIONS, WAYS
from penstock.weights.bits import same_bits

pytestmark = pytest.mark.skipif(not NATIVE, reason="of the core on NVMe")
BATCHES = [small.ids(i) for i in range(6)]


def trained(path, order, gradients, accumulation=1, clip=0.0, tied=False):
    torch.manual_seed(0)
    model = small.Stack(tied=tied)
    store = penstock.Store(path, **{**OPTIONS, **WAYS[order]}, gradients=gradients)
    settings = penstock.Settings(clip=clip, accumulation=accumulation)
    engine = penstock.initialize(model, adamw(model.parameters()), store=store, settings=settings)[0]
    masters, table = masters_after(engine, BATCHES, small.loss), engine.core.memory_table()
    engine.close()
    return masters, table


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """Masters after a training in the usual order with gradients in memory."""
    @functools.cache
    def masters(*way):
        return trained(tmp_path_factory.mktemp("usual") / "store", "after_backward", "cpu", *way)[0]
    return masters


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("order, gradients", [each for each in itertools.product(WAYS, ["cpu", "nvme"])
                                              if each != ("after_backward", "cpu")])
def test_bits_are_those_of_the_usual_order_in_memory(tmp_path, usual, order, gradients, accumulation, tied):
    way = (accumulation, 0.0 if order == "within" else 1.2, tied)
    same, _ = trained(tmp_path / "store", order, gradients, *way)
    assert weights_equal(usual(*way).items(), same.items())


def uses(table):
    return {words[0]: words[1:] for line in table.splitlines() if (words := line.split())}


def test_memory_has_those_of_two_units(tmp_path):
    _, cpu = trained(tmp_path / "cpu", "after_backward", "cpu")
    _, nvme = trained(tmp_path / "nvme", "after_backward", "nvme")
    _, auto = trained(tmp_path / "auto", "after_backward", "auto")
    assert uses(auto) == uses(cpu)
    assert uses(nvme)["gradients"] != uses(cpu)["gradients"]


def test_where_memory_is_short_auto_is_nvme(tmp_path, caplog):
    caplog.set_level(logging.INFO, "penstock")

    def least(gradients):
        model = small.Stack(blocks=40)
        return penstock.plan(model, optimizer=adamw(model.parameters()), store=penstock.Store(
            tmp_path, **OPTIONS, prefetch_depth=1, gradients=gradients)).pool_bytes
    if DEVICE != "cpu":
        pytest.skip("the plan is of memory that compute reads")
    room = least("nvme")
    model = small.Stack(blocks=40)

    def opened(gradients):
        store = penstock.Store(tmp_path / "store", **OPTIONS, prefetch_depth=1, host_budget_bytes=room,
                               gradients=gradients)
        return penstock.initialize(model, adamw(model.parameters()), store=store)[0]
    with pytest.raises(penstock.FitError, match="gradient_type, gradients"):
        opened("cpu")
    engine = opened("auto")
    assert "gradients of two units at a time" in caplog.text
    engine.backward(small.loss(engine, BATCHES[0]))
    engine.step()
    engine.close()


def test_a_gradient_is_not_there_to_be_read(tmp_path):
    model = small.Stack()
    engine = penstock.initialize(model, adamw(model.parameters()),
                                 store=penstock.Store(tmp_path, **{**OPTIONS, "update_order": "deferred"},
                                                      gradients="nvme"))[0]
    engine.backward(small.loss(engine, BATCHES[0]))
    weight = engine.module.head.weight
    with pytest.raises(penstock.UsageError, match=r"Store\(gradients='cpu'\); to clip, say gradient_clipping"):
        weight.grad
    with pytest.raises(penstock.UsageError, match=r"'head.weight'.grad is not there"):
        weight.grad = torch.zeros(11, small.WIDTH)
    before = engine.weight("head.weight").clone()
    weight.grad = None
    assert weight.grad is None
    engine.step()
    assert same_bits(engine.weight("head.weight"), before)
    engine.backward(small.loss(engine, BATCHES[0]))
    engine.optimizer.zero_grad()
    assert weight.grad is None
    engine.close()


def test_a_configuration_may_ask_for_it(tmp_path):
    model = small.Stack()
    engine = penstock.initialize(model, adamw(model.parameters()), store=tmp_path / "store",
                                 config={"memory": {"gradients": "nvme"}})[0]
    assert engine.core._store.gradients == "nvme"
    engine.close()
