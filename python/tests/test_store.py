"""The core on NVMe from Python: the C interface's structures, what cannot be kept, memory that outlives its session."""
from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

import penstock
import small_models as small
from compare import adamw
from penstock.native import library
from penstock.native import structs as session_structs
from penstock.optimizer_kinds import KINDS

try:
    library.library()
except penstock.UsageError as absent:
    pytest.skip(str(absent), allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
STRUCTS = {name: "penstock_" + each for name, each in {
    "Error": "error", "Parameter": "parameter", "Unit": "unit", "Group": "group", "Visit": "visit", "Model": "model",
    "Value": "value", "Options": "session_options", "Info": "session_info", "PlanUse": "plan_use", "Plan": "plan", "RanksPlan": "ranks_plan",
    "Place": "place",
    "UnitMemory": "unit_memory", "Gradient": "gradient", "Step": "step", "StepReport": "step_report"}.items()}


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_structures_lie_in_memory_as_the_header_says(tmp_path):
    lines, expected = [], []
    for name, struct in STRUCTS.items():
        own = getattr(session_structs, name)
        lines.append(f'printf("{struct} %zu\\n", sizeof({struct}));')
        expected.append(f"{struct} {ctypes.sizeof(own)}")
        for member, *_ in own._fields_:
            lines.append(f'printf("{struct}.{member} %zu %zu\\n", offsetof({struct}, {member}), '
                         f'sizeof((({struct}*)0)->{member}));')
            place = getattr(own, member)
            expected.append(f"{struct}.{member} {place.offset} {place.size}")
    source = tmp_path / "layout.c"
    source.write_text('#include <stdio.h>\n#include <stddef.h>\n#include "zero_infinity/capi/penstock_look.h"\n'
                      "int main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n")
    subprocess.run(["cc", "-I", ROOT, "-I", ROOT / "swap/capi", "-o", tmp_path / "layout", source], check=True)
    told = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout
    assert told.splitlines() == expected


def test_optimizers_have_the_numbers_of_the_header():
    header = (ROOT / "zero_infinity/capi/penstock_session.h").read_text()
    listed = header.partition("typedef enum penstock_optimizer {")[2].partition("}")[0]
    numbers = dict(re.findall(r"PENSTOCK_(\w+) = (\d+)", listed))
    assert {name.upper(): str(kind.number) for name, kind in KINDS.items()} == numbers


def open_engine(path, model=None, **options):
    model = model or small.Stack()
    return penstock.initialize(model, adamw([each for each in model.parameters() if each.requires_grad]),
                               store=penstock.Store(path, **options))[0]


def step(engine) -> None:
    engine.backward(small.loss(engine, small.ids()))
    engine.step()


def test_a_directory_is_a_store(tmp_path):
    engine, _, _, _ = penstock.initialize(small.Stack(), store=tmp_path / "store")
    step(engine)
    assert "gradients" in engine.core.memory_table() and isinstance(engine.core.notes(), list)
    engine.close()
    assert penstock.initialize(small.Stack(), store=str(tmp_path / "store"))[0].global_steps == 1


def test_a_store_that_is_given_as_a_core_is_opened_too(tmp_path):
    def engine():
        return penstock.initialize(small.Stack(), core=penstock.Store(tmp_path))[0]
    with engine() as first:
        step(first)
    assert engine().global_steps == 1
    frozen = small.Stack().requires_grad_(False)
    with penstock.initialize(frozen, core=penstock.Store(tmp_path / "frozen"))[0] as alone:
        assert torch.isfinite(alone(small.ids())).all()


def test_where_the_model_is_kept_is_said_once():
    with pytest.raises(penstock.UsageError, match="both given"):
        penstock.initialize(small.Stack(), store="x", core=lambda *_: None)


def test_a_second_engine_on_a_store_is_refused(tmp_path):
    engine = open_engine(tmp_path / "store")
    with pytest.raises(penstock.StorageError, match="in use"):
        open_engine(tmp_path / "store")
    step(engine)


def test_the_store_of_another_model_is_refused_and_left_alone(tmp_path):
    engine = open_engine(tmp_path / "store")
    step(engine)
    engine.close()
    with pytest.raises(penstock.UsageError, match="another model"):
        open_engine(tmp_path / "store", nn.Linear(3, 3))
    assert open_engine(tmp_path / "store").global_steps == 1


def test_a_budget_that_is_too_small_is_refused_with_the_table(tmp_path):
    with pytest.raises(penstock.FitError, match="gradients(.|\n)*host_budget_bytes"):
        open_engine(tmp_path / "store", host_budget_bytes=8192)
    assert not (tmp_path / "store").exists()


def test_trainable_parameters_of_two_types_are_refused_by_name(tmp_path):
    model = small.Stack()
    model.norm.to(torch.bfloat16)
    with pytest.raises(penstock.ModelError, match="bfloat16 are 'norm.weight', 'norm.bias'"):
        open_engine(tmp_path / "store", model)
    assert not (tmp_path / "store").exists()


def test_a_codec_of_another_type_is_refused(tmp_path):
    with pytest.raises(penstock.UsageError, match="'split' does not give weights of torch.float32"):
        open_engine(tmp_path / "store", codec="split")


class Mixed(nn.Module):
    """Frozen in two types and trained in a third, within one unit."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(16, 16).to(torch.bfloat16).requires_grad_(False)
        self.low = nn.Linear(16, 16).to(torch.float16).requires_grad_(False)
        self.adapter = nn.Linear(16, 16)

    def forward(self, x):
        return self.adapter(x) + self.base(x.bfloat16()).float() + self.low(x.half()).float()


def test_frozen_weights_keep_their_types_within_a_unit(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), Mixed(), nn.Linear(16, 1))
    plain = {name: each.detach().clone() for name, each in model.named_parameters()}
    engine, _, _, _ = penstock.initialize(
        model, adamw([each for each in model.parameters() if each.requires_grad]), store=tmp_path / "store",
        units=["1"])
    engine.backward(engine(torch.ones(2, 4)).sum())
    engine.step()
    for name, each in engine.named_weights():
        assert each.dtype == plain[name].dtype
        assert torch.equal(each, plain[name]) == (not model.get_parameter(name).requires_grad), name


def test_a_weight_that_cannot_be_read_leaves_no_store(tmp_path, monkeypatch):
    def lost(*_):
        raise OSError("the share is gone")
    model = small.Stack()
    monkeypatch.setattr(torch.Tensor, "detach", lost)
    with pytest.raises(OSError, match="the share is gone"):
        open_engine(tmp_path / "store", model)
    monkeypatch.undo()
    assert open_engine(tmp_path / "store").global_steps == 0


def test_memory_that_was_handed_out_outlives_the_session(tmp_path):
    engine = open_engine(tmp_path / "store")
    engine.backward(small.loss(engine, small.ids()))
    gradient = engine.module.head.weight.grad
    before = gradient.clone()
    engine.close()
    other = open_engine(tmp_path / "store")
    step(other)
    assert torch.equal(gradient, before)
    with pytest.raises(penstock.StorageError, match="is closed"):
        engine(small.ids())


def test_an_open_store_is_neither_copied_nor_pickled(tmp_path):
    import copy
    engine = open_engine(tmp_path / "store")
    with pytest.raises(penstock.UsageError, match="copied or pickled"):
        copy.copy(engine.core)


def test_a_weight_that_becomes_infinite_ends_the_session_and_not_the_store(tmp_path):
    engine = open_engine(tmp_path / "store")
    step(engine)
    for group in engine.optimizer.param_groups:
        group["lr"] = 1e300
    with pytest.raises(penstock.NonFiniteError, match="step 2 makes"):
        step(engine)
    with pytest.raises(penstock.StorageError, match="ended with an error"):
        step(engine)
    engine.core.close()
    assert open_engine(tmp_path / "store").global_steps == 1


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(penstock.PenstockError, match=os.fspath(tmp_path / "file")):
        open_engine(tmp_path / "file" / "store")


def test_a_trace_has_the_steps_that_were_asked_for(tmp_path):
    path = tmp_path / "step.json"
    engine = open_engine(tmp_path / "store", trace=path, trace_steps=(2, 3))
    for _ in range(4):
        step(engine)
    engine.close()
    slices = [each for each in json.loads(path.read_text())["traceEvents"] if each["ph"] == "X"]
    assert {each["args"]["step"] for each in slices} == {2, 3}
    assert {"compute", "update", "NVMe"} <= {each["name"].split()[0] for each in slices}
    with pytest.raises(penstock.UsageError, match="trace_steps"):
        open_engine(tmp_path / "store", trace=path, trace_steps=(3, 2))
    with pytest.raises(penstock.UsageError, match="options.trace"):
        open_engine(tmp_path / "store", trace=tmp_path)
