"""Two parameters over one memory, and two parts of one storage."""
from __future__ import annotations

import pytest
import torch
from torch import nn

import penstock
import small_models as small
from cores import WITHIN_BACKWARD, test_core
from penstock.weights.overlap import overlap
from twice import check, step

pytestmark = pytest.mark.skipif(WITHIN_BACKWARD, reason="between a backward and its step nothing may be read")


def halves(kind):
    flat = torch.randn(2 * small.WIDTH, small.WIDTH)
    model = small.Stack()
    first, second = model.blocks[0].linear, model.blocks[1].linear
    if kind == "data":
        first.weight.data = second.weight.data
    elif kind == "transposed":
        first.weight.data = second.weight.data.t()
    elif kind == "overlapping":
        first.weight, second.weight = nn.Parameter(flat[:small.WIDTH]), nn.Parameter(flat[4:4 + small.WIDTH])
    elif kind == "a buffer":
        model.register_buffer("table", model.embedding.weight.data[2:5])
    elif kind == "rows":
        first.weight, second.weight = nn.Parameter(flat[:small.WIDTH]), nn.Parameter(flat[small.WIDTH:])
    elif kind == "columns":
        wide = torch.randn(small.WIDTH, 2 * small.WIDTH)
        first.weight, second.weight = nn.Parameter(wide[:, :small.WIDTH]), nn.Parameter(wide[:, small.WIDTH:])
    elif kind == "tied":
        first.weight = second.weight
    return model


@pytest.mark.parametrize("kind", ["data", "transposed", "overlapping", "a buffer"])
def test_two_parameters_over_one_memory_are_refused_and_how_to_tie_them_is_said(kind):
    with pytest.raises(penstock.ModelError, match="are views of one memory.*one nn.Parameter.*clone"):
        penstock.initialize(halves(kind), core=test_core())


@pytest.mark.parametrize("kind", ["rows", "columns", "tied"])
def test_parameters_that_share_a_storage_and_no_memory_train_as_in_torch(kind):
    check(lambda model, optimizer: [step(model, optimizer, number) for number in range(2)], make=lambda: halves(kind))


def test_overlap_is_told_to_the_element():
    wide = torch.zeros(4, 6)
    assert overlap(wide, wide[1:]) and overlap(wide[:, 1:3], wide[:, 2:]) and overlap(wide.t(), wide[3])
    assert not overlap(wide[:, :3], wide[:, 3:]) and not overlap(wide[::2], wide[1::2]) and not overlap(wide, wide.clone())
    assert not overlap(torch.zeros(3, device="meta"), torch.zeros(3, device="meta"))
