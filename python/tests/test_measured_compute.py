"""What penstock.plan() measures of compute is what the engine makes; and the model that is measured stays as it is."""
from __future__ import annotations

import copy
import mmap
import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import penstock
import small_models as small
from fake_core import FakeCore
from penstock.opening import mapped_optimizer, model_spec
from penstock.plans.measured_compute import ComputeProbe, measure_compute, tokens_of


def measured(model, batch=None, loss=None, settings=None, **options):
    own = settings or penstock.Settings()
    cut = penstock.units_of(model, **options)
    spec = model_spec(cut, mapped_optimizer(None, None, model, torch.optim.AdamW), None)
    loss = loss or (lambda output: output.float().pow(2).mean())
    return measure_compute(model, spec, torch.float32, own, small.ids() if batch is None else batch, loss, 0.0, **options)


def probe_of(model):
    spec = model_spec(penstock.units_of(model), mapped_optimizer(None, None, model, torch.optim.AdamW), None)
    return ComputeProbe(model, spec, torch.float32, penstock.Settings())


class Watched(FakeCore):
    """Notes what a visit makes readable."""

    seen: list[Any]

    def begin_pass(self, kind):
        self.seen = []
        super().begin_pass(kind)

    def visit(self, units, held=()):
        self.seen.append(tuple(dict.fromkeys((*units, *held))))
        super().visit(units, held)


def visits_of_the_engine(model):
    engine, *_ = penstock.initialize(model, core=lambda spec, first: Watched(spec, first, window_bytes=1 << 16))
    engine.backward(engine(small.ids()).float().pow(2).mean())
    engine.step()
    return tuple(engine.core.seen)


MODELS = {
    "Stack": small.Stack, "tied": lambda: small.Stack(tied=True), "Twice": small.Twice, "Functional": small.Functional,
    "Direct": small.Direct, "Nested": small.NestedStack, "long": lambda: small.Stack(blocks=9),
    "BatchNorm": lambda: small.Stack(block=small.Normed), "Experts": lambda: small.Stack(block=small.Experts),
    "buffers": lambda: small.Stack(block=small.Counting),
    "own checkpoints": lambda: small.Checkpointing(reentrant=False),
    "one checkpoint": lambda: small.Checkpointing(reentrant=False, together=True),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_visits_are_those_of_the_engine(name):
    torch.manual_seed(3)
    model = MODELS[name]()
    compute = measured(copy.deepcopy(model))
    assert compute.visits == visits_of_the_engine(model)
    assert len(compute.seconds) == len(compute.visits) and all(each > 0 for each in compute.seconds)
    assert 0 < compute.forward_visits < len(compute.visits)


@pytest.mark.parametrize("meta", [False, True])
def test_the_model_stays_as_it_is(meta):
    def states():
        return [torch.get_rng_state(), torch.tensor(random.getstate()[1])]
    with torch.device("meta" if meta else "cpu"):
        model = small.Stack(block=small.Counting)
        model.blocks.append(small.Block())  # which draws
    model.head.weight.requires_grad_(False)
    gradient = torch.ones_like(model.norm.weight)
    model.norm.weight.grad = gradient
    before = [*([] if meta else copy.deepcopy(list(model.state_dict().values()))), *states()]
    members = [dict(vars(each)) for each in model.modules()]
    parameters = list(model.parameters())
    compute = measured(model)
    now = [*([] if meta else model.state_dict().values()), *states()]
    assert all(torch.equal(a, b) for a, b in zip(before, now, strict=True))
    assert [dict(vars(each)) for each in model.modules()] == members
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert all(type(each) is nn.Parameter and each.is_meta == meta for each in parameters)
    assert model.norm.weight.grad is gradient
    assert [each for each in parameters if each.grad is not None] == [model.norm.weight]
    assert not model.head.weight.requires_grad
    assert len(compute.visits) == 7 + 7


class Slow(small.Block):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Slow.calls += 1
        time.sleep(0.01)
        return super().forward(x)


def test_units_that_are_alike_are_computed_twice_in_a_pass_and_the_others_take_as_long():
    Slow.calls = 0
    compute = measured(small.Stack(blocks=12, block=Slow), settings=penstock.Settings(activations="recompute"))
    passes = 3  # the first is not counted
    assert Slow.calls == passes * 2 * 2  # forward, and again in backward
    assert compute.visits == measured(small.Stack(blocks=12)).visits
    blocks = [seconds for visit, seconds in zip(compute.visits, compute.seconds) if 1 <= visit[0] <= 12]
    assert len(blocks) == 24 and all(0.01 <= each < 0.05 for each in blocks), blocks


def graph_bytes_of_the_engine(model, settings):
    engine, *_ = penstock.initialize(model, core=lambda spec, first: Watched(spec, first, window_bytes=1 << 16),
                                     settings=settings)
    held = []
    hold = engine.activations.account.hold
    engine.activations.account.hold = lambda key, call: held.append(hold(key, call)) or held[-1]
    for _ in range(2):
        held.clear()
        engine.backward(engine(small.ids()).float().pow(2).mean())
        engine.step()
    return 0 if engine.activations.given_up else sum(held), tuple(engine.core.seen)


@pytest.mark.parametrize("budget", [None, 0])
@pytest.mark.parametrize("name", ["Stack", "tied", "Twice", "long", "BatchNorm", "Functional"])
def test_graphs_are_kept_as_the_engine_keeps_them(name, budget):
    torch.manual_seed(3)
    model, settings = MODELS[name](), penstock.Settings(graph_budget_bytes=budget)
    compute = measured(copy.deepcopy(model), settings=settings)
    assert measured(copy.deepcopy(model), settings=penstock.Settings(activations="recompute")).graph_bytes == 0
    exact = penstock.Settings(graph_budget_bytes=1 << 40 if budget is None else budget)
    assert (compute.graph_bytes, compute.visits) == graph_bytes_of_the_engine(model, exact)


def test_units_whose_graphs_are_kept_are_computed_once_and_the_others_twice():
    one = measured(small.Stack(blocks=12)).graph_bytes // 14
    Slow.calls = 0
    settings = penstock.Settings(graph_budget_bytes=7 * one)  # about half of the blocks
    compute = measured(small.Stack(blocks=12, block=Slow), settings=settings)
    blocks = [seconds for visit, seconds in zip(compute.visits, compute.seconds) if 1 <= visit[0] <= 12]
    forward, backward = blocks[:12], blocks[12:]
    assert all(0.01 <= each < 0.05 for each in forward)
    kept = [each < 0.008 for each in backward]
    assert 3 <= sum(kept) <= 9 and kept == sorted(kept, reverse=True), backward  # the last ones
    assert Slow.calls == 2 + 2 * (2 + 2 * 2)  # the first pass; then two that are kept and two that are not


def test_units_of_other_shapes_are_of_another_kind():
    Slow.calls = 0
    model = small.Stack(blocks=6, block=Slow)
    for block in model.blocks[3:]:
        block.norm.bias.requires_grad_(False)
    measured(model)
    assert Slow.calls == 3 * (2 + 2)


class Noting(small.Block):
    def forward(self, x: torch.Tensor, notes: list[Any]) -> torch.Tensor:
        notes.append(0)
        return super().forward(x)


class Noted(small.Stack):
    def run(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            notes: list[Any] = []
            x = block(x, notes)
            assert len(notes) >= 1
        return x


@pytest.mark.parametrize("make", [small.NestedStack, lambda: Noted(blocks=5, block=Noting)])
def test_a_unit_that_fills_a_list_of_the_callers_is_always_computed(make):
    probe = probe_of(make())
    compute = probe.measure(small.ids(), lambda output: output.pow(2).mean(), 0.0)
    assert probe.kinds.allowed, "units are stood in for, but not these"
    assert [each for each in compute.visits if each == (2,)] == [(2,), (2,)]


def test_where_units_cannot_be_stood_in_for_all_of_them_are_computed():
    class Counted(small.Stack):
        seen = 0

        def run(self, x: torch.Tensor) -> torch.Tensor:
            Counted.seen = 0
            x = super().run(x)
            assert Counted.seen == len(self.blocks)
            return x

    class Counting(small.Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            Counted.seen += not torch._C._current_graph_task_id() >= 0
            return super().forward(x)
    probe = probe_of(Counted(blocks=5, block=Counting))
    compute = probe.measure(small.ids(), lambda output: output.pow(2).mean(), 0.0)
    assert not probe.kinds.allowed and len(compute.visits) == 16


def test_gradients_reach_what_is_before_units_that_were_stood_in_for():
    class Early(small.Stack):
        told: list[bool] = []

        def run(self, x: torch.Tensor) -> torch.Tensor:
            if x.requires_grad:
                x.register_hook(lambda gradient: self.told.append(bool(torch.isfinite(gradient).all())))
            return super().run(x)
    measured(Early(blocks=8))
    assert Early.told and all(Early.told)


def test_what_is_frozen_is_not_differentiated():
    model = small.Stack(blocks=6)
    for each in (*model.embedding.parameters(), *model.blocks.parameters()):
        each.requires_grad_(False)
    compute = measured(model)
    assert compute.visits == visits_of_the_engine(copy.deepcopy(model))
    assert len(compute.visits) == 9 + 2  # the norm and the head again


def test_accumulation_and_a_loss_scale_are_as_the_engine_has_them():
    settings = penstock.Settings(accumulation=4, loss_scale=penstock.loss_scale.LossScale(1024.0, fixed=True))
    assert measured(small.Stack(), settings=settings).passes == 4
    with torch.device("meta"):
        model = small.Stack()
    half = measured(model, settings=penstock.Settings(dtype=torch.bfloat16))
    assert half.visits == measured(small.Stack()).visits


@pytest.mark.parametrize("batch, expected", [
    ({"x": torch.zeros(2, 3), "ids": torch.zeros(2, 7, dtype=torch.long)}, 14), (torch.zeros(3, dtype=torch.int32), 3),
    ((torch.zeros(2), torch.zeros(5, dtype=torch.bool)), None), ({"n": 4}, None)])
def test_tokens_are_the_elements_of_the_first_tensor_of_integers(batch, expected):
    assert tokens_of(batch) == expected


def test_a_batch_is_given_as_the_forward_takes_it():
    class Two(small.Stack):
        def forward(self, ids, scale=1.0):
            return super().forward(ids) * scale
    for batch in (small.ids(), (small.ids(), 2.0), [small.ids()], {"ids": small.ids(), "scale": 0.5}):
        assert measured(Two(), batch).visits


def test_the_models_own_loss_is_found_and_another_one_is_said():
    class Losing(small.Stack):
        how = staticmethod(lambda loss, logits: {"loss": loss, "logits": logits})

        def forward(self, ids):
            logits = super().forward(ids)
            return self.how(logits.pow(2).mean(), logits)

    def plan_of(how):
        Losing.how = staticmethod(how)
        model = Losing()
        spec = model_spec(penstock.units_of(model), mapped_optimizer(None, None, model, torch.optim.AdamW), None)
        return measure_compute(model, spec, torch.float32, penstock.Settings(), small.ids(), None, 0.0)
    for how in (lambda loss, logits: {"loss": loss}, lambda loss, logits: (loss, logits), lambda loss, logits: loss):
        assert plan_of(how).visits
    for how, words in ((lambda loss, logits: logits, r"one element, not \(2, 5, 11\)"),
                       (lambda loss, logits: {"logits": logits}, "one element, not NoneType"),
                       (lambda loss, logits: loss.detach(), "no gradient")):
        with pytest.raises(penstock.UsageError, match=words):
            plan_of(how)


# ---------------------------------------------------------------- what cannot be measured

def test_a_batch_that_the_model_refuses_is_told_with_the_unit():
    with pytest.raises(penstock.ModelError, match="Stack cannot be run with this batch, in unit 'embedding'.*batch"):
        measured(small.Stack(), torch.full((2, 5), 99))
    with pytest.raises(penstock.ModelError, match="Stack cannot be run with this batch: TypeError"):
        measured(small.Stack(), {"wrong": small.ids()})


def test_a_model_without_a_forward_over_its_units_is_told():
    class Idle(small.Stack):
        def forward(self, ids):
            return torch.zeros((), requires_grad=True)
    with pytest.raises(penstock.ModelError, match="Idle with this batch calls none of its units"):
        measured(Idle(), loss=lambda output: output)


def test_a_model_that_cannot_be_copied_is_told():
    class Locked(small.Stack):
        def __deepcopy__(self, memo):
            raise RuntimeError("there is one of me")
    with pytest.raises(penstock.ModelError, match="Locked cannot be copied to be measured: .*one of me"):
        measured(Locked())


def test_a_copy_that_reads_the_model_itself_is_told_and_leaves_no_gradient():
    model = small.Sharing()  # its blocks' forwards are functions that know their module
    with pytest.raises(penstock.ModelError, match="reads parameters of the model"):
        measured(model)
    assert all(each.grad is None for each in model.parameters())


def test_an_interrupt_is_not_an_error_of_the_batch():
    class Interrupted(small.Stack):
        def forward(self, ids):
            raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        measured(Interrupted())


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_memory_is_that_of_the_largest_unit_or_of_what_no_cache_holds():
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(64)))  # 4 GiB of weights
    before = resident_bytes()
    probe = probe_of(model)
    taken = probe.core._weights.memory.numel(), probe.core._gradients.memory.numel()
    assert all(each <= (256 << 20) for each in taken)
    assert resident_bytes() - before < 1 << 30
    assert bool(torch.isfinite(probe.core._weights.memory.view(torch.float32)).all())
