"""Gradients of bfloat16 models over many micro-batches."""
from __future__ import annotations

import pytest
import torch
from torch import nn

import penstock
from cores import NATIVE, OPTIONS, WITHIN_BACKWARD, test_core

pytestmark = pytest.mark.skipif(WITHIN_BACKWARD, reason="steps of several backwards that nobody announced")
MANY = 300  # a sum in bfloat16 of so many ones ends at 256


class Sum(nn.Module):
    """Its gradient is the number of its rows."""

    def __init__(self, dtype=torch.bfloat16):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 1, bias=False, dtype=dtype) for _ in range(2))

    def forward(self, rows=1):
        ones = torch.ones(rows, 4, dtype=self.layers[0].weight.dtype)
        return sum(layer(ones).sum() for layer in self.layers)


def open_engine(dtype=torch.bfloat16, config=None, core=None, **settings):
    model = Sum(dtype)
    return penstock.initialize(model, torch.optim.SGD(model.parameters(), lr=0.0), core=core or test_core(),
                               config=config, settings=penstock.Settings(**settings) if config is None else None)[0]


def gradient(engine):
    return next(engine.module.parameters()).grad.float()


def backward(engine, times):
    for _ in range(times):
        engine.module().backward()


@pytest.mark.parametrize("options", [{"accumulation": MANY}, {"config": {"gradient_accumulation_steps": MANY}},
                                     {"config": {"train_batch_size": 2 * MANY, "train_micro_batch_size_per_gpu": 2}}])
def test_many_micro_batches_that_are_announced_are_summed_in_fp32(options):
    engine = open_engine(**options)
    for _ in range(MANY - 1):
        engine.backward(engine(), scale_wrt_gas=False)
        engine.step()
    assert (gradient(engine) == MANY - 1).all()
    engine.backward(engine())
    engine.step()
    assert engine.global_steps == 1
    engine.close()


def test_up_to_eight_nobody_says_anything():
    engine = open_engine()
    for _ in range(3):
        backward(engine, 8)
        engine.step()
    assert engine.global_steps == 3
    engine.close()


def test_more_that_nobody_announced_end_before_the_update_and_name_the_setting():
    engine = open_engine()
    backward(engine, 8)
    engine.step()
    before = {name: each.clone() for name, each in engine.named_weights("master")}
    backward(engine, 9)
    for step in (engine.step, engine.optimizer.step):
        with pytest.raises(penstock.UsageError, match="9 gradients.*gradient_accumulation_steps.*gradient_type='fp32'"):
            step()
    assert engine.global_steps == 1
    assert all(torch.equal(before[name], each) for name, each in engine.named_weights("master"))
    engine.optimizer.zero_grad()
    backward(engine, 8)
    engine.step()
    assert engine.global_steps == 2
    engine.close()


def test_each_backward_of_a_micro_batch_is_an_addend():
    """Two losses, two backwards: five micro-batches are ten."""
    engine = open_engine()
    for _ in range(5):
        loss = engine()
        loss.backward(retain_graph=True)
        loss.backward()
    with pytest.raises(penstock.UsageError, match="10 gradients"):
        engine.step()
    engine.close()


def test_gradients_that_the_program_sums_itself_are_its_own():
    engine = open_engine()
    for _ in range(20):
        backward(engine, 1)
        for each in engine.module.parameters():
            each.grad = each.grad * 0.5
    for each in engine.module.parameters():
        each.grad = torch.zeros_like(each.grad)
    engine.step()
    engine.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_sums_of_other_types_are_not_asked_about(dtype):
    engine = open_engine(dtype)
    backward(engine, 20)
    engine.step()
    engine.close()


@pytest.mark.skipif(not NATIVE, reason="options of the core on NVMe")
@pytest.mark.parametrize("chosen, sums", [("fp32", MANY), ("bf16", 256)])
def test_a_type_that_is_chosen_is_obeyed(chosen, sums, tmp_path):
    model = Sum()
    store = penstock.Store(tmp_path / "store", gradient_type=chosen, **OPTIONS)
    engine = penstock.initialize(model, torch.optim.SGD(model.parameters(), lr=0.0), store=store)[0]
    backward(engine, MANY)
    assert (gradient(engine) == sums).all()
    engine.step()
    engine.close()
