"""Graphs that are given up when memory is short, and recomputed in backward: the bits of plain torch, or an error by name."""
from __future__ import annotations

import gc
import logging
import random

import pytest
import torch
from torch import nn

import penstock
import small_models as small
from compare import Training, adamw, differences, seed
from cores import test_core as core_of
from penstock.step.output import Seen
from programs_of_units import KINDS


class RandomRoom:
    """At random there is room, or none."""

    def __init__(self, number: int, share: float = 0.5) -> None:
        self.random, self.share = random.Random(number), share

    def __call__(self) -> float:
        return float("inf") if self.random.random() > self.share else -float("inf")


def training(make, count=4, loss=small.loss, **options) -> Training:
    return Training(make, [small.ids(i) for i in range(count)], loss, **options)


def check(one: Training, **settings):
    """The engine, which has trained to plain torch's bits."""
    found = one.managed(settings=penstock.Settings(accumulation=one.accumulation, **settings))
    differing = differences(one.plain(), found)
    assert not differing, "; ".join(differing)
    gc.collect()
    assert found.engine.activations.held_bytes == 0
    return found.engine


WAYS = [dict(activations="recompute"), *(dict(activations="auto", room=RandomRoom(number)) for number in range(3)),
        dict(activations="auto", room=lambda: 0.0)]
NAMES = ["recompute", "random 0", "random 1", "random 2", "no room"]


@pytest.mark.parametrize("way", WAYS, ids=NAMES)
@pytest.mark.parametrize("make", [
    small.Stack, lambda: small.Stack(tied=True), small.Twice, small.Skipping, small.NestedStack, small.Sharing, small.Direct,
    small.Functional, lambda: small.Stack(block=small.Normed), lambda: small.Stack(block=small.Experts),
    lambda: small.Stack(block=small.Remembering), lambda: small.Stack(block=small.Counting),
    lambda: small.Twice(block=small.Normed)], ids=[
    "a stack", "tied", "called twice", "skipped", "containers", "shared", "parameters beside units", "functional",
    "batch norm", "experts", "a buffer that is replaced", "a buffer that is overwritten", "batch norm called twice"])
def test_an_awkward_module_trains_to_the_same_bits(make, way):
    check(training(make, count=5), **way)


@pytest.mark.parametrize("way", WAYS, ids=NAMES)
@pytest.mark.parametrize("kind", KINDS, ids=[each.__name__ for each in KINDS])
def test_a_program_of_this_kind_trains_to_the_same_bits(kind, way):
    check(kind(), **way)


def test_two_forwards_before_a_backward_and_one_that_nobody_needs():
    def loss(model, batch):
        first = small.loss(model, batch)
        small.loss(model, batch.flip(0))
        return first + small.loss(model, batch.flip(1))
    for way in WAYS:
        check(training(small.Stack, loss=loss), **way)


@pytest.mark.afterwards
def test_a_graph_may_be_gone_back_through_twice():
    for way in WAYS:
        check(training(small.Stack, loss=small.gone_back_before), **way)


# Which are given up, and when.
def engine_of(make=small.Stack, **settings):
    torch.manual_seed(0)
    model = make()
    return penstock.initialize(model, adamw(model.parameters()), core=core_of(), settings=penstock.Settings(**settings))[0]


def run_names(engine) -> list[str]:
    """Of the blocks, each time that one's forward runs."""
    names: list[str] = []
    for name, block in engine.module.blocks.named_children():
        block.linear.forward = lambda x, name=name, own=block.linear.forward: names.append(name) or own(x)
    return names


def step(engine, batch=None):
    engine.backward(small.loss(engine, small.ids() if batch is None else batch))
    engine.step()


def test_the_oldest_are_given_up_and_only_as_many_as_must_be():
    whole = engine_of(graph_budget_bytes=1 << 30)
    step(whole)
    held, one = whole.activations.peak_bytes, whole.activations.reserve_bytes
    engine = engine_of(graph_budget_bytes=held)
    names = run_names(engine)
    step(engine)
    assert names[:3] == ["0", "1", "2"] and names[3:] == ["1", "0"][-len(names[3:]):] and 1 <= len(names[3:]) < 3
    assert engine.activations.peak_bytes <= held and one > 0


@pytest.mark.parametrize("share", [0.7, 0.4])
def test_a_budget_is_kept_to_beside_the_call_that_runs(share):
    whole = engine_of(lambda: small.Stack(blocks=8), graph_budget_bytes=1 << 30)
    step(whole)
    budget = int(share * whole.activations.peak_bytes)
    engine = engine_of(lambda: small.Stack(blocks=8), graph_budget_bytes=budget)
    for _ in range(3):
        step(engine)
    assert engine.activations.peak_bytes <= budget and engine.activations.given_up > 0


def test_what_keep_says_is_not_given_up_and_what_recompute_says_is():
    engine = engine_of(activations={"blocks.1": "keep", "blocks.2": "recompute", "*": "auto"}, room=lambda: 0.0)
    names = run_names(engine)
    for _ in range(2):
        step(engine)
    assert names.count("1") == 2 and names.count("2") == 4 and names.count("0") == 4


def test_room_is_asked_before_each_call_and_nothing_is_foretold():
    asked = []
    engine = engine_of(room=lambda: asked.append(len(engine.visits.open)) or float("inf"))
    step(engine)
    assert len(asked) == 12  # units, forward and backward
    assert engine.activations.recomputes == 0


def test_what_is_given_up_is_told_once_and_again_when_it_is_over(caplog):
    caplog.set_level(logging.INFO, "penstock")
    free = [0.0]
    engine = engine_of(room=lambda: free[0])
    for _ in range(3):
        step(engine)
    assert caplog.text.count("memory is short: graphs of") == 1 and "are free; one call takes up to" in caplog.text
    free[0] = float("inf")
    for _ in range(2):
        step(engine)
    assert caplog.text.count("graphs of all calls of units are kept again") == 1


def test_memory_that_does_not_suffice_says_where_it_is():
    class Greedy(small.Block):
        def forward(self, x):
            return torch.empty(1 << 50, dtype=torch.uint8)
    engine = engine_of(lambda: small.Stack(block=Greedy))
    with pytest.raises(RuntimeError, match="(?s)can't allocate memory.*graphs of .* calls of units hold.*gradient_accumulation"):
        small.loss(engine, small.ids())


def test_a_statistic_outside_of_a_unit_that_its_hook_keeps_counts_each_forward_once():
    def make():
        model = small.Stack()
        model.seen = [0]
        for block in model.blocks:
            block.register_forward_hook(lambda *_: model.seen.__setitem__(0, model.seen[0] + 1))
            block.register_forward_hook(lambda m, a, out: out * (1 + 0.01 * model.seen[0]))
        return model
    for way in WAYS:
        check(training(make), **way)


def test_a_unit_with_hooks_of_the_programs_is_not_given_up(caplog):
    """Whatever a hook does elsewhere, it would do twice."""
    caplog.set_level(logging.INFO, "penstock")
    for settings in (dict(room=lambda: 0.0), dict(activations="recompute")):
        counted = []
        engine = engine_of(**settings)
        engine.module.blocks[1].linear.register_forward_hook(lambda *_, counted=counted: counted.append(1))
        step(engine)
        assert len(counted) == 1
    assert "unit 'blocks.1': its graph is kept" in caplog.text and "hooks of the program's, which would run twice" in caplog.text


def test_a_hook_that_comes_later_is_seen():
    engine, counted = engine_of(activations="recompute"), []
    step(engine)
    engine.module.blocks[1].linear.register_forward_hook(lambda *_: counted.append(1))
    step(engine)
    assert len(counted) == 1 and "blocks.1" in engine.activations.refused


def test_a_checkpoint_of_the_programs_stops_where_it_does_in_torch():
    """Its recompute draws from a generator of the unit's behind the last tensor that is no weight: so it does in torch."""
    class Draws(small.Block):
        def __init__(self):
            super().__init__(dropout=0.0)
            self.noise = torch.Generator().manual_seed(3)
            self.linear.weight.requires_grad_(False)  # its product saves it alone

        def forward(self, x):
            y = torch.tanh(self.norm(x))
            return torch.nn.functional.linear(y + torch.rand((), generator=self.noise).item(), self.linear.weight)

    def loss(model, batch):
        inner = getattr(model, "module", model)
        x = inner.embedding(batch)
        for block in inner.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        return torch.nn.functional.cross_entropy(inner.head(inner.norm(x)).flatten(0, 1), batch.flatten())
    for way in WAYS:
        check(training(lambda: small.Stack(block=Draws), loss=loss), **way)


def test_outputs_are_held_by_their_bytes_and_where_each_is():
    check(training(small.NestedStack), activations="recompute")  # a number without dimensions is among its outputs
    one, other = (Seen(torch.tensor(each)) for each in ([1.0, 2.0], [2.0, 1.0]))
    assert one.difference(other) == "output 0 has other values" and one.difference(one) is None


class Still(small.Block):
    def __init__(self):
        super().__init__(dropout=0.0)


class Forces(small.Block):
    def forward(self, x):
        return super().forward(x) + torch.func.grad(lambda y: torch.tanh(self.linear(y)).sum())(x)


class Calls(small.Stack):
    """torch.func around units."""

    def run(self, x):
        return super().run(x) + torch.func.grad(lambda y: self.blocks[1](y).sum())(x)


def test_what_torch_refuses_within_hooks_has_copies_of_weights():
    def make():
        return small.Stack(block=Forces)
    for way in WAYS:
        check(training(make), **way)
    found = training(make).managed(settings=penstock.Settings(activations={"blocks.*": "keep"}), resident=["blocks.*"])
    assert not differences(training(make).plain(), found)


def test_a_transform_around_a_unit_is_an_error_but_where_its_weights_stay():
    def make():
        return Calls(block=Still)
    with pytest.raises(penstock.ModelError, match=r"'blocks.1' is called within a transform.*resident=\['blocks.1'\]"):
        training(make).managed()
    found = training(make).managed(resident=["blocks.*"])
    assert not differences(training(make).plain(), found)


# A recompute is exact or an error.
COUNT = [0]


class Global(small.Block):
    """Reads what nobody can put back."""

    def forward(self, x):
        COUNT[0] += 1
        return super().forward(x) * COUNT[0]


class Wider(small.Block):
    def forward(self, x):
        COUNT[0] += 1
        return super().forward(x) + sum(torch.sigmoid(x) for _ in range(COUNT[0]))


@pytest.mark.parametrize("block, what", [(Global, "output 0 has other values"), (Wider, "saved")])
def test_a_recompute_that_is_not_exact_is_an_error_that_names_the_unit_and_what_helps(block, what):
    engine = engine_of(lambda: small.Stack(block=block), activations="recompute")
    COUNT[0] = 0
    with pytest.raises(penstock.ExactnessError, match=f"(?s)unit 'blocks.2'.*{what}.*'blocks.2': 'keep'"):
        step(engine)

    def make():
        COUNT[0] = 0
        return small.Stack(block=block)
    check(training(make), activations={"blocks.*": "keep", "*": "recompute"})
    check(training(make))


def test_a_difference_behind_a_namespace_is_seen():
    class Given(small.Block):
        def forward(self, x):
            COUNT[0] += 1
            given = type("Given", (), {})()
            given.x = super().forward(x) * COUNT[0]
            return given

    class Model(small.Stack):
        def __init__(self):
            super().__init__(block=Given)

        def run(self, x):
            for block in self.blocks:
                x = block(x).x
            return x
    engine = engine_of(Model, activations="recompute")
    with pytest.raises(penstock.ExactnessError, match="output 0 has other values"):
        step(engine)


def test_an_argument_that_is_changed_after_its_call_was_given_up_is_not_read():
    """No node has saved the mask: torch allows the change, so it was copied."""
    class Masked(small.Block):
        def forward(self, x, mask):
            return super().forward(x) * (1 if bool(mask.sum() > 0) else 3)

    class Model(small.Stack):
        def __init__(self):
            super().__init__(block=Masked)

        def run(self, x):
            mask = torch.ones(3)
            for block in self.blocks:
                x = block(x, mask)
            mask.zero_()
            return x
    for way in WAYS:
        check(training(Model), **way)


def test_what_a_unit_changes_in_place_is_copied_from_its_second_call_on():
    """Its first graph is kept; then it is known."""
    class InPlace(small.Block):
        def forward(self, x):
            return self.linear(nn.functional.silu(x, inplace=True))
    engine = engine_of(lambda: small.Stack(block=InPlace), activations="recompute")
    names = run_names(engine)
    step(engine)
    assert names == ["0", "1", "2"]
    step(engine)
    assert names == ["0", "1", "2"] * 2 + ["2", "1", "0"] and not engine.activations.refused


def test_a_unit_that_cannot_be_recomputed_is_kept_and_named(caplog):
    caplog.set_level(logging.INFO, "penstock")

    class Reads(small.Block):
        def forward(self, x, lines):
            return super().forward(x) * next(lines)

    class Model(small.Stack):
        def __init__(self):
            super().__init__(block=Reads)

        def run(self, x):
            lines = (float(each) for each in range(1, 9))
            for block in self.blocks:
                x = block(x, lines)
            return x
    for way in WAYS:
        engine = check(training(Model), **way)
    assert "blocks.0" in engine.activations.refused
    assert "its graph is kept, because its forward cannot be run again as it was: it is given a generator" in caplog.text


def test_an_optimizers_step_between_makes_a_graph_an_error():
    engine = engine_of(activations="recompute")
    stale = small.loss(engine, small.ids())
    step(engine, small.ids(1))
    with pytest.raises(penstock.UsageError, match="call backward before engine.step"):
        stale.backward()


def test_a_forward_that_raises_leaves_a_model_that_trains_on():
    for way in WAYS:
        check(training(small.Stack, loss=small.raising_before), **way)


def test_a_recompute_that_raises_leaves_a_model_that_trains_on():
    class Breaks(small.Block):
        def forward(self, x):
            return super().forward(x) / (1 // COUNT[0])
    COUNT[0] = 1
    engine = engine_of(lambda: small.Stack(block=Breaks), activations="recompute")
    step(engine)
    loss = small.loss(engine, small.ids())
    COUNT[0] = 0
    with pytest.raises(ZeroDivisionError):
        loss.backward()
    COUNT[0] = 1
    engine.optimizer.zero_grad()
    seed()
    step(engine)
    assert engine.visits.kind is None and not engine.visits.open


class Deep(nn.Module):
    """A unit within a unit within a unit."""

    def __init__(self, inner=None):
        super().__init__()
        self.linear, self.inner = nn.Linear(small.WIDTH, small.WIDTH), inner

    def forward(self, x):
        y = torch.tanh(self.linear(x))
        return x + (y if self.inner is None else self.inner(y) + self.inner(x))


def test_units_within_units_are_given_up_with_them():
    def make():
        model = small.Stack()
        model.blocks[1] = Deep(Deep(Deep()))
        return model
    for way in WAYS:
        one = training(make)
        found = one.managed(settings=penstock.Settings(**way))
        assert not differences(one.plain(), found)
