"""Memory that is lent for a time, of weights and gradients: who keeps a part of it and reads it later has an error by
name; who does not read it has plain torch's bits."""
from __future__ import annotations

import contextlib
import re

import pytest
import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

import penstock
import small_models as small
from compare import Training, adamw
from cores import WITHIN_BACKWARD
from cores import test_core as core_of
from penstock.weights import lent
from twice import check, managed

KEPT: list[torch.Tensor] = []
tells = pytest.mark.skipif(lent.forbids is None, reason="this torch cannot tell who reads memory")
VIEW = "parameter 'blocks.{}.linear.weight' is read by a view of it .*its memory was lent until that call returned"
GRADIENT = "a tensor is read that was 'head.weight'.grad until a step"


@pytest.fixture(autouse=True)
def nothing_is_kept():
    yield
    KEPT.clear()


class Product(torch.autograd.Function):
    """Keeps a view of its weight where autograd does not see it."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.turned = weight.t()
        ctx.save_for_backward(x)
        return x @ ctx.turned

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return gradient @ ctx.turned.t(), gradient.flatten(0, -2).t() @ x.flatten(0, -2)


class InContext(small.Block):
    def forward(self, x):
        return x + Product.apply(x, self.linear.weight).tanh()


class InHook(small.Block):
    view = staticmethod(torch.Tensor.detach)

    def forward(self, x):
        y, view = super().forward(x), type(self).view(self.linear.weight)
        if y.requires_grad:
            y.register_hook(lambda gradient: gradient * (1 + view.detach().mean()))
        return y


class InHookTurned(InHook):
    view = staticmethod(torch.Tensor.t)


class InHookOfData(InHook):
    view = staticmethod(lambda weight: weight.data[:2])


class InList(small.Block):
    def forward(self, x):
        KEPT.append(self.linear.weight.detach()[1])
        return super().forward(x)


class InAttribute(small.Block):
    def forward(self, x):
        self.turned = self.linear.weight.t()
        return x + (self.norm(x) @ self.turned).tanh()


def loss_with_what_is_kept(model, batch):
    loss = small.loss(model, batch)
    loss = loss + sum(each.sum() for each in KEPT)
    KEPT.clear()
    return loss


def loss_with_attributes(model, batch):
    loss = small.loss(model, batch)
    return loss + sum(each.turned.sum() for each in getattr(model, "module", model).blocks)


# Weights.
@pytest.mark.parametrize("block, loss, at", [
    (InContext, small.loss, 2), (InHook, small.loss, 1), (InHookTurned, small.loss, 1), (InHookOfData, small.loss, 1),
    (InList, loss_with_what_is_kept, 0), (InAttribute, loss_with_attributes, 0)])
@pytest.mark.parametrize("activations", ["auto", "recompute"])
def test_a_view_of_a_weight_is_not_read_after_the_call_in_which_it_was_taken(block, loss, at, activations):
    engine = managed(lambda: small.Stack(block=block), settings=penstock.Settings(activations=activations))
    with pytest.raises(RuntimeError, match=VIEW.format(r"\d")):
        engine.backward(loss(engine, small.ids()))


@pytest.mark.parametrize("block, loss", [
    (InContext, small.loss), (InHook, small.loss), (InHookTurned, small.loss), (InHookOfData, small.loss),
    (InList, loss_with_what_is_kept), (InAttribute, loss_with_attributes)])
def test_it_is_read_where_the_weights_stay_in_memory(block, loss):
    Training(lambda: small.Stack(block=block), [small.ids(at) for at in range(4)], loss).check(resident=["*"])


@tells
@pytest.mark.parametrize("block", [InAttribute, InList])
@pytest.mark.parametrize("activations", ["auto", "recompute"])
def test_a_view_that_is_kept_and_not_read_harms_nobody(block, activations):
    one = Training(lambda: small.Stack(block=block), [small.ids(at) for at in range(4)], small.loss)
    one.check(activations=activations)


@tells
def test_a_view_that_is_in_a_cycle_or_in_a_traceback_harms_nobody():
    class Awkward(small.Block):
        def forward(self, x):
            rows = [self.linear.weight[at] for at in range(2)]
            rows.append(rows)
            return super().forward(x)

    class Raises(Awkward):
        def forward(self, x):
            view = self.linear.weight.t()
            if x.shape[-1] != small.WIDTH:
                raise ValueError(view.shape)
            return super().forward(x)

    def loss(model, batch):
        inner = getattr(model, "module", model)
        try:
            inner.blocks[1](torch.zeros(2, 3))
        except ValueError:  # while it is handled its traceback has the view
            return small.loss(model, batch)
    for block, each in ((Awkward, small.loss), (Raises, loss)):
        Training(lambda: small.Stack(block=block), [small.ids(at) for at in range(3)], each).check()


@tells
def test_a_view_from_a_forward_without_gradients_is_not_read_after_it():
    engine = managed(lambda: small.Stack(block=InList))
    with torch.no_grad():
        engine(small.ids())
    with pytest.raises(RuntimeError, match=VIEW.format(0)):
        KEPT[0].sum()
    with pytest.raises(RuntimeError, match=VIEW.format(2)):
        KEPT[2].mul_(2)


@tells
def test_a_view_of_the_last_unit_is_not_read_after_its_pass():
    class Head(torch.nn.Linear):
        def forward(self, x):
            KEPT.append(self.weight.detach()[0])
            return super().forward(x)

    def make():
        model = small.Stack()
        model.head = Head(small.WIDTH, 11)
        return model
    engine = managed(make)
    with torch.no_grad():
        engine(small.ids())
    with pytest.raises(RuntimeError, match="'head.weight' is read by a view of it"):
        KEPT[0].sum()


@tells
def test_a_unit_can_be_called_again_after_views_of_it_were_kept():
    engine = managed(lambda: small.Stack(block=InList))
    for at in range(3):
        engine.backward(small.loss(engine, small.ids(at)))
        engine.step()
    for each in KEPT:
        with pytest.raises(RuntimeError, match="is read by a view of it"):
            each.clone()


def test_where_torch_cannot_tell_who_reads_a_view_must_not_be_kept(monkeypatch):
    monkeypatch.setattr("penstock.weights.binding.forbids", None)
    monkeypatch.setattr(lent, "forbids", None)
    with pytest.raises(penstock.ModelError, match=VIEW.format(0)):
        small.loss(managed(lambda: small.Stack(block=InList)), small.ids())
    Training(small.Stack, [small.ids()], small.loss).check()


# The memory that weights had before.
@tells
@pytest.mark.parametrize("take", [
    lambda model: model.state_dict()["head.weight"], lambda model: model.head.weight.data,
    lambda model: model.head.weight.detach()[1:]], ids=["state_dict", "data", "a part"])
@pytest.mark.parametrize("resident", [[], ["*"]])
def test_the_memory_that_a_weight_had_before_is_not_read(take, resident):
    model = small.Stack()
    kept, copy = take(model), take(model).clone()
    engine = penstock.initialize(model, adamw(model.parameters()), core=core_of(), resident=resident)[0]
    with pytest.raises(RuntimeError, match="penstock: the memory is read that parameter 'head.weight' had before"):
        kept.sum()
    assert torch.equal(take(engine.module), copy)


def test_an_old_norms_alias_that_is_made_anew_with_each_call_harms_nobody():
    class Normed(small.Block):
        def __init__(self):
            super().__init__()
            torch.nn.utils.spectral_norm(self.linear)
    Training(lambda: small.Stack(block=Normed), [small.ids(at) for at in range(3)], small.loss).check()


# What lies in a weight without being a view of it.
DIAGONAL = torch.arange(small.WIDTH).repeat(2, 1)


def sparse(weight):
    return torch.sparse_coo_tensor(DIAGONAL, weight, (small.WIDTH, small.WIDTH))


def compressed(weight):
    return torch.sparse_csr_tensor(torch.arange(small.WIDTH + 1), DIAGONAL[0], weight, (small.WIDTH, small.WIDTH))


def multiplied(scale, x):
    return x + torch.tanh(torch.sparse.mm(scale, x.flatten(0, 1).t()).t().view_as(x))


class Gives(small.Block):
    made = staticmethod(sparse)

    def forward(self, x):
        return super().forward(x), {"scale": type(self).made(self.linear.bias)}


class GivesCompressed(Gives):
    made = staticmethod(compressed)


class UsesIt(small.Block):
    def forward(self, x):
        return multiplied(sparse(self.linear.bias), super().forward(x))


class UsesAll(small.Stack):
    """What a block gives is used when the others have been called."""

    def run(self, x):
        scales = []
        for block in self.blocks:
            x, given = block(x)
            scales.append(given["scale"])
        for scale in scales:
            x = multiplied(scale, x)
        return x


class Within(small.Stack):
    """Within the program's hooks for saved tensors, which may keep them as they are."""

    def run(self, x):
        for hooks in (save_on_cpu(), saved_tensors_hooks(lambda each: each, lambda each: each)):
            with hooks:
                x = super().run(x)
        return x


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [
    lambda: UsesAll(block=Gives), lambda: UsesAll(block=GivesCompressed), lambda: small.Stack(block=UsesIt),
    lambda: Within(block=UsesIt)])
@pytest.mark.parametrize("activations", ["auto", "recompute"])
def test_values_of_a_sparse_tensor_that_lie_in_a_weight_are_those_of_plain_torch(make, activations):
    Training(make, [small.ids(at) for at in range(3)], small.loss).check(activations=activations)


# Gradients.
def step(model, optimizer, number):
    small.loss(model, small.ids(number)).backward()
    kept = [each.grad.view(-1)[:3] for each in model.parameters()]
    optimizer.step()
    return kept


ENDS = {
    "zero_grad()": lambda model, optimizer: optimizer.zero_grad(),
    "zero_grad(set_to_none=False)": lambda model, optimizer: optimizer.zero_grad(set_to_none=False),
    "None": lambda model, optimizer: setattr(model.head.weight, "grad", None),
    "another": lambda model, optimizer: setattr(model.head.weight, "grad", model.head.weight.grad * 2),
}


@tells
@pytest.mark.skipif(WITHIN_BACKWARD, reason="gradients are not there")
@pytest.mark.parametrize("end", ENDS)
def test_a_gradient_is_not_read_after_it_was_given_up(end):
    engine = managed()
    small.loss(engine, small.ids()).backward()
    gradient = engine.module.head.weight.grad
    again = engine.module.head.weight.grad
    again += 1
    assert torch.equal(gradient, engine.module.head.weight.grad), "until then it is the sum"
    ENDS[end](engine.module, engine.optimizer)
    for each in (gradient, again):
        with pytest.raises(RuntimeError, match=GRADIENT):
            each.norm()


@tells
@pytest.mark.skipif(WITHIN_BACKWARD, reason="gradients are not there")
def test_a_gradient_is_not_read_after_its_step_and_may_be_kept_unread():
    def program(model, optimizer):
        norms = []
        for number in range(3):
            small.loss(model, small.ids(number)).backward()
            for each in model.parameters():
                gradient = each.grad  # the last one stays in this variable
                norms.append(gradient.norm().item())
            optimizer.step()
            optimizer.zero_grad()
        return norms
    check(program)
    engine = managed()
    kept = step(engine.module, engine.optimizer, 0)
    with pytest.raises(RuntimeError, match=re.escape("'embedding.weight'.grad until a step")):
        kept[0].sum()


@tells
@pytest.mark.skipif(WITHIN_BACKWARD, reason="gradients are not there")
def test_a_gradient_is_not_read_after_a_step_that_failed():
    engine = managed()
    small.loss(engine, small.ids()).backward()
    gradient = engine.module.head.weight.grad
    gradient[0, 0] = float("nan")
    with contextlib.suppress(penstock.PenstockError):
        engine.step()
    with pytest.raises(RuntimeError, match=GRADIENT):
        gradient.sum()
