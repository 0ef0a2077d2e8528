"""Steps of fp16 that overflow again and again, and which steps count as clipped."""
from __future__ import annotations

import math

import pytest
import torch

import penstock
import small_models as small
from compare import adamw
from cores import test_core as OpenCore
from penstock.loss_scale import IN_VAIN, LossScale
from resumed import losses_of, start


def fp16(scale, folder=None):
    torch.manual_seed(0)
    model = small.Stack().half()
    settings = penstock.Settings(loss_scale=scale)
    return penstock.initialize(model, adamw(model.parameters()), core=OpenCore(folder=folder), settings=settings)[0]


def step(engine, factor=1.0):
    engine.backward(small.loss(engine, small.ids()).float() * factor)
    engine.step()


@pytest.mark.parametrize("scale, steps", [
    (LossScale.dynamic(power=2, hysteresis=1), 2 + IN_VAIN), (LossScale.dynamic(power=1, hysteresis=3), 3 + IN_VAIN),
    (LossScale.dynamic(power=4, hysteresis=1, least=8.0), 1 + IN_VAIN), (LossScale(8.0, fixed=True), IN_VAIN)])
def test_steps_that_overflow_at_the_least_scale_end_in_an_error(scale, steps):
    engine = fp16(scale)
    for _ in range(steps - 1):
        step(engine, math.nan)
    with pytest.raises(penstock.NonFiniteError, match=f"{IN_VAIN} steps in a row were not finite at loss scale") as told:
        step(engine, math.nan)
    assert ("which is fixed" in str(told.value)) == scale.fixed and engine.global_steps == 0
    with pytest.raises(penstock.NonFiniteError):
        step(engine, math.inf)
    step(engine)  # a batch that is good: it goes on
    assert engine.global_steps == 1
    for _ in range(IN_VAIN - 1):
        step(engine, math.nan)


def test_steps_that_overflow_are_counted_and_have_no_norm(tmp_path):
    scale = LossScale.dynamic(power=8, hysteresis=1)
    engine = fp16(scale, tmp_path / "store")
    assert (engine.skipped_steps, engine.get_global_grad_norm()) == (0, None)
    step(engine, math.nan)
    assert (engine.skipped_steps, engine.global_steps, engine.get_global_grad_norm()) == (1, 0, None)
    assert not engine.was_step_applied()
    step(engine)
    norm = engine.get_global_grad_norm()
    step(engine, math.inf)
    assert engine.get_global_grad_norm() == norm and not math.isnan(norm or 0.0)
    assert (engine.skipped_steps, engine.global_steps) == (2, 1)
    engine.save_checkpoint(tmp_path / "kept", "here")
    step(engine)
    step(engine, math.nan)
    engine.load_checkpoint(tmp_path / "kept", "here")
    assert (engine.skipped_steps, engine.global_steps) == (2, 1)
    step(engine)
    engine.close()
    assert fp16(scale, tmp_path / "store").skipped_steps == 2


@pytest.mark.parametrize("scale", [LossScale.dynamic(power=8), LossScale(1024.0, fixed=True)])
def test_a_backward_of_torchs_own_in_fp16_is_refused_and_begins_anew(scale):
    """Its gradients would be divided by a scale that they do not have."""
    engine = fp16(scale)
    before = dict(engine.named_weights("master"))
    small.loss(engine, small.ids()).float().backward()
    for update in (engine.step, engine.optimizer.step):
        with pytest.raises(penstock.UsageError, match=f"divided by the loss scale, {scale.value:g}: say engine.backward"):
            update()
    assert all(torch.equal(each, before[name]) for name, each in engine.named_weights("master"))
    engine.optimizer.zero_grad()
    step(engine)
    assert engine.global_steps == 1


def test_overflows_with_steps_between_them_are_no_error():
    engine = fp16(LossScale.dynamic(power=0, hysteresis=1))
    for _ in range(2 * IN_VAIN):
        step(engine, math.nan)
        step(engine)
    assert engine.global_steps == 2 * IN_VAIN


def test_overflows_above_the_least_scale_are_no_error():
    engine = fp16(LossScale.dynamic(power=16, hysteresis=1))
    for _ in range(16):
        step(engine, math.nan)
    assert engine.optimizer.loss_scale.value == 1
