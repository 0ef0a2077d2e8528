"""What penstock.plan() says is what the engine has; and asking changes nothing."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import penstock
import small_models as small
from penstock.__main__ import main
from penstock.native import library

try:
    library.library()
except penstock.UsageError as absent:
    pytest.skip(str(absent), allow_module_level=True)

PACKAGE = Path(penstock.__file__).resolve().parents[1]


def check(made, path, **options):
    """The plan of a model, before; and what an engine of another one like it has."""
    told = penstock.plan(made(), store=path, **options)
    there = path.paths()[0] if isinstance(path, penstock.Store) else path
    assert not os.path.exists(there)
    engine, *_ = penstock.initialize(made(), store=path, **options)
    info = engine.core.info()
    assert told.memory_table == engine.core.memory_table() == info.memory_table.decode()
    assert (told.pool_bytes, told.prefetch_depth) == (info.pool_bytes, info.prefetch_depth)
    assert told.planned_bytes == info.planned_bytes
    assert sum(told.uses.values()) <= told.pool_bytes and told.uses["gradients"] > 0
    files = [os.path.getsize(os.path.join(there, each)) for each in ("data", "manifest.0", "manifest.1")]
    assert told.store_bytes == sum(files)
    assert told.parameters == sum(each.numel() for each in engine.module.parameters())
    return told, engine


def test_a_plan_is_what_the_engine_then_reports(tmp_path):
    told, engine = check(small.Stack, tmp_path / "store")
    before = engine.core.info()
    for seed in range(3):
        engine.backward(small.loss(engine, small.ids(seed)))
        engine.step()
    after = engine.core.info()
    moved = after.read_bytes + after.write_bytes - before.read_bytes - before.write_bytes
    assert 0.9 * told.planned_bytes < moved / 3 < 1.5 * told.planned_bytes + 3 * 4096  # manifests are on top


def wide():
    """So large that types are seen in spite of whole pages."""
    return nn.Sequential(*(nn.Linear(128, 128) for _ in range(3)))


def test_so_it_is_with_every_setting_that_counts(tmp_path):
    for number, options in enumerate((
            {"settings": penstock.Settings(dtype=torch.bfloat16)}, {"units": ["Linear"], "resident": ["2"]},
            {"config": {"bf16": {"enabled": True}, "optimizer": {"type": "SGD", "params": {
                "lr": 0.1, "momentum": 0.9}}, "zero_optimization": {"offload_optimizer": {"device": "cpu"}}}})):
        check(wide, tmp_path / str(number), **options)
    check(wide, penstock.Store(tmp_path / "own", states="cpu", commit_steps=5, prefetch_depth=1))


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_buffers_are_planned_for_and_are_no_parameters(tmp_path, dtype):
    check(Normed, tmp_path / "store", settings=penstock.Settings(dtype=dtype))


def test_a_model_on_meta_has_the_same_plan_and_stays_there(tmp_path):
    with torch.device("meta"):
        model = small.Stack()
    own = penstock.Settings(dtype=torch.bfloat16)
    assert penstock.plan(model, settings=own) == penstock.plan(small.Stack(), settings=own)
    assert all(each.is_meta and each.dtype == torch.float32 for each in model.parameters())


def test_what_does_not_fit_is_refused_with_the_table_and_nothing_is_made(tmp_path):
    store = penstock.Store(tmp_path / "store", host_budget_bytes=8192)
    with pytest.raises(penstock.FitError, match="gradients(.|\n)*host_budget_bytes"):
        penstock.plan(small.Stack(), store=store)
    with pytest.raises(penstock.ModelError, match="nothing to manage"):
        penstock.plan(nn.ReLU())
    assert list(tmp_path.iterdir()) == []


def test_it_is_told_in_lines_and_as_json(tmp_path, capsys):
    told = penstock.plan(small.Stack(), store=[tmp_path / "a", tmp_path / "b"])
    text = str(told)
    assert "456 parameters" in text and f"{tmp_path / 'a'}, {tmp_path / 'b'}" in text and "gradients" in text
    assert main(["plan", "small_models:Stack", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again == penstock.plan(small.Stack()).to_dict() | {"directories": []}


def test_the_verb_takes_a_configuration_and_a_budget(tmp_path, capsys):
    file = tmp_path / "ds.json"
    file.write_text('{"bf16": {"enabled": true}}')
    assert main(["plan", "small_models:Stack", "--config", str(file), "--store", str(tmp_path / "store")]) == 0
    assert str(penstock.plan(small.Stack(), file, tmp_path / "store")) in capsys.readouterr().out
    assert main(["plan", "small_models:Stack", "--host-budget", "4096", "--dtype", "bfloat16"]) == 3
    assert "host_budget_bytes" in capsys.readouterr().err
    for wrong in ("small_models", "small_models:Absent", "absent_module:f", "small_models:ids"):
        assert main(["plan", wrong]) == 2 and wrong in capsys.readouterr().err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["ds.json"]


def test_the_verb_takes_a_directory_of_hugging_face(tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2, vocab_size=64,
                                      num_attention_heads=2, num_key_value_heads=2, architectures=["LlamaForCausalLM"])
    config.save_pretrained(tmp_path)
    assert main(["plan", str(tmp_path), "--json"]) == 0
    expected = penstock.plan(transformers.LlamaForCausalLM(config))
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(expected.to_dict()))


# ---------------------------------------------------------------- verbs of the program

def python_m(arguments, cwd, **variables):
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), **variables}
    return subprocess.run([sys.executable, "-m", "penstock", *arguments], cwd=cwd, env=environment, text=True,
                          capture_output=True)


def test_verbs_of_the_program_reach_it_with_their_arguments_and_its_exit_code(tmp_path):
    for name in ("named", "penstock"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho {name} "$@"\nexit 41\n')
        program.chmod(0o755)
    for verb in ("doctor", "ckpt", "bench"):
        done = python_m([verb, "--help", "-x", "a b"], tmp_path, PENSTOCK_PROGRAM=str(tmp_path / "named"))
        assert (done.returncode, done.stdout) == (41, f"named {verb} --help -x a b\n")
    done = python_m(["ckpt", "ls"], tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}", PENSTOCK_PROGRAM="")
    assert (done.returncode, done.stdout) == (41, "penstock ckpt ls\n")


def test_without_the_program_there_is_one_error_with_its_own_exit_code(tmp_path):
    done = python_m(["doctor"], tmp_path, PENSTOCK_PROGRAM=str(tmp_path / "absent"))
    assert done.returncode == 127 and done.stdout == ""
    assert "absent cannot be started: No such file" in done.stderr and "PENSTOCK_PROGRAM" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_help_lists_the_verbs(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    told = capsys.readouterr().out
    assert ended.value.code == 0
    assert all(verb in told for verb in ("config", "plan", "doctor", "ckpt", "bench", "127"))
