"""Weights of a store or a checkpoint that nobody has open: the files are those of engine.save_pretrained(), byte for byte,
and a checkpoint's weights go into an engine alone."""
from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import forked
import penstock
import small_models as small
from compare import adamw
from cores import NATIVE
from families import FAMILIES, batches
from penstock.__main__ import main
from penstock.files.description import NAME
from penstock.files.fp32 import (convert_zero_checkpoint_to_fp32_state_dict, get_fp32_state_dict_from_zero_checkpoint,
                                 load_state_dict_from_zero_checkpoint)
from penstock.files.stored_weights import StoredWeights
from penstock.files.weights_dir import WeightsDir
from penstock.weights.bits import same_bits

pytestmark = pytest.mark.skipif(not NATIVE, reason="of the core on NVMe")
HERE = Path(__file__).resolve().parent


def files(directory):
    return {each.name: each.read_bytes() for each in directory.iterdir()}


def train(engine, steps=2, loss=small.loss):
    for number in range(steps):
        engine.backward(loss(engine, small.ids(number)))
        engine.step()


def stack(place, dtype=torch.float32, optimizer=adamw, **options):
    torch.manual_seed(0)
    model = small.Stack(tied=True, block=small.Normed).to(dtype)
    made = optimizer(model.parameters()) if options.pop("all", True) else optimizer(
        [each for each in model.parameters() if each.requires_grad])
    return penstock.initialize(model, made, store=penstock.Store(place, tile_elements=4096, **options))[0]


class Averaged(nn.Module):
    """With buffers that belong to its state."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x):
        for each in self.blocks:
            x = torch.tanh(each(x))
        return self.norm(x)


@pytest.mark.parametrize("kept", ["the store", "a snapshot"])
def test_a_model_on_meta_is_served_by_a_store_that_has_its_weights(tmp_path, kept):
    def go_on(device, store, to_step):
        torch.manual_seed(0)
        with device:
            model = Averaged()
        engine = penstock.initialize(model, adamw(model.parameters()), store=store)[0]
        while engine.global_steps < to_step:
            torch.manual_seed(engine.global_steps)
            engine.backward(engine(torch.randn(4, 16)).square().sum() * 3)
            engine.step()
        return engine
    cpu, meta, x = torch.device("cpu"), torch.device("meta"), torch.ones(2, 16)
    with go_on(cpu, tmp_path / "store", 2) as engine:
        engine.save_checkpoint(tmp_path, "two")
    shutil.copytree(tmp_path / "store", tmp_path / "other")
    snapshot = penstock.Store(tmp_path / "new", resume_from=tmp_path / "two" / "store")
    with go_on(cpu, tmp_path / "store", 4) as engine:
        expected = {name: each.clone() for name, each in engine.state_dict().items()}
        output = engine.module.eval()(x).detach()
    with go_on(meta, tmp_path / "other" if kept == "the store" else snapshot, 4) as engine:
        assert all(same_bits(each, expected[name]) for name, each in engine.state_dict().items())
    with meta:
        frozen = Averaged().requires_grad_(False).eval()
    with penstock.initialize(frozen, store=tmp_path / "store")[0] as engine, torch.no_grad():
        assert same_bits(engine(x), output)
    with pytest.raises(penstock.ModelError, match="or a store that has trained them"):
        go_on(meta, tmp_path / "nothing", 1)


@pytest.mark.parametrize("name", ["GPT-2", "Llama", "Mixtral", "T5", "BERT"])
@pytest.mark.parametrize("dtype", [None, torch.float32, torch.bfloat16], ids=str)
def test_a_model_of_transformers(tmp_path, name, dtype):
    family = next(each for each in FAMILIES if each.name == name)
    torch.manual_seed(0)
    model = family.make(0.1).to(torch.bfloat16)
    engine = penstock.initialize(model, store=tmp_path / "store")[0]
    engine.backward(engine(**next(batches(family, 1))).loss)
    engine.step()
    engine.save_checkpoint(tmp_path / "checkpoints")
    engine.save_pretrained(tmp_path / "expected", dtype, max_shard_bytes=20_000)
    engine.close()
    said = [] if dtype is None else ["--dtype", str(dtype).removeprefix("torch.")]
    for place in ("store", "checkpoints"):
        out = tmp_path / f"of-{place}"
        assert main(["export", str(tmp_path / place), str(out), "--max-shard-bytes", "20000", *said]) == 0
        assert files(out) == files(tmp_path / "expected")


WAYS = {
    "fp32": {}, "split": {"dtype": torch.bfloat16}, "compact": {"dtype": torch.bfloat16, "codec": "compact"},
    "plain": {"dtype": torch.bfloat16, "codec": "plain_bf16"},
    "sgd": {"optimizer": lambda given: torch.optim.SGD(given, 0.1)},
    "momentum": {"optimizer": lambda given: torch.optim.SGD(given, 0.1, 0.9)},
    "adagrad": {"optimizer": lambda given: torch.optim.Adagrad(given, 0.1)}}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_keeping_a_model(tmp_path, way):
    engine = stack(tmp_path / "store", **WAYS[way])
    train(engine)
    expected = {name: engine.weight(name, "master") for name in engine.binding.named}
    buffers = {name: each.clone() for name, each in engine.module.named_buffers()}
    engine.save_pretrained(tmp_path / "expected")
    engine.close()
    with StoredWeights(tmp_path / "store") as weights:
        read = dict(weights.named_values(master=True))
    assert all(same_bits(read[name], value) for name, value in {**expected, **buffers}.items())
    assert read.keys() == {*expected, *buffers, "head.weight"}  # a tie has both names
    assert main(["export", str(tmp_path / "store"), str(tmp_path / "out"), "--model-names"]) == 0
    assert files(tmp_path / "out") == files(tmp_path / "expected")


def test_frozen_weights_have_their_own_type(tmp_path):
    torch.manual_seed(0)
    model = small.Stack().to(torch.bfloat16)
    model.embedding.to(torch.float16).requires_grad_(False)
    model.head.to(torch.float32).requires_grad_(False)
    expected = {name: each.detach().clone() for name, each in model.named_parameters() if not each.requires_grad}
    engine = penstock.initialize(model, adamw(each for each in model.parameters() if each.requires_grad),
                                 store=tmp_path / "store")[0]
    engine.save_checkpoint(tmp_path / "c")
    with StoredWeights(tmp_path / "c") as weights:
        assert all(same_bits(weights.value(name, True), each) for name, each in expected.items())
    there = get_fp32_state_dict_from_zero_checkpoint(tmp_path / "c")
    assert {each.dtype for each in there.values()} == {torch.float32}
    without = get_fp32_state_dict_from_zero_checkpoint(tmp_path / "c", exclude_frozen_parameters=True)
    assert without.keys() == there.keys() - expected.keys()


def test_a_store_over_several_directories(tmp_path):
    engine = stack([tmp_path / "a", tmp_path / "b"])
    train(engine)
    engine.save_pretrained(tmp_path / "expected")
    engine.close()
    assert main(["export", str(tmp_path / "a"), str(tmp_path / "out"), "--also", str(tmp_path / "b"), "--model-names"]) == 0
    assert files(tmp_path / "out") == files(tmp_path / "expected")
    assert main(["export", str(tmp_path / "a"), str(tmp_path / "no")]) == 4


def test_a_killed_run_is_exported_as_of_its_newest_step(tmp_path):
    script = f"""
import sys; sys.path[:0] = {sys.path!r}
import os, torch
from test_stored_weights import stack, train
engine = stack({str(tmp_path / "store")!r})
train(engine, 3)
engine.save_pretrained({str(tmp_path / "expected")!r})
os.kill(os.getpid(), 9)
"""
    forked.run([sys.executable, "-c", script], cwd=HERE, env={**os.environ, "PENSTOCK_TEST_CORE": "native"})
    assert main(["export", str(tmp_path / "store"), str(tmp_path / "out"), "--model-names"]) == 0
    assert files(tmp_path / "out") == files(tmp_path / "expected")


def test_beside_a_training_its_checkpoints_are_read_and_its_store_is_not(tmp_path, capsys):
    engine = stack(tmp_path / "store")
    train(engine, 1)
    engine.save_checkpoint(tmp_path / "c", "one")
    engine.save_pretrained(tmp_path / "one")
    train(engine, 1)
    engine.save_checkpoint(tmp_path / "c", "two")
    assert main(["export", str(tmp_path / "store"), str(tmp_path / "no")]) == 4
    assert "in use" in capsys.readouterr().err
    for source in ("c --tag one", "c/one", "c/one/store"):
        out = tmp_path / source.replace("/", "-").replace(" ", "")
        assert main(["export", *(str(tmp_path / each) if "-" not in each and each != "one" else each
                                 for each in source.split()), str(out), "--model-names"]) == 0
        assert files(out) == files(tmp_path / "one")


def test_a_trainers_checkpoint_has_a_snapshot(tmp_path):
    pytest.importorskip("transformers")
    import argparse

    from penstock.hugging_face import KeepSnapshots
    engine = stack(tmp_path / "store", keep=False)
    train(engine, 1)
    engine.save_pretrained(tmp_path / "expected")
    (tmp_path / "checkpoint-1").mkdir()
    args = argparse.Namespace(output_dir=str(tmp_path), save_total_limit=1)
    KeepSnapshots(engine).on_save(args, argparse.Namespace(global_step=1), None)
    assert main(["export", str(tmp_path / "checkpoint-1"), str(tmp_path / "out"), "--model-names"]) == 0
    assert files(tmp_path / "out") == files(tmp_path / "expected")


def test_a_trainers_output_is_its_newest_checkpoint_by_number(tmp_path, capsys):
    output = tmp_path / "output"
    for step in (9, 10):
        engine = stack(tmp_path / f"store-{step}")
        train(engine, step - 8)
        engine.save_checkpoint(output / f"checkpoint-{step}")  # as a Trainer's with deepspeed= does
        engine.save_pretrained(tmp_path / f"expected-{step}")
    os.makedirs(output / "checkpoint-11")  # is being made
    assert main(["export", str(output), str(tmp_path / "newest"), "--model-names"]) == 0
    assert main(["export", str(output), str(tmp_path / "named"), "--model-names", "--tag", "checkpoint-9"]) == 0
    assert files(tmp_path / "newest") == files(tmp_path / "expected-10")
    assert files(tmp_path / "named") == files(tmp_path / "expected-9")
    assert main(["export", str(output), str(tmp_path / "x"), "--tag", "y"]) == 2
    assert "has checkpoint-9, checkpoint-10" in capsys.readouterr().err


def test_what_cannot_be_exported_is_refused_by_name(tmp_path, capsys, monkeypatch):
    engine = stack(tmp_path / "store")
    train(engine, 1)
    engine.save_checkpoint(tmp_path / "c")
    engine.close()
    (tmp_path / "file").write_text("")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / NAME).write_text("{")

    def refused(code, words, *arguments):
        assert main(["export", *map(str, arguments)]) == code
        assert words in capsys.readouterr().err
    refused(2, "neither a store nor a checkpoint", tmp_path / "nowhere", tmp_path / "out")
    refused(2, "c has global_step1", tmp_path / "c", tmp_path / "out", "--tag", "x")
    refused(4, "there is something already", tmp_path / "store", tmp_path / "c")
    refused(2, "max_shard_bytes", tmp_path / "store", tmp_path / "out", "--max-shard-bytes", "0")
    refused(4, "not what penstock writes", tmp_path / "broken", tmp_path / "out")
    os.remove(tmp_path / "store" / NAME)
    refused(4, f"the store has no {NAME}", tmp_path / "store", tmp_path / "out")
    monkeypatch.setattr("penstock.files.stored_weights.KEY", "of the Python package")  # as one that C programs made
    refused(2, "was not made by the Python package", tmp_path / "store", tmp_path / "out")
    monkeypatch.undo()
    assert not (tmp_path / "out").exists()
    stack(tmp_path / "store").close()  # says it again
    assert main(["export", str(tmp_path / "store"), str(tmp_path / "out"), "--model-names"]) == 0


def test_adapters_are_exported_under_the_models_names(tmp_path, capsys):
    peft = pytest.importorskip("peft")
    family = next(each for each in FAMILIES if each.name == "Llama")
    model = peft.get_peft_model(family.make(0.0), peft.LoraConfig(target_modules=["q_proj"]))
    engine = penstock.initialize(model, adamw(each for each in model.parameters() if each.requires_grad),
                                 store=tmp_path / "store")[0]
    expected = {name: each.clone() for name, each in engine.state_dict().items()}
    engine.close()
    assert main(["export", str(tmp_path / "store"), str(tmp_path / "out")]) == 2
    assert "adapters of PEFT" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "store"), str(tmp_path / "out"), "--model-names"]) == 0
    there = WeightsDir(tmp_path / "out")
    assert all(same_bits(there.read(name), expected[name]) for name in there.names)


# As DeepSpeed's users know it.
def test_the_state_dict_in_fp32(tmp_path):
    engine = stack(tmp_path / "store", torch.bfloat16)
    train(engine)
    expected = {name: engine.weight(name, "master") for name in engine.binding.named}
    engine.save_checkpoint(tmp_path / "c", client_state={"epoch": 1})
    read = get_fp32_state_dict_from_zero_checkpoint(tmp_path / "c")
    lazy = get_fp32_state_dict_from_zero_checkpoint(str(tmp_path / "c"), "global_step2", lazy_mode=True)
    assert all(same_bits(read[name], each) and same_bits(lazy[name].contiguous(), each) for name, each in expected.items())
    assert read["head.weight"] is read["embedding.weight"] and lazy["head.weight"].shape == read["head.weight"].shape
    plain = load_state_dict_from_zero_checkpoint(small.Stack(tied=True, block=small.Normed), tmp_path / "c")
    assert all(same_bits(each, expected[name]) for name, each in plain.named_parameters())


def test_the_script_beside_checkpoints(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    engine = stack(tmp_path / "store")
    train(engine)
    engine.save_checkpoint(tmp_path / "c")
    expected = dict(engine.state_dict())
    script = [sys.executable, "zero_to_fp32.py", ".", "out"]
    assert os.access(tmp_path / "c" / "zero_to_fp32.py", os.X_OK)  # people say ./zero_to_fp32.py
    forked.run(script, cwd=tmp_path / "c", check=True)
    read = torch.load(tmp_path / "c" / "out" / "pytorch_model.bin", weights_only=True)
    assert read.keys() == expected.keys() and all(same_bits(each, expected[name].float()) if each.is_floating_point()
                                                  else torch.equal(each, expected[name]) for name, each in read.items())
    forked.run([*script[:-1], "safe", "--safe_serialization", "--max_shard_size", "1KB"], cwd=tmp_path / "c", check=True)
    there = WeightsDir(tmp_path / "c" / "safe")
    assert all(same_bits(there.read(name), read[name]) for name in there.names)
    convert_zero_checkpoint_to_fp32_state_dict(tmp_path / "c", tmp_path / "shards", max_shard_size="1KB")
    parts = [torch.load(each, weights_only=True) for each in (tmp_path / "shards").glob("*.bin")]
    assert len(parts) > 1 and {name for each in parts for name in each} == read.keys()
    failed = forked.run([*script, "--tag", "x"], cwd=tmp_path / "c", capture_output=True, text=True)
    assert failed.returncode == 2 and "no checkpoint is there" in failed.stderr


# Into an engine, alone.
@pytest.mark.parametrize("argument", ["load_module_only", "load_optimizer_states"])
def test_weights_alone_leave_the_optimizers_states(tmp_path, argument):
    first = stack(tmp_path / "a")
    train(first, 3)
    first.save_checkpoint(tmp_path / "c", client_state={"epoch": 7})
    engine = stack(tmp_path / "b", optimizer=lambda given: torch.optim.Adagrad(given, 0.1))
    train(engine, 1)
    moments = {name: engine.weight(name, "moment0") for name in engine.binding.named}
    path, state = engine.load_checkpoint(tmp_path / "c", **{argument: argument == "load_module_only"})
    assert state == {"epoch": 7} and path.endswith("global_step3") and engine.global_steps == 1
    assert all(same_bits(engine.weight(name), first.weight(name)) for name in first.binding.named)
    assert all(same_bits(engine.weight(name, "moment0"), each) for name, each in moments.items())
    assert all(torch.equal(each, dict(first.module.named_buffers())[name]) for name, each in engine.module.named_buffers())
    train(engine, 1)


def test_weights_alone_of_another_type_and_of_frozen_ones(tmp_path):
    first = stack(tmp_path / "a", torch.bfloat16)
    train(first)
    first.save_checkpoint(tmp_path / "c")
    torch.manual_seed(5)
    model = small.Stack(tied=True, block=small.Normed)
    model.embedding.requires_grad_(False)
    engine = penstock.initialize(model, adamw(each for each in model.parameters() if each.requires_grad),
                                 store=tmp_path / "b")[0]
    engine.load_checkpoint(tmp_path / "c", load_module_only=True)
    assert all(same_bits(engine.weight(name), first.weight(name, "master")) for name in first.binding.named)


def test_weights_alone_of_another_model_are_refused_or_taken_in_part(tmp_path):
    first = stack(tmp_path / "a")
    first.save_checkpoint(tmp_path / "c")
    torch.manual_seed(1)

    def other(model, place):
        return penstock.initialize(model, adamw(model.parameters()), store=tmp_path / place)[0]
    longer = other(small.Stack(blocks=4, block=small.Normed), "b")
    before = {name: longer.weight(name) for name in longer.binding.named}
    with pytest.raises(penstock.ModelError, match="is of another model: it has no 'blocks.3"):
        longer.load_checkpoint(tmp_path / "c", load_module_only=True)
    assert all(same_bits(longer.weight(name), each) for name, each in before.items())
    longer.load_checkpoint(tmp_path / "c", load_module_only=True, load_module_strict=False)
    for name, each in before.items():
        expected = each if name.startswith("blocks.3") or name not in first.binding.named else first.weight(name)
        assert name == "head.weight" or same_bits(longer.weight(name), expected), name
    wider = other(nn.Sequential(nn.Linear(3, 3)), "w")
    wider.save_checkpoint(tmp_path / "w2")
    again = other(nn.Sequential(nn.Linear(3, 4)), "x")
    with pytest.raises(penstock.ModelError, match=r"'0.weight' has shape \(3, 3\) there and \(4, 3\)"):
        again.load_checkpoint(tmp_path / "w2", load_module_only=True)
