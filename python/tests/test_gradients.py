"""Where gradients are from backward to the update: on NVMe they are those of memory, to the bit."""
from __future__ import annotations

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


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("order", WAYS)
def test_bits_are_those_of_memory(tmp_path, order, accumulation, tied):
    clip = 0.0 if order == "within" else 1.2
    one, _ = trained(tmp_path / "cpu", order, "cpu", accumulation, clip, tied)
    same, _ = trained(tmp_path / "nvme", order, "nvme", accumulation, clip, tied)
    assert weights_equal(one.items(), same.items())


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
