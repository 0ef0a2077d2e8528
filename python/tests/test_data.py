"""`.data` of weights between passes and within them."""
from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import penstock
import small_models as small
from cores import WITHIN_BACKWARD
from twice import RESIDENT, check, managed, step

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


class Merged(small.Block):
    """An adapter that evaluation adds to its weight, and training takes out again, as loralib does."""

    def __init__(self) -> None:
        super().__init__()
        self.linear.weight.requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.randn(2, 8) / 3), nn.Parameter(torch.zeros(8, 2))
        self.merged = False

    def train(self, mode: bool = True) -> nn.Module:
        if mode and self.merged:
            self.linear.weight.data -= self.up @ self.down
        elif not mode and not self.merged:
            self.linear.weight.data += self.up @ self.down
        self.merged = not mode
        return super().train(mode)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x)
        return out if self.merged else out + x @ self.down.t() @ self.up.t()


def merged_and_taken_out(model, optimizer):
    """Evaluation has a graph that nobody goes back through."""
    told = []
    for number in range(3):
        told.append(step(model, optimizer, number))
        told.append(model.eval()(small.ids()).sum().item())
        model.train()
    return told


def written_before_an_unused_graph_goes(model, optimizer):
    told = [step(model, optimizer, 0)]
    value = small.loss(model, small.ids(1))
    model.embedding.weight.data *= 0.9
    with torch.no_grad():
        model.head.weight.mul_(0.9)
        model.norm.weight.add_(model.head.weight.mean())
        model.blocks[0].linear.weight[:2] = 0.0
    del value
    return [*told, step(model, optimizer, 1), step(model, optimizer, 2)]


def a_critic_is_clipped_while_the_other_has_its_graph(model, optimizer):
    """What is written has no part in that graph."""
    told = []
    for number in range(3):
        out = model.blocks[0](model.embedding(small.ids(number)))
        with torch.no_grad():
            for each in (*model.head.parameters(), *model.blocks[2].parameters()):
                each.clamp_(-0.2, 0.2)
        model.blocks[1].linear.bias.data = torch.full((8,), 0.1 * number)
        (model.head(model.blocks[2](out)).square().mean() + model.blocks[1](out).mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
        told.append(out.sum().item())
    return told


@pytest.mark.parametrize("program", [merged_and_taken_out, written_before_an_unused_graph_goes,
                                     a_critic_is_clipped_while_the_other_has_its_graph], ids=lambda each: each.__name__)
def test_weights_that_are_written_while_a_graph_is_there_are_those_of_plain_torch(program):
    """Units that stay in memory tell nobody of a change: theirs is an error at the pass's end."""
    check(program, make=lambda: small.Stack(block=Merged))


def test_data_that_would_make_another_parameter_is_refused():
    engine = managed()
    weight, before = engine.module.head.weight, engine.weight("head.weight")
    for values in (torch.zeros(3), torch.zeros(weight.shape, dtype=torch.float64), torch.zeros(weight.shape, device="meta")):
        with pytest.raises(penstock.ModelError, match="'head.weight'.data was assigned a tensor of shape"):
            weight.data = values
    with pytest.raises(penstock.ModelError, match="'head.weight'.data was assigned"):
        weight.set_(torch.zeros(5))
    engine.state_dict()["head.weight"].resize_(5)  # which the weight does not follow in torch either
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
    for name in ("head.weight", "norm.weight"):
        weight = engine.module.get_parameter(name)
        value = small.loss(engine, small.ids())
        weight.data = torch.zeros(weight.shape)
        assert not engine.weight(name).any()
        with pytest.raises(penstock.UsageError, match="was updated or written after the forward of this graph"):
            engine.backward(value)
        engine.optimizer.zero_grad()
    engine.backward(small.loss(engine, small.ids()))
    engine.step()

    class Writes(small.Block):
        def forward(self, x):
            self.linear.weight.data = torch.zeros(small.WIDTH, small.WIDTH)
            return super().forward(x)
    for gradients in (True, False):
        other = managed(lambda: small.Stack(block=Writes))
        with torch.set_grad_enabled(gradients), pytest.raises(penstock.ModelError, match="assigned within a forward of its unit"):
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
