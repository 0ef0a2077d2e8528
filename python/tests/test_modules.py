"""Any module, without a word about its structure: the bits of plain torch."""
from __future__ import annotations

import random

import pytest
import torch

import penstock
import small_models as small
from compare import Training
from cores import test_core as core_of
from fake_core import bytes_of
from penstock.machine import heap


def training(make, count=4, loss=small.loss, **options) -> Training:
    return Training(make, [small.ids(i) for i in range(count)], loss, **options)


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("tied", [False, True])
def test_a_stack_of_blocks_trains_to_the_same_bits(tied, accumulation):
    training(lambda: small.Stack(tied=tied), accumulation=accumulation, clip=0.5).check()


@pytest.mark.parametrize("make", [
    small.Twice, small.Skipping, small.NestedStack, small.Sharing, small.Direct,
    lambda: small.Stack(block=small.Normed), lambda: small.Stack(block=small.Experts),
    lambda: small.Stack(block=small.Remembering), lambda: small.Stack(block=small.Counting),
    lambda: small.Twice(block=small.Normed)], ids=[
    "called twice", "skipped", "outputs and arguments in containers", "a shared module called within units",
    "parameters beside units", "batch norm", "experts that get no tokens", "a buffer that is replaced",
    "a buffer that is overwritten", "batch norm called twice"])
def test_an_awkward_module_trains_to_the_same_bits(make):
    training(make, count=6).check()


@pytest.mark.parametrize("activations", ["recompute", "keep"])
@pytest.mark.parametrize("all_of_it", [False, True])
# A reentrant one has a backward of its own, and each brings a gradient of the unit that all share.
@pytest.mark.parametrize("reentrant", [False, pytest.param(True, marks=pytest.mark.afterwards)])
def test_a_units_own_checkpoint_may_call_another_unit(reentrant, all_of_it, activations):
    training(lambda: small.SharingWithin(reentrant, all_of_it)).check(window_bytes=8192, activations=activations)


@pytest.mark.parametrize("activations", ["recompute", "keep"])
# One that is read outside of its unit has its gradient with all others.
@pytest.mark.parametrize("how", [pytest.param("itself", marks=pytest.mark.afterwards), "view", "detached", "container"])
def test_a_unit_may_give_its_weight_out(how, activations):
    training(lambda: small.Giving(how)).check(activations=activations)


@pytest.mark.parametrize("activations", ["recompute", "keep"])
# What is gone back through twice brings several gradients.
@pytest.mark.parametrize("make", [pytest.param(small.GoingBackThrough, marks=pytest.mark.afterwards),
                                  lambda: small.Asking(True), lambda: small.Asking(False)],
                         ids=["goes back through", "calls", "calls without gradients"])
def test_a_hook_within_a_units_backward_may_use_another_unit(make, activations):
    training(make).check(window_bytes=8192, activations=activations)


def test_pythons_generator_is_as_it_was_in_the_recompute():
    def make():
        random.seed(3)
        return small.Stack(block=small.PythonNoise)
    training(make).check(activations="recompute")


def test_numpys_generator_is_as_it_was_in_the_recompute():
    numpy = pytest.importorskip("numpy")

    class Noise(small.Block):
        def forward(self, x):
            return x + torch.tanh(self.linear(self.norm(x) * float(1 + numpy.random.rand())))

    def make():
        numpy.random.seed(3)
        return small.Stack(block=Noise)
    training(make).check(activations="recompute")


@pytest.mark.fake
def test_the_window_needs_only_the_units_of_one_visit():
    found = training(lambda: small.Stack(blocks=6)).check()
    core = found.core
    widest = max(bytes_of(unit) for unit in core.units)
    assert core.peak_bytes == widest
    whole = sum(bytes_of(unit) for unit in core.units)
    assert whole > 5 * widest
    training(lambda: small.Stack(blocks=6)).check(window_bytes=widest)


@pytest.mark.fake
def test_the_first_pass_visits_what_was_expected_and_nothing_is_foretold():
    core = training(lambda: small.Stack(tied=True)).check().core
    kind, visits = core.passes[0]
    assert (kind, visits) == ("training", list(core.model.training))
    assert core.expectations == []


@pytest.mark.fake
def test_a_forward_of_another_order_is_foretold_when_backward_begins():
    core = training(small.Twice, count=3).check().core
    kind, expected = core.expectations[0]
    visits = core.passes[0][1]
    assert kind == "training" and visits[-len(expected):] == expected
    assert len(core.expectations) == 1  # the second pass went as the first


def test_weights_that_are_read_outside_of_their_units_are_brought_and_told():
    found = training(small.Functional).check(window_bytes=4096)
    assert found.engine.visits.notes == {"embedding.weight": "embedding", "head.weight": "linear"}


def test_a_term_on_weights_in_the_loss_has_its_gradient():
    def loss(model, batch):
        inner = getattr(model, "module", model)
        value = small.loss(model, batch)
        return value + 0.1 * inner.blocks[0].linear.weight.pow(2).sum() + inner.norm.weight.abs().sum()
    training(small.Stack, loss=loss).check(window_bytes=4096)


@pytest.mark.afterwards
def test_two_graphs_may_have_what_was_read_outside():
    def loss(model, batch):
        first, second = small.loss(model, batch), small.loss(model, batch.flip(0))
        first.backward()
        return second
    training(small.Functional, loss=loss).check(window_bytes=4096)


def test_two_forwards_may_come_before_one_backward():
    training(small.Stack, loss=lambda model, batch: small.loss(model, batch) + small.loss(model, batch.flip(1))).check()


@pytest.mark.afterwards
def test_a_graph_may_be_gone_back_through_twice():
    def loss(model, batch):
        value = small.loss(model, batch)
        value.backward(retain_graph=True)
        return value
    training(small.Stack, loss=loss).check()


def test_a_forward_without_gradients_may_come_between_forward_and_backward():
    def loss(model, batch):
        value = small.loss(model, batch)
        with torch.no_grad():
            reference = small.loss(model, batch)
        return value - 0.5 * reference
    training(small.Stack, loss=loss).check()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_the_users_own_checkpoint_is_recomputed_once(reentrant, together):
    found = training(lambda: small.Checkpointing(reentrant, together)).check(window_bytes=8192)
    assert found.engine.module.computed == [8, 8, 8]  # 4 forwards and 4 recomputes


@pytest.mark.fake
def test_frozen_parameters_get_no_gradient_and_do_not_change():
    def make():
        model = small.Stack()
        for name, each in model.named_parameters():
            each.requires_grad_("norm" in name or "head" in name)
        return model
    found = training(make).check()
    assert all(found.engine.core.units[u].parameters[i].trainable for u, i in found.core.sums)


def test_autocast_computes_the_same_bits():
    def loss(model, batch):
        with torch.autocast("cpu", torch.bfloat16):
            return small.loss(model, batch)
    training(small.Stack, loss=loss).check()


def test_a_module_called_twice_under_autocast_has_its_gradients_added_as_in_torch():
    """A weight that is cast once has both gradients added in the lower type: autocast's copies stay until it ends."""
    def loss(model, batch):
        with torch.autocast("cpu", torch.bfloat16):
            first = small.loss(model, batch)
            with torch.no_grad():
                small.loss(model, batch)
            return first + small.loss(model, batch.flip(1))
    training(small.Twice, loss=loss).check()


def test_in_an_evaluation_autocast_keeps_no_copy_of_a_weight_beyond_its_unit(monkeypatch):
    engine = training(small.Stack, count=1).managed().engine
    cleared = []
    clear = torch.clear_autocast_cache
    monkeypatch.setattr(torch, "clear_autocast_cache", lambda: (cleared.append(1), clear()))
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        small.loss(engine, small.ids())
        assert len(cleared) == 6  # units


def test_sparse_gradients_are_summed_densely():
    def make():
        model = small.Stack()
        model.embedding.sparse = True
        return model
    dense, sparse = training(small.Stack).plain(), training(make).managed()
    assert dense.losses[:2] == sparse.losses[:2]


def test_an_exception_in_a_forward_leaves_a_model_that_trains_on():
    training(small.Stack, loss=small.raising_before).check()


@pytest.mark.afterwards
def test_an_exception_in_a_backward_leaves_a_model_that_trains_on():
    engine = training(small.Stack, count=1).managed().engine
    hook = engine.module.blocks[1].linear.bias.register_hook(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        small.loss(engine, small.ids()).backward()
    hook.remove()
    engine.optimizer.zero_grad()
    small.loss(engine, small.ids()).backward()
    engine.step()
    assert engine.visits.kind is None


@pytest.mark.fake
def test_outputs_in_evaluation_are_those_of_plain_torch():
    one = training(small.Stack)
    expected, found = one.plain(), one.managed()
    plain = small.Stack()
    plain.load_state_dict(expected.state)
    with torch.no_grad():
        assert torch.equal(plain.eval()(small.ids(9)), found.engine.eval()(small.ids(9)))
    assert found.core.passes[-1] == ("inference", list(found.core.model.inference))
    assert found.core.kind is None

@pytest.mark.parametrize("activations", ["recompute", "keep"])
def test_free_pages_go_back_before_a_large_gradient(monkeypatch: pytest.MonkeyPatch, activations: str) -> None:
    """Once per recompute of a large unit, and at no other."""
    trims: list[None] = []
    monkeypatch.setattr(heap, "LARGE_BYTES", 4 * 64 * 8)
    monkeypatch.setattr(heap, "give_back_free_pages", lambda: trims.append(None))
    model = torch.nn.Sequential(torch.nn.Embedding(64, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))
    engine, _, _, _ = penstock.initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), core=core_of(),
                                          settings=penstock.Settings(activations=activations))  # type: ignore[arg-type]
    for step in range(1, 3):
        engine.backward(engine(torch.arange(10)).sum())
        engine.step()
        assert len(trims) == (step if activations == "recompute" else 0)


@pytest.mark.parametrize("environment, kept", [
    ({}, False), ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}, False),
    ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.trim_threshold=1099511627776"}, True),
    ({"MALLOC_TRIM_THRESHOLD_": "1099511627776"}, True)])
def test_free_pages_stay_where_glibc_is_told_to_keep_them(environment: dict[str, str], kept: bool) -> None:
    assert heap.is_to_be_kept(environment) is kept


class Renormed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(16, 8, max_norm=0.5)
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, ids):
        return self.linear(self.embedding(ids))


@pytest.mark.afterwards
@pytest.mark.parametrize("evaluation", [False, True])
def test_a_weight_that_its_own_unit_changes_in_place_is_an_error_and_not_lost(evaluation):
    model = Renormed()
    engine, _, _, _ = penstock.initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), core=core_of())
    before = engine.weight("embedding.weight")
    if evaluation:
        with torch.no_grad():
            engine(torch.arange(16))
        with pytest.raises(penstock.ModelError, match="'embedding.weight' were changed in place"):
            engine(torch.arange(16))
    else:
        engine.backward(engine(torch.arange(16)).sum())
        with pytest.raises(penstock.ModelError, match="'embedding.weight' were changed in place"):
            engine.step()
    assert torch.equal(engine.weight("embedding.weight"), before)


def test_weights_that_are_changed_between_passes_are_trained_on():
    model = small.Stack()
    engine, _, _, _ = penstock.initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), core=core_of())
    for change in (lambda: engine.load_state_dict({key: each * 2 for key, each in engine.state_dict().items()}),
                   lambda: double(engine, model), lambda: engine.set_weight("head.weight", torch.ones_like(
                       engine.weight("head.weight")))):
        change()
        engine.backward(small.loss(engine, small.ids(0)))
        engine.step()


@torch.no_grad()
def double(engine, model):
    with engine.gathered(model.parameters(), modify=True):
        for each in model.parameters():
            each.mul_(2)
