"""Buffers that a step commits: those that change their size, come late or go are named, with a remedy that helps."""
from __future__ import annotations

import pytest
import torch
from torch import nn

import penstock
import small_models as small
from compare import adamw
from cores import test_core as OpenCore
from resumed import losses_of


class Growing(nn.Module):
    def __init__(self, how="grows", persistent=True):
        super().__init__()
        self.linear, self.how = nn.Linear(small.WIDTH, small.WIDTH), how
        self.register_buffer("memory", torch.empty(0 if how == "from nothing" else 1, small.WIDTH), persistent)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64), persistent)
        self.register_buffer("later", None)

    def forward(self, x):
        if self.how == "comes":
            self.later = torch.ones(1)
        elif self.how == "goes":
            self.memory = None
        elif self.how == "becomes another type":
            self.count = self.count + 0.5
        else:
            self.memory = torch.cat([self.memory, x.detach().reshape(-1, small.WIDTH)[:1]])
        return self.linear(x)


@pytest.mark.parametrize("how, said", [
    ("grows", r"'blocks.0.memory' was torch.float32 of shape \(1, 8\) .* and is torch.float32 of shape \(2, 8\)"),
    ("from nothing", r"of shape \(0, 8\)"), ("comes", "'blocks.0.later'.* came after"), ("goes", "'blocks.0.memory'.* are gone"),
    ("becomes another type", "'blocks.0.count' was torch.int64")])
def test_a_buffer_that_changes_its_size_is_named_with_its_remedy(how, said):
    model = small.Stack(block=lambda: Growing(how))
    engine = penstock.initialize(model, adamw(model.parameters()), core=OpenCore())[0]
    engine.backward(small.loss(engine, small.ids()))
    before = engine.global_steps
    with pytest.raises(penstock.ModelError, match=said) as refused:
        engine.step()
    assert "persistent=False" in str(refused.value) and engine.global_steps == before and engine.micro_steps == 0


class Late(small.Block):
    def forward(self, x):
        self.register_buffer("seen", x.detach().clone())
        return super().forward(x)


def test_a_buffer_that_comes_to_a_model_without_any_is_named():
    model = small.Stack(block=Late)
    engine = penstock.initialize(model, adamw(model.parameters()), core=OpenCore())[0]
    engine.backward(small.loss(engine, small.ids()))
    with pytest.raises(penstock.ModelError, match="'blocks.0.seen'.* came after"):
        engine.step()


def test_the_remedy_of_a_buffer_that_grows_helps(tmp_path):
    model = small.Stack(block=lambda: Growing(persistent=False))
    engine = penstock.initialize(model, adamw(model.parameters()), core=OpenCore(folder=tmp_path))[0]
    losses_of(engine, 2)
    assert engine.module.blocks[0].memory.shape[0] >= 3
