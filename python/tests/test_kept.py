"""Graphs that are kept from forward to backward: the bits of plain torch, within a budget, and no weights in them."""
from __future__ import annotations

import gc

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import penstock
import small_models as small
from compare import Training, adamw
from cores import NATIVE
from cores import test_core as core_of

def training(make, count=4, loss=small.loss, **options) -> Training:
    return Training(make, [small.ids(i) for i in range(count)], loss, **options)


def kept(make=small.Stack, **options):
    """The bits of plain torch, and nothing was given up or ran twice."""
    check = {key: options.pop(key) for key in ("window_bytes", "units", "resident") if key in options}
    for word in ("auto", "keep"):
        found = training(make, **options).check(activations=word, **check)
        activations = found.engine.activations
        assert activations.held_bytes == activations.given_up == activations.recomputes == 0
        assert activations.calls > 0
    return found.engine


def engine_of(make=small.Stack, budget=None, steps=1, **options):
    torch.manual_seed(0)
    model = make()
    engine = penstock.initialize(model, adamw([each for each in model.parameters() if each.requires_grad]), core=core_of(),
                                 settings=penstock.Settings(activations="auto", graph_budget_bytes=budget),
                                 **options)[0]
    for _ in range(steps):
        engine.backward(small.loss(engine, small.ids()))
        engine.step()
    return engine


def count_calls(model) -> list[int]:
    calls = [0] * len(model.blocks)
    for at, block in enumerate(model.blocks):
        block.linear.register_forward_hook(lambda *_, at=at: calls.__setitem__(at, calls[at] + 1))
    return calls


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("tied", [False, True])
def test_a_stack_of_blocks_trains_to_the_same_bits(tied, accumulation):
    kept(lambda: small.Stack(tied=tied), accumulation=accumulation, clip=0.5)


@pytest.mark.parametrize("make", [
    small.Twice, small.Skipping, small.NestedStack, small.Sharing, small.Direct,
    lambda: small.Stack(block=small.Normed), lambda: small.Stack(block=small.Experts),
    lambda: small.Stack(block=small.Remembering), lambda: small.Stack(block=small.Counting),
    lambda: small.Twice(block=small.Normed)])
def test_an_awkward_module_trains_to_the_same_bits(make):
    kept(make, count=6)


def test_no_forward_runs_more_often_than_in_plain_torch():
    engine = engine_of(steps=0)
    calls = count_calls(engine.module)
    for _ in range(3):
        engine.backward(small.loss(engine, small.ids()))
        engine.step()
    assert calls == [3] * 3


def test_graphs_are_kept_by_default_and_other_words_are_refused():
    assert penstock.Settings().activations == "auto"
    with pytest.raises(penstock.UsageError, match="'auto', 'keep' and 'recompute'"):
        penstock.Settings(activations="retain")
    with pytest.raises(penstock.UsageError, match="'auto', 'keep' and 'recompute'"):
        penstock.Settings(activations={"head": "retain"})
    with pytest.raises(penstock.UsageError, match="graph_budget_bytes=-1"):
        penstock.Settings(graph_budget_bytes=-1)


def test_a_word_for_units_that_are_not_there_is_refused():
    with pytest.raises(penstock.UsageError, match="no unit is named 'layers.0'.*'blocks.0'"):
        penstock.initialize(small.Stack(), core=core_of(), settings=penstock.Settings(activations={"layers.0": "keep"}))


def test_what_is_held_is_given_back():
    engine = engine_of()
    loss = small.loss(engine, small.ids())
    assert engine.activations.held_bytes > 0
    engine.backward(loss)
    assert engine.activations.held_bytes == 0


def test_a_forward_without_backward_is_given_back():
    engine = engine_of()
    for _ in range(3):
        small.loss(engine, small.ids())
        assert engine.activations.held_bytes == 0
    with torch.no_grad():
        small.loss(engine, small.ids())


@pytest.mark.afterwards
@pytest.mark.parametrize("where", ["forward", "between", "backward"])
def test_an_exception_gives_back_what_was_kept_and_the_model_trains_on(where):
    engine = engine_of()
    block = engine.module.blocks[1]
    hook = None
    if where == "forward":
        hook = block.linear.register_forward_hook(lambda *_: 1 / 0)
    if where == "backward":
        hook = block.linear.bias.register_hook(lambda _: 1 / 0)

    def step():
        loss = small.loss(engine, small.ids())
        if where == "between":
            raise ZeroDivisionError
        loss.backward()
    with pytest.raises(ZeroDivisionError):
        step()
    gc.collect()
    if where != "backward":  # there torch keeps what it has not come to until the next one
        assert engine.activations.held_bytes == 0
    if hook:
        hook.remove()
    engine.optimizer.zero_grad()
    engine.backward(small.loss(engine, small.ids()))
    assert engine.activations.held_bytes == 0
    engine.step()
    assert engine.visits.kind is None


# Weights as a graph sees them.
class Halves(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight[1:], weight.t()[:, :1])
        return x * weight.sum()

    @staticmethod
    def backward(ctx, gradient):
        x, tail, column = ctx.saved_tensors
        return gradient * (tail.sum() + column.sum()), torch.full((small.WIDTH, small.WIDTH), (gradient * x).sum().item())


class Views(small.Block):
    def forward(self, x):
        w = self.linear.weight
        turned = torch.view_as_real(torch.view_as_complex(x.reshape(-1, 4, 2)) * torch.view_as_complex(w.view(-1, 4, 2)[0]))
        y = torch.tanh(x @ w.t() + (x @ w.detach()[:, ::2]).sum(-1, keepdim=True) * w[2:3, 1:2] + turned.reshape(x.shape))
        return x + Halves.apply(y, w) * 1e-2


def test_views_of_weights_are_where_the_weights_are_now():
    kept(lambda: small.Stack(block=Views))


class Conjugated(small.Block):
    def forward(self, x):
        w = torch.view_as_complex(self.linear.weight.view(-1, 4, 2)[0])
        return x + torch.tanh(torch.view_as_real(torch.view_as_complex(x.reshape(-1, 4, 2)) * w.conj()).reshape(x.shape))


def test_a_weight_that_is_seen_conjugated_is_no_reason_for_wrong_bytes():
    kept(lambda: small.Stack(block=Conjugated))


class Taking(nn.Linear):
    def forward(self, x, given):
        return torch.tanh(super().forward(x) * given)


class Giving(small.Stack):
    """Blocks that give of their weights to a unit that they call, and read them before and after."""

    def __init__(self):
        super().__init__()
        self.shared = Taking(small.WIDTH, small.WIDTH)
        for block in self.blocks:
            block.forward = lambda x, w=block.linear.weight: x + self.shared(torch.tanh(x @ w.t()), w[:1]) @ w


class Leaving(small.Stack):
    """Blocks whose own checkpoint, from the second step on, calls another unit, for which they are left in backward."""

    def __init__(self):
        super().__init__()
        self.shared, self.steps = nn.Linear(small.WIDTH, small.WIDTH), 0
        for block in self.blocks:
            block.forward = lambda x, w=block.linear.weight: x + self.inner(torch.tanh(x @ w.t())) @ w

    def inner(self, x):
        return checkpoint(self.shared, x, use_reentrant=True) if self.steps > 1 else self.shared(x)

    def run(self, x):
        self.steps += 1
        return super().run(x)


# A reentrant checkpoint has a backward of its own, and each brings a gradient of the unit that all share.
@pytest.mark.parametrize("make", [Giving, pytest.param(Leaving, marks=pytest.mark.afterwards)])
def test_other_units_may_be_read_within_a_units_graph(make):
    kept(make)


def test_each_unit_is_visited_once_in_a_backward_before_its_first_node(monkeypatch):
    class Shifted(nn.Module):  # no node of it reads a weight
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(small.WIDTH))

        def forward(self, x):
            return torch.tanh(x + self.bias)
    engine = engine_of(lambda: small.Stack(block=Shifted))
    visit, visits = engine.core.visit, []
    monkeypatch.setattr(engine.core, "visit", lambda wanted, held: (visits.append((*wanted, *held)), visit(wanted, held)))
    engine.backward(small.loss(engine, small.ids()))
    names = [[engine.core.units[unit].name for unit in each] for each in visits]
    assert names[:6] == [["embedding"], ["blocks.0"], ["blocks.1"], ["blocks.2"], ["norm"], ["head"]]
    assert names[6:] == [*reversed(names[:5])] or names[6:] == [*reversed(names[:6])]
    engine.step()


def test_frozen_weights_and_autocast():
    def make():
        model = small.Stack()
        for name, each in model.named_parameters():
            each.requires_grad_("norm" in name or "head" in name)
        return model

    def loss(model, batch):
        with torch.autocast("cpu", torch.bfloat16):
            return small.loss(model, batch)
    kept(make)
    kept(loss=loss)


def test_gradients_of_inputs_and_of_what_is_between():
    def loss(model, batch):
        inner = getattr(model, "module", model)
        x = torch.nn.functional.one_hot(batch % small.WIDTH, small.WIDTH).float().requires_grad_()
        for block in inner.blocks:
            x = block(x)
            x.retain_grad()
        value = x.pow(2).sum()
        first, = torch.autograd.grad(value, x, retain_graph=True)
        return value + first.detach().sum()
    engine = engine_of()
    x = torch.randn(2, 5, small.WIDTH, requires_grad=True)
    for block in engine.module.blocks:
        block.eval()
    engine.module.blocks[0](x).sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()
    kept(loss=loss)


@pytest.mark.afterwards
def test_a_graph_may_be_gone_back_through_twice():
    kept(loss=small.gone_back_before)


def test_a_gradient_that_is_taken_within_a_forward():
    class Forces(small.Block):
        def forward(self, x):
            y = super().forward(x)
            inner = x.detach().requires_grad_()
            force, = torch.autograd.grad(torch.tanh(self.linear(inner)).sum(), inner, create_graph=True)
            return y + force
    kept(lambda: small.Stack(block=Forces), count=6)


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_unit_checkpoints_within_itself_is_recomputed_and_the_rest_is_kept(reentrant):
    class Partly(small.Block):
        def forward(self, x):
            y = checkpoint(lambda x: self.dropout(torch.tanh(self.linear(x))), self.norm(x), use_reentrant=reentrant)
            return torch.tanh(x + y @ self.linear.weight)
    kept(lambda: small.Stack(block=Partly))


# What cannot be taken out of a graph.
class Sparse(small.Block):
    def forward(self, x):
        adjacent = torch.eye(10).to_sparse()
        return x + torch.tanh(self.linear(torch.sparse.mm(adjacent, x.flatten(0, 1)).view_as(x)))


def test_a_unit_that_saves_a_sparse_tensor_is_kept():
    def make():
        model = small.Stack()
        model.blocks[1] = Sparse()
        return model
    kept(make)


def test_a_unit_that_saves_a_tensor_of_a_class_of_its_own_is_kept():
    from torch.testing._internal.two_tensor import TwoTensor

    class Wrapped(small.Block):
        def forward(self, x):
            w = self.linear.weight
            both = TwoTensor(x, x) * TwoTensor(w[0], w[0])
            return x + torch.tanh(both.a + both.b)
    kept(lambda: small.Stack(block=Wrapped), count=2)


@pytest.mark.afterwards
def test_weights_within_a_layout_that_comes_up_later_are_copied():
    class Later(small.Block):
        calls = 0

        def forward(self, x):
            self.calls += 1
            if self.calls < 3:
                return super().forward(x)
            diagonal = torch.arange(10).expand(2, 10)
            scale = torch.sparse_coo_tensor(diagonal, self.linear.weight.view(-1)[:10], (10, 10), is_coalesced=True)
            return super().forward(x + torch.tanh(torch.sparse.mm(scale, x.flatten(0, 1)).view_as(x)))
    engine = engine_of(lambda: small.Stack(block=Later))
    plain = small.Stack(block=Later)
    plain.load_state_dict(engine.state_dict())
    for model in (plain, engine.module):
        for block in model.blocks:
            block.dropout.p, block.calls = 0.0, 2
    small.loss(plain, small.ids()).backward()
    small.loss(engine, small.ids()).backward()
    expected = {name: each.grad for name, each in plain.named_parameters()}
    assert all(torch.equal(each.grad, expected[name]) for name, each in engine.module.named_parameters())


def test_hooks_of_the_program_see_all_that_is_no_weight():
    seen = []

    def loss(model, batch):
        seen.append([])
        weights = set(map(id, getattr(model, "module", model).parameters()))

        def pack(x):
            if id(x) not in weights and not (x.dim() == 2 and x._base is not None):  # a weight, or its transpose
                seen[-1].append(tuple(x.shape))
            return x
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            return small.loss(model, batch)
    kept_by_the_program = training(small.Stack, loss=loss, count=3).check(activations="auto").engine.activations
    assert kept_by_the_program.calls == 0
    assert seen[0] == seen[3] and len(seen[0]) > 10


# Errors instead of other bytes.
@pytest.mark.parametrize("name", ["input", "output"])
def test_what_was_changed_in_place_since_the_forward_is_an_error_as_in_torch(name):
    class Squashed(small.Block):
        def forward(self, x):
            return torch.tanh(self.linear(x))
    engine = engine_of(lambda: small.Stack(block=Squashed))
    x = torch.randn(2, 5, small.WIDTH)
    y = engine.module.blocks[0](x)
    (x if name == "input" else y.detach()).add_(1)
    with pytest.raises(penstock.UsageError, match="unit 'blocks.0', has been modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.afterwards
def test_a_graph_from_before_an_update_is_an_error():
    engine = engine_of()
    stale = small.loss(engine, small.ids())
    engine.backward(small.loss(engine, small.ids(1)))
    engine.step()
    with pytest.raises(penstock.UsageError, match="call backward before engine.step"):
        stale.backward()
    engine.visits.give_up()
    stale = small.loss(engine, small.ids())
    engine.set_weight("blocks.1.linear.weight", torch.zeros(small.WIDTH, small.WIDTH))
    with pytest.raises(penstock.UsageError, match="'blocks.1.linear.weight', needed for a gradient in unit 'blocks.1'"):
        stale.backward()


@pytest.mark.afterwards
def test_a_graph_of_torchs_own_from_before_an_update_is_an_error():
    """Of a unit whose weights stay where they are, and whose graph is never given up."""
    model = small.Stack()
    engine = penstock.initialize(model, adamw(model.parameters()), core=core_of(), resident=["*"],
                                 settings=penstock.Settings(activations="keep"))[0]
    stale = small.loss(engine, small.ids())
    engine.backward(small.loss(engine, small.ids(1)))
    engine.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        stale.backward()


@pytest.mark.afterwards
def test_a_graph_outlives_its_pass():
    """What ends a pass takes weights away; the graph brings them again."""
    engine, plain = engine_of(), small.Stack()
    plain.load_state_dict(engine.state_dict())
    for model in (plain, engine.module):
        model.eval()
    loss = small.loss(engine, small.ids())
    engine.weight("head.weight")
    loss.backward()
    small.loss(plain, small.ids()).backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(engine.module.parameters(), plain.parameters()))


def test_who_looks_at_a_graph_sees_weights():
    engine = engine_of()
    y = engine.module.head(torch.randn(3, small.WIDTH, requires_grad=True))
    assert torch.equal(y.grad_fn._saved_mat2.t(), engine.weight("head.weight"))


@pytest.mark.fake
def test_the_window_needs_only_the_units_of_one_visit():
    found = training(lambda: small.Stack(blocks=6)).check(activations="keep")
    widest = max(found.core.peak_bytes, 1)
    training(lambda: small.Stack(blocks=6)).check(activations="keep", window_bytes=widest)
    training_passes = [visits for kind, visits in found.core.passes if kind == "training"]
    assert training_passes[0] == training_passes[-1]


@pytest.mark.skipif(not NATIVE, reason="of the core on NVMe")
@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_a_device_with_memory_of_its_own_has_the_same_bits(tmp_path, device):
    torch.manual_seed(3)
    model = small.Stack()
    engine = penstock.initialize(model, adamw(model.parameters()), settings=penstock.Settings(activations="keep"),
                                 store=penstock.Store(tmp_path, device=device,
                                                      device_budget_bytes=0 if device == "cpu" else 64 << 20))[0]
    for step in range(4):
        engine.backward(small.loss(engine, small.ids(step)))
        engine.step()


@pytest.mark.skipif(not NATIVE, reason="of the C library")
def test_a_configuration_may_ask_for_it():
    engine = penstock.initialize(small.Stack(), config={"memory": {"activations": "keep"}}, core=core_of())[0]
    assert engine.settings.activations == "keep" and engine.activations.budget_bytes is None
    engine = penstock.initialize(small.Stack(), core=core_of(), config={
        "memory": {"activations": "keep", "graph_budget": "1MiB"}})[0]
    assert engine.activations.budget_bytes == 1 << 20
