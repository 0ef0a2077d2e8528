"""`.data` of weights between passes and within them."""
from __future__ import annotations

import copy

import pytest
import torch

import penstock
import small_models as small
from cores import WITHIN_BACKWARD
from twice import RESIDENT, managed

pytestmark = pytest.mark.skipif(WITHIN_BACKWARD, reason="between a backward and its step nothing may be read")


@RESIDENT
def test_data_is_what_detach_gives_and_what_is_assigned_is_written(resident):
    engine = managed(resident=resident)
    weight = engine.module.head.weight
    version = weight._version
    weight.data.zero_()
    assert weight._version > version and engine.weight("head.weight").abs().sum() == 0
    weight.data = torch.ones(weight.shape)
    assert torch.equal(engine.weight("head.weight"), torch.ones(weight.shape))
    assert torch.equal(weight.data, torch.ones(weight.shape)) and not weight.data.requires_grad
    engine.backward(small.loss(engine, small.ids()))
    engine.step()
    assert (engine.weight("head.weight") - 1).abs().max() < 0.05


def test_data_that_would_make_another_parameter_is_refused():
    engine = managed()
    weight, before = engine.module.head.weight, engine.weight("head.weight")
    for values in (torch.zeros(3), torch.zeros(weight.shape, dtype=torch.float64), torch.zeros(weight.shape, device="meta")):
        with pytest.raises(penstock.ModelError, match="'head.weight'.data was assigned a tensor of shape"):
            weight.data = values
    with pytest.raises(penstock.ModelError, match="'head.weight'.data was assigned"):
        weight.set_(torch.zeros(5))
    engine.state_dict()["head.weight"].resize_(5)
    with pytest.raises(penstock.ModelError, match=r"'head.weight' is managed as .*\(11, 8\) and became"):
        engine(small.ids())
    assert torch.equal(engine.weight("head.weight"), before)
    engine(small.ids())


@RESIDENT
def test_data_of_another_parameter_would_tie_and_is_refused(resident):
    engine = managed(resident=resident)
    with pytest.raises(penstock.ModelError, match="the memory of 'embedding.weight', which would tie.*one nn.Parameter"):
        engine.module.head.weight.data = engine.module.embedding.weight.data
    with pytest.raises(penstock.ModelError, match="'blocks.1.linear.weight', which would tie"):
        engine.module.blocks[0].linear.weight.data = engine.module.blocks[1].linear.weight.data.t()
    with pytest.raises(penstock.ModelError, match="the memory of 'embedding.weight', which would tie"):
        engine.module.head.weight.data = engine.module.embedding.weight
    engine.module.head.weight.data = engine.module.embedding.weight.data.clone()
    engine.module.head.weight.data = engine.module.head.weight.data
    assert torch.equal(engine.weight("head.weight"), engine.weight("embedding.weight"))


def test_data_that_is_assigned_within_a_pass_is_an_error_or_right():
    engine = managed(resident=["norm"])
    value = small.loss(engine, small.ids())
    for name in ("head.weight", "norm.weight"):
        weight = engine.module.get_parameter(name)
        with pytest.raises(penstock.ModelError, match=f"'{name}'.data was assigned within a pass.*set_weight"):
            weight.data = torch.zeros(weight.shape)
    engine.backward(value)
    engine.step()

    class Writes(small.Block):
        def forward(self, x):
            self.linear.weight.data = torch.zeros(small.WIDTH, small.WIDTH)
            return super().forward(x)
    for gradients in (True, False):
        other = managed(lambda: small.Stack(block=Writes))
        with torch.set_grad_enabled(gradients), pytest.raises(penstock.ModelError, match="assigned within a pass"):
            other(small.ids())


USES = {"forward": lambda engine: engine(small.ids()), "state_dict": lambda engine: engine.module.state_dict(),
        "weight": lambda engine: engine.weight("head.weight"), "step": lambda engine: engine.optimizer.step(),
        "read": lambda engine: (engine.module.head.weight.data.sum(), engine(small.ids())), "close": lambda engine: engine.close(),
        "copy": lambda engine: copy.deepcopy(engine.module), "gathered": lambda engine: engine.gathered([]).__enter__()}


@pytest.mark.parametrize("gradients, resident", [(True, ()), (False, ()), (True, ("*",))])
@pytest.mark.parametrize("use", USES)
def test_a_change_by_data_within_a_visit_is_an_error_at_the_next_use(use, gradients, resident):
    class Writes(small.Block):
        def forward(self, x):
            self.linear.weight.data.mul_(0.5)
            return super().forward(x)
    engine = managed(lambda: small.Stack(block=Writes), resident=resident)
    with torch.set_grad_enabled(gradients):
        engine(small.ids())
    if gradients:
        engine.visits.end()
    with pytest.raises(penstock.ModelError, match="'blocks.0.linear.weight'.*were changed in place"):
        USES[use](engine)
