"""Units that are updated within backward: the same bits, and what a program may not do there."""
from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import penstock
import small_models as small
from compare import adamw, weights_equal
from cores import ACTIVATIONS, WAYS
from penstock.configuration.config import read_config
from penstock.loss_scale import LossScale
from penstock.native import library

try:
    library.library()
except penstock.UsageError as absent:
    pytest.skip(str(absent), allow_module_level=True)

BATCHES = [small.ids(seed) for seed in range(6)]
SETTINGS = penstock.Settings()


def open_engine(path, order, make=small.Stack, settings=SETTINGS, **options):
    torch.manual_seed(3)
    model = make()
    return penstock.initialize(model, adamw([each for each in model.parameters() if each.requires_grad]),
                               store=penstock.Store(path, **WAYS[order], **options),
                               settings=replace(settings, activations=ACTIVATIONS))[0]


def train(engine, batches=BATCHES):
    for batch in batches:
        engine.backward(small.loss(engine, batch))
        engine.step()


class Counted:
    """A core's units that were updated within backward."""

    def __init__(self, engine, monkeypatch):
        self.units = []
        complete = engine.core.complete
        monkeypatch.setattr(engine.core, "complete", lambda unit: (self.units.append(unit), complete(unit)))


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("order", ["after_backward", "within", "balanced"])
def test_each_unit_is_updated_in_the_last_backward_of_a_step(tmp_path, monkeypatch, order, accumulation):
    engine = open_engine(tmp_path / "store", order, settings=penstock.Settings(accumulation=accumulation))
    counted = Counted(engine, monkeypatch)
    train(engine)
    streamed = len(engine.core.units) - len(engine.binding.resident)
    assert len(counted.units) == (len(BATCHES) // accumulation * streamed if order != "after_backward" else 0)
    engine.close()


def test_a_step_that_is_clipped_after_all_is_updated_again(tmp_path):
    trained, again = {}, {}
    for order in ("after_backward", "speculative", "balanced"):
        engine = open_engine(tmp_path / order, order, settings=penstock.Settings(clip=1.2))
        reports = []
        for batch in BATCHES * 3:
            train(engine, [batch])
            reports.append(engine.record)
        trained[order], again[order] = dict(engine.named_weights("master")), [each.updated_again for each in reports]
        norms = [each.gradient_norm for each in reports]
        assert min(norms) < 1.2 < max(norms), "the test wants both kinds of steps"
        engine.close()
    for order in ("speculative", "balanced"):
        assert weights_equal(trained["after_backward"].items(), trained[order].items())
        assert any(again[order])
    assert not any(again["after_backward"])


@pytest.mark.parametrize("order, settings, options, words", [
    ("within", penstock.Settings(clip=1.0), {"commit_steps": 2}, "it needs commit_steps 1"),
    ("within", penstock.Settings(clip=1.0), {"weights": "cpu"}, "it needs weights \"nvme\"; or take \"deferred\""),
    ("balanced", penstock.Settings(clip=1.0), {"host_budget_bytes": 1 << 30, "fill_host_budget": True},
     "no fill_host_budget"),
    ("within", penstock.Settings(loss_scale=LossScale(8.0)), {}, "with fp16"),
])
def test_an_order_that_would_never_be_taken_is_refused(tmp_path, order, settings, options, words):
    with pytest.raises(penstock.UsageError, match=words):
        open_engine(tmp_path / "store", order, settings=settings, **options)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("word, share", [("in_backward", 0.0), ("speculative", 0.0), ("balanced", "auto")])
def test_older_words_are_taken_and_said(tmp_path, word, share):
    with pytest.warns(FutureWarning, match=f"update_order='{word}'.* is an older word for .*'within'"):
        store = penstock.Store(tmp_path, update_order=word)
    assert (store.update_order, store.deferred_share) == ("within", share)
    assert store.says("update_order") and store.says("deferred_share") == (share == "auto")
    with pytest.warns(FutureWarning):
        assert penstock.Store(tmp_path, update_order=word, deferred_share=0.25).deferred_share == 0.25
    with pytest.warns(FutureWarning):
        replaced = replace(penstock.Store(tmp_path), update_order=word)
    assert (replaced.update_order, replaced.deferred_share) == ("within", share)
    for spelled in (word, word.title()):  # in any case of letters, as all words there
        read = read_config({"run": {"update_order": spelled}})
        store = read.store_at(tmp_path)
        assert (store.update_order, store.deferred_share) == ("within", share)
        assert "run.update_order" in read.note()
        merged = read.store_at(penstock.Store(tmp_path))
        assert (merged.update_order, merged.deferred_share) == ("within", share)


@pytest.mark.parametrize("share", [1.5, "half", None, -0.1])
def test_a_share_is_of_one(tmp_path, share):
    with pytest.raises(penstock.UsageError, match=r"Store\(deferred_share="):
        penstock.Store(tmp_path, update_order="within", deferred_share=share)


def test_a_share_of_another_order_is_refused(tmp_path):
    with pytest.raises(penstock.UsageError, match="deferred_share has no effect"):
        open_engine(tmp_path / "store", "deferred", deferred_share=0.5)


def test_a_configuration_may_ask_for_it(tmp_path):
    model = small.Stack()
    engine = penstock.initialize(model, adamw(model.parameters()), store=tmp_path / "store",
                                 config={"gradient_clipping": 0, "run": {"update_order": "within"}})[0]
    train(engine, BATCHES[:2])
    assert engine.core.begun is None and engine.global_steps == 2


def test_gradients_of_units_that_are_updated_are_not_there(tmp_path):
    engine = open_engine(tmp_path / "store", "within")
    engine.backward(small.loss(engine, BATCHES[0]))
    with pytest.raises(penstock.UsageError, match="clip_grad_norm_ comes too late"):
        torch.nn.utils.clip_grad_norm_(engine.module.parameters(), 1.0)
    engine.step()
    assert all(each.grad is None for each in engine.module.parameters())


def test_weights_of_units_that_are_updated_are_not_read_before_the_step_ends(tmp_path):
    engine = open_engine(tmp_path / "store", "within")
    train(engine, BATCHES[:1])
    weight = engine.module.blocks[0].linear.weight
    assert weight.sum().isfinite()
    engine.backward(small.loss(engine, BATCHES[1]))
    with pytest.raises(penstock.UsageError, match="read by 'sum' after its unit was updated.*'deferred'"):
        weight.sum()
    engine.step()
    assert weight.sum().isfinite()


def test_zero_grad_between_forward_and_backward_is_as_ever(tmp_path):
    engine = open_engine(tmp_path / "store", "within")
    for batch in BATCHES[:3]:
        loss = small.loss(engine, batch)
        engine.optimizer.zero_grad()
        loss.backward()
        engine.optimizer.step()
    plain = open_engine(tmp_path / "plain", "after_backward")
    train(plain, BATCHES[:3])
    assert weights_equal(engine.named_weights(), plain.named_weights())


def test_a_second_backward_of_a_step_is_refused_and_the_store_stays(tmp_path, caplog):
    engine = open_engine(tmp_path / "store", "within")
    train(engine, BATCHES[:2])
    before = dict(engine.named_weights())
    engine.backward(small.loss(engine, BATCHES[2]))
    with pytest.raises(penstock.UsageError, match="another pass within step 3|a step has one backward"):
        engine.backward(small.loss(engine, BATCHES[3]))
    with caplog.at_level(logging.WARNING, "penstock"):
        engine.close()
    assert "step 3 ended while its units were updated" in caplog.text
    again = open_engine(tmp_path / "store", "within")
    assert again.global_steps == 2 and weights_equal(before.items(), again.named_weights())


def test_an_exception_within_backward_costs_the_step_alone(tmp_path):
    engine = open_engine(tmp_path / "store", "within")
    train(engine, BATCHES[:2])
    engine.module.blocks[0].linear.bias.register_hook(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError), engine:
        engine.backward(small.loss(engine, BATCHES[2]))
    again = open_engine(tmp_path / "store", "within")
    plain = open_engine(tmp_path / "plain", "after_backward")
    train(plain, BATCHES[:2])
    assert again.global_steps == 2 and weights_equal(again.named_weights("master"), plain.named_weights("master"))


def test_a_checkpoint_is_gone_back_to_after_such_an_exception(tmp_path):
    engine = open_engine(tmp_path / "store", "within")
    train(engine, BATCHES[:2])
    engine.save_checkpoint(tmp_path / "kept")
    before = dict(engine.named_weights("master"))
    hook = engine.module.blocks[0].linear.bias.register_hook(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        engine.backward(small.loss(engine, BATCHES[2]))
    hook.remove()
    engine.visits.give_up()
    engine.load_checkpoint(tmp_path / "kept")
    assert weights_equal(before.items(), engine.named_weights("master"))
    train(engine, BATCHES[2:4])
    assert engine.global_steps == 4


def test_another_rate_than_backward_saw_is_refused(tmp_path):
    engine = open_engine(tmp_path / "store", "within")
    engine.backward(small.loss(engine, BATCHES[0]))
    engine.optimizer.param_groups[0]["lr"] *= 2
    with pytest.raises(penstock.UsageError, match="with other values than step 1 was begun with"):
        engine.step()
    engine.optimizer.param_groups[0]["lr"] /= 2
    engine.step()
    assert engine.global_steps == 1


class WithBuffer(small.Stack):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(ids)


def test_a_model_with_buffers_is_updated_after_backward_and_says_so(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "penstock")
    engine = open_engine(tmp_path / "store", "within", WithBuffer)
    counted = Counted(engine, monkeypatch)
    train(engine, BATCHES[:2])
    assert not counted.units and engine.module.calls == 2
    assert "is 'after_backward' for this model" in caplog.text


def test_skipped_parameters_stay_as_they_are(tmp_path):
    class Unused(small.Stack):
        def __init__(self) -> None:
            super().__init__()
            self.blocks[1].spare = nn.Parameter(torch.ones(3))

    trained = []
    for order in ("after_backward", "within"):
        engine = open_engine(tmp_path / order, order, Unused)
        train(engine)
        trained.append(dict(engine.named_weights("master")))
        assert torch.equal(trained[-1]["blocks.1.spare"], torch.ones(3))
    assert weights_equal(trained[0].items(), trained[1].items())


class Reentrant(small.Stack):
    """Each of a checkpoint's calls has a backward of its own, within the one of the loss."""

    order = (0, 1, 2)

    def run(self, x):
        for at in self.order:
            x = checkpoint(self.blocks[at], x, use_reentrant=True)
        return x


class ReentrantTwice(Reentrant):
    order = (0, 1, 0, 2, 1, 0)


@pytest.mark.parametrize("make", [Reentrant, ReentrantTwice])
def test_within_reentrant_checkpoints_a_unit_waits_for_all_its_backwards(tmp_path, monkeypatch, make):
    trained = []
    for order in ("after_backward", "within"):
        engine = open_engine(tmp_path / order, order, make)
        counted = Counted(engine, monkeypatch)
        train(engine)
        trained.append(dict(engine.named_weights("master")))
        streamed = len(engine.core.units) - len(engine.binding.resident)
        assert len(counted.units) == (len(BATCHES) * streamed if order == "within" else 0)
        engine.close()
    assert weights_equal(trained[0].items(), trained[1].items())
