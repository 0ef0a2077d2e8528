"""What cannot be: one clear exception each, and nothing is lost."""
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import penstock
import small_models as small
from compare import adamw
from cores import test_core as OpenFakeCore


def managed(make=small.Stack, **options):
    torch.manual_seed(0)
    model = make()
    opener = OpenFakeCore(options.pop("window_bytes", None))
    engine, _, _, _ = penstock.initialize(model, adamw(model.parameters()), core=opener, **options)
    return engine, opener.last


def step(engine):
    engine.backward(small.loss(engine, small.ids()))
    engine.step()


@pytest.mark.parametrize("model, text", [
    ("a model", "not str"), (nn.ReLU(), "has no parameters"), (nn.LazyLinear(3), "have no shape yet"),
    (nn.Linear(2, 2, device="meta"), "on 'meta'"), (nn.Linear(2, 2, dtype=torch.float64), "float64"),
    (nn.ParameterList([nn.Parameter(torch.zeros(0))]), "no elements")])
def test_a_model_that_cannot_be_managed_is_refused(model, text):
    with pytest.raises(penstock.UsageError, match=text):
        penstock.initialize(model, core=OpenFakeCore())


@pytest.mark.parametrize("call, name, text", [
    (penstock.Store, "host_budget", "did you mean 'host_budget_bytes'?"),
    (penstock.Store, "host_memory", "did you mean 'host_budget_bytes'?"),
    (penstock.Store.in_memory, "thread", "did you mean 'threads'?"),
    (penstock.Settings, "activation", "did you mean 'activations'?"),
    (penstock.Settings, "zzz", "there are 'accumulation', 'clip'"),
    (penstock.initialize, "stor", "did you mean 'store'?"),
    (penstock.initialize, "host_budget_bytes", "one of penstock.Store: store=penstock.Store(host_budget_bytes=...)"),
    (penstock.initialize, "clip", "one of penstock.Settings"),
    (penstock.plan, "bach", "did you mean 'batch'?")])
def test_an_argument_that_is_not_there_names_the_nearest(call, name, text):
    given = () if call in (penstock.Settings, penstock.Store.in_memory) else ("here",)
    with pytest.raises(penstock.ArgumentError, match=rf"\({name}=...\): there is no such.*{re.escape(text)}"):
        call(*given, **{name: 1})
    assert issubclass(penstock.ArgumentError, TypeError)


@pytest.mark.parametrize("name", ["weights", "states", "update_order", "verify", "gradients", "gradient_type"])
def test_a_word_that_a_store_does_not_have_is_refused_with_those_that_it_has(name):
    with pytest.raises(penstock.UsageError, match=rf"^Store\({name}='disk'\): there are '\w+'.* and "):
        penstock.Store("somewhere", **{name: "disk"})
    own = getattr(penstock.Store("somewhere"), name)
    assert getattr(penstock.Store("somewhere", **{name: own}), name) == own


@pytest.mark.parametrize("name", ["host_budget_bytes", "prefetch_depth", "staging_tiles", "commit_steps", "threads",
                                  "activation_budget_bytes", "device_budget_bytes", "deadline_seconds"])
def test_a_number_below_zero_is_no_setting_of_a_store(name):
    with pytest.raises(penstock.UsageError, match=rf"^Store\({name}=-3\): a number from 0$"):
        penstock.Store("somewhere", **{name: -3})


def test_a_second_engine_of_a_model_is_refused():
    engine, _ = managed()
    with pytest.raises(penstock.ModelError, match="managed by another engine"):
        penstock.initialize(engine.module, core=OpenFakeCore())


def test_what_is_no_optimizer_or_scheduler_is_refused():
    with pytest.raises(penstock.OptimizerError, match="not str"):
        penstock.initialize(small.Stack(), "AdamW", core=OpenFakeCore())
    with pytest.raises(penstock.UsageError, match="lr_scheduler"):
        penstock.initialize(small.Stack(), lr_scheduler=3, core=OpenFakeCore())
    model = small.Stack()
    with pytest.raises(penstock.UsageError, match="both given"):
        penstock.initialize(model, adamw(model.parameters()), model.parameters(), core=OpenFakeCore())


@pytest.mark.parametrize("change, text", [
    (lambda model: model.register_parameter("late", nn.Parameter(torch.zeros(2))), "'late' were added"),
    (lambda model: setattr(model, "head", nn.Linear(small.WIDTH, 11)), "'head.weight', 'head.bias' were added"),
    (lambda model: setattr(model, "norm", nn.Identity()), "'norm.weight', 'norm.bias' were removed")])
def test_a_model_that_was_changed_is_refused_at_its_next_use(change, text):
    engine, core = managed()
    step(engine)
    change(engine.module)
    with pytest.raises(penstock.ModelError, match=text):
        engine(small.ids())
    with pytest.raises(penstock.ModelError, match=text):
        engine.optimizer.step()
    assert engine.global_steps == 1


def test_a_step_without_a_gradient_is_refused_and_the_next_one_works():
    engine, core = managed()
    with pytest.raises(penstock.NoGradientError, match="engine.backward"):
        engine.step()
    step(engine)
    assert engine.global_steps == 1 and engine.global_steps == 1


def test_a_loss_that_is_no_scalar_is_refused():
    engine, _ = managed()
    with pytest.raises(penstock.UsageError, match="one element"):
        engine.backward(engine(small.ids()))
    with pytest.raises(penstock.UsageError, match="float"):
        engine.backward(1.0)


def test_a_gradient_that_is_not_finite_names_its_parameter_and_nothing_changes():
    engine, core = managed()
    before = dict(engine.state_dict())
    engine.module.blocks[1].linear.bias.register_hook(lambda gradient: gradient / 0)
    engine.backward(small.loss(engine, small.ids()))
    with pytest.raises(penstock.NonFiniteError, match="blocks.1.*linear.bias"):
        engine.step()
    assert all(torch.equal(each, before[name]) for name, each in engine.state_dict().items()) and engine.global_steps == 0


@pytest.mark.parametrize("use", [
    lambda w: w + 1, lambda w: w.data, lambda w: w.detach(), lambda w: w.sum(), lambda w: torch.linalg.norm(w),
    lambda w: w[0], lambda w: torch.tensor(w.tolist()), lambda w: torch.from_numpy(w.data.numpy()), lambda w: w.clone(),
    lambda w: nn.functional.linear(torch.ones(1, small.WIDTH), w), lambda w: w.to(torch.float64),
    lambda w: torch.tensor(float(w[0, 0])), lambda w: torch.tensor(torch.equal(w, w)), lambda w: torch.stack([*w])])
def test_a_weight_that_is_read_between_passes_has_its_values(use):
    engine, _ = managed()
    with torch.no_grad():
        assert torch.equal(use(engine.module.head.weight), use(engine.weight("head.weight")))
    assert engine.visits.kind is None


def test_what_a_weight_is_may_be_asked_at_any_time():
    engine, _ = managed()
    weight = engine.module.head.weight
    assert weight.shape == (11, small.WIDTH) and weight.dtype == torch.float32 and weight.numel() == 11 * small.WIDTH
    assert weight.requires_grad and weight.is_leaf and weight.device.type == "cpu"
    assert weight.ndim == 2 and len(weight) == 11
    assert "'head.weight'" in repr(weight) and isinstance(weight, nn.Parameter) and weight in {weight}
    assert sum(each.numel() for each in engine.parameters()) > 100


@pytest.mark.fake
def test_units_that_find_no_room_are_named():
    engine, core = managed(window_bytes=100)
    with pytest.raises(penstock.FitError, match="unit 'embedding'"):
        engine(small.ids())
    assert not core.stays


def test_a_module_that_another_backward_has_left_cannot_be_used_again_unseen():
    """A graph from before a step that has what was read outside of its unit: an error, not other bytes."""
    engine, _ = managed(small.Functional, window_bytes=8192)
    stale = small.loss(engine, small.ids())
    engine.backward(small.loss(engine, small.ids()))
    engine.step()
    with pytest.raises(RuntimeError, match="was updated or written after the forward of this graph"):
        stale.backward()


class Scaled(small.Block):
    def __init__(self):
        super().__init__()
        self.register_buffer("factor", torch.ones(()))

    def forward(self, x):
        return super().forward(x) * self.factor


def test_a_buffer_that_somebody_else_changes_before_the_backward_is_an_error_as_in_torch():
    engine, _ = managed(lambda: small.Stack(block=Scaled))
    value = small.loss(engine, small.ids())
    engine.module.blocks[0].factor.add_(1)
    with pytest.raises(penstock.UsageError, match="'blocks.0', has been modified by an inplace operation"):
        value.backward()


def test_a_buffer_that_somebody_else_changes_before_the_recompute_is_an_error():
    class Reading(Scaled):
        def forward(self, x):
            return x * float(self.factor) + self.linear(x)
    engine, _ = managed(lambda: small.Stack(block=Reading), settings=penstock.Settings(activations="recompute"))
    value = small.loss(engine, small.ids())
    engine.module.blocks[0].factor.add_(1)
    with pytest.raises(penstock.ExactnessError, match="'blocks.0'.*changed in place since the forward"):
        value.backward()


def test_importing_the_package_imports_no_transformers_and_changes_no_torch():
    code = ("import torch; before = (torch.nn.Module.__call__, torch.nn.Parameter, torch.Tensor.backward); "
            "import sys, penstock; assert 'transformers' not in sys.modules; "
            "assert before == (torch.nn.Module.__call__, torch.nn.Parameter, torch.Tensor.backward); "
            "assert not any(name.startswith(('peft', 'accelerate')) for name in sys.modules); print(penstock.__all__)")
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).resolve().parents[1], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
