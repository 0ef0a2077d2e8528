"""Units' inputs that are laid aside in the core from forward to backward: to the same bits, within a budget."""
from __future__ import annotations

import gc

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import penstock
import small_models as small
from compare import adamw, weights_equal
from cores import NATIVE, OPTIONS, WITHIN_BACKWARD
from penstock.step import shelf

pytestmark = pytest.mark.skipif(not NATIVE, reason="of the core on NVMe")
GRANULE = 4096
BATCHES = [small.ids(i) for i in range(4)]


@pytest.fixture(autouse=True)
def all_tensors_are_large(monkeypatch):
    monkeypatch.setattr(shelf, "LEAST_BYTES", 1)


class Masked(small.Stack):
    """Every block is given the same mask, and one that is seen transposed."""

    def run(self, x):
        mask = torch.ones(2, 5, 1)
        for block in self.blocks:
            x = block(x.transpose(0, 1) * mask.transpose(0, 1)).transpose(0, 1)
            x = self.last(x, mask)
        return x

    def __init__(self, **options):
        super().__init__(blocks=4, **options)
        self.last = small.Scaled()


class Checkpointed(small.Stack):
    def run(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


RECOMPUTE = penstock.Settings(activations="recompute")


def trained(path, make, budget, loss=small.loss, steps=len(BATCHES), activations="recompute"):
    torch.manual_seed(0)
    model = make()
    store = penstock.Store(path, **OPTIONS, activation_budget_bytes=budget)
    engine = penstock.initialize(model, adamw(model.parameters()), store=store,
                                 settings=penstock.Settings(activations=activations))[0]
    torch.manual_seed(1)
    for batch in BATCHES[:steps]:
        engine.backward(loss(engine, batch))
        engine.step()
    masters, info = dict(engine.named_weights("master")), engine.core.info()
    gc.collect()
    assert budget == 0 or len(engine.core._laid) <= 1, "only the last one may not be known to be dropped"
    engine.close()
    return masters, info


def compared(path, make, budget, **options):
    path.mkdir(exist_ok=True)
    one, none = trained(path / "without", make, 0, **options)
    same, info = trained(path / "with", make, budget, **options)
    assert weights_equal(one.items(), same.items())
    assert none.laid_bytes == 0
    return info


@pytest.mark.parametrize("budget", [3 * GRANULE, 64 * GRANULE])
@pytest.mark.parametrize("make", [lambda: small.Stack(blocks=8), Masked, small.Twice, small.Sharing, small.NestedStack,
                                  lambda: small.Stack(block=small.Normed)],
                         ids=["stack", "masks", "called twice", "shared", "nested", "batch norm"])
def test_bits_are_those_of_torchs_memory(tmp_path, make, budget):
    info = compared(tmp_path, make, budget)
    assert info.laid_bytes > 0
    assert (info.laid_away_bytes > 0) == (budget == 3 * GRANULE)


def test_what_several_units_are_given_is_laid_aside_once(tmp_path):
    class Given(small.Stack):
        def run(self, x):
            mask = torch.ones(2, 5, small.WIDTH)
            for block in self.blocks:
                x = block(x, mask)
            return x
    info = compared(tmp_path, lambda: Given(block=small.Scaled, blocks=6), 64 * GRANULE)
    # Ids of integers; the mask; an input each of the blocks, the norm and the head.
    each = 4 * 10 * small.WIDTH
    assert info.laid_bytes == len(BATCHES) * (8 * 10 + each + 8 * each)


@pytest.mark.parametrize("make", [lambda: small.Stack(blocks=8), Masked, small.Twice, small.NestedStack],
                         ids=["stack", "masks", "called twice", "nested"])
def test_a_plan_says_what_goes_to_nvme(tmp_path, make):
    info = trained(tmp_path / "store", make, 3 * GRANULE)[1]
    torch.manual_seed(0)
    writes = []
    for budget in (64 * GRANULE, 3 * GRANULE):
        store = penstock.Store(tmp_path / "another", **OPTIONS, activation_budget_bytes=budget)
        plan = penstock.plan(make(), store=store, batch=BATCHES[0], loss=lambda output: output.float().pow(2).mean(),
                             settings=RECOMPUTE, seconds=0.02)
        assert plan.forecast is not None and plan.forecast.step is not None
        writes.append(plan.forecast.step.nvme_write_bytes)
    assert info.laid_away_bytes > 0
    assert abs(writes[1] - writes[0] - info.laid_away_bytes / len(BATCHES)) < 1


def test_a_plan_refuses_what_finds_no_room(tmp_path):
    store = penstock.Store(tmp_path, **OPTIONS, activation_budget_bytes=GRANULE)
    with pytest.raises(penstock.FitError, match="activations"):
        penstock.plan(small.Stack(), store=store, batch=torch.cat([BATCHES[0]] * 100), seconds=0.02,
                      settings=RECOMPUTE, loss=lambda output: output.float().pow(2).mean())


def test_two_forwards_may_come_before_a_backward(tmp_path):
    if WITHIN_BACKWARD:
        pytest.skip("a step has one backward")

    def loss(engine, batch):
        first = small.loss(engine, batch)
        second = small.loss(engine, batch.flip(0))
        first.backward(retain_graph=True)
        first.backward()
        return second
    compared(tmp_path, lambda: small.Stack(blocks=6), 3 * GRANULE, loss=loss)


def test_a_forward_without_backward_is_dropped(tmp_path):
    def loss(engine, batch):
        small.loss(engine, batch.flip(0))
        with torch.no_grad():
            small.loss(engine, batch)
        return small.loss(engine, batch)
    compared(tmp_path, lambda: small.Stack(blocks=6), 3 * GRANULE, loss=loss)


def test_memory_that_is_used_again_is_not_taken_for_what_was_there(tmp_path):
    """An input that is gone, and another one at its address with its version."""
    class Reusing(small.Stack):
        def run(self, x):
            for block in self.blocks:
                y = block(x)
                del x
                gc.collect()
                x = y * 1.5
                del y
            return x
    compared(tmp_path, lambda: Reusing(blocks=8), 64 * GRANULE)


def test_what_is_changed_in_place_is_laid_aside_as_it_was(tmp_path):
    class Changing(small.Stack):
        def run(self, x):
            mask = torch.zeros(2, 5, small.WIDTH)
            for block in self.blocks:
                mask += 0.5
                x = block(x, mask.clone())
            return x

    class InPlace(Changing):
        def run(self, x):
            mask = torch.zeros(2, 5, small.WIDTH)
            for block in self.blocks:
                mask += 0.5
                x = block(x, mask)
            return x
    one, _ = trained(tmp_path / "clones", lambda: Changing(block=small.Scaled), 0)
    same, _ = trained(tmp_path / "in place", lambda: InPlace(block=small.Scaled), 64 * GRANULE)
    assert weights_equal(one.items(), same.items())


def test_what_a_checkpoint_or_hooks_of_the_users_keep_is_theirs(tmp_path):
    compared(tmp_path / "checkpoint", Checkpointed, 3 * GRANULE)

    def loss(engine, batch):
        with torch.autograd.graph.save_on_cpu():
            return small.loss(engine, batch)
    assert compared(tmp_path / "hooks", small.Stack, 3 * GRANULE, loss=loss).laid_bytes == 0


def test_units_whose_graphs_are_kept_have_theirs_in_it(tmp_path):
    info = compared(tmp_path, lambda: small.Stack(blocks=6), 64 * GRANULE, activations="keep")
    assert info.laid_bytes == 0


def test_an_exception_in_a_forward_leaves_room_for_the_next(tmp_path):
    torch.manual_seed(0)
    model = small.Stack(blocks=6)
    engine = penstock.initialize(model, adamw(model.parameters()), settings=RECOMPUTE,
                                 store=penstock.Store(tmp_path, **OPTIONS, activation_budget_bytes=3 * GRANULE))[0]
    head = model.head.forward
    for _ in range(3):
        model.head.forward = lambda x: 1 / 0
        with pytest.raises(ZeroDivisionError):
            small.loss(engine, BATCHES[0])
        model.head.forward = head
        engine.backward(small.loss(engine, BATCHES[0]))
        engine.step()
    engine.close()


def test_a_graph_from_before_a_store_went_back_is_an_error(tmp_path):
    model = small.Stack(blocks=6)
    engine = penstock.initialize(model, adamw(model.parameters()), settings=RECOMPUTE,
                                 store=penstock.Store(tmp_path / "store", **OPTIONS, activation_budget_bytes=3 * GRANULE))[0]
    engine.backward(small.loss(engine, BATCHES[0]))
    engine.step()
    engine.save_checkpoint(tmp_path / "kept")
    loss = small.loss(engine, BATCHES[0])
    engine.visits.end()
    engine.load_checkpoint(tmp_path / "kept")
    with pytest.raises(penstock.PenstockError, match="went back to a snapshot|was updated or written after the forward"):
        loss.backward()
    del loss
    engine.backward(small.loss(engine, BATCHES[0]))
    engine.step()
    engine.close()


def test_a_budget_without_room_for_one_unit_says_what_it_takes(tmp_path):
    model = small.Stack()
    engine = penstock.initialize(model, adamw(model.parameters()), settings=RECOMPUTE,
                                 store=penstock.Store(tmp_path, **OPTIONS, activation_budget_bytes=GRANULE))[0]
    with pytest.raises(penstock.FitError, match="activation_budget_bytes"):
        engine(torch.zeros(2, 2 * GRANULE, dtype=torch.long))
    engine.close()


def test_a_configuration_may_ask_for_it(tmp_path):
    model = small.Stack()
    engine = penstock.initialize(model, adamw(model.parameters()), store=tmp_path / "store",
                                 config={"memory": {"activation_budget": "64KiB", "activations": "recompute"}})[0]
    assert engine.core._store.activation_budget_bytes == 64 << 10
    engine.backward(small.loss(engine, BATCHES[0]))
    engine.step()
    assert engine.core.info().laid_bytes > 0
    engine.close()
