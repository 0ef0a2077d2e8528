"""engine.save_pretrained() and save_16bit_model(): what transformers writes, one tensor at a time, whole or not."""
from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

import penstock
import small_models as small
from compare import adamw
from cores import test_core as OpenFakeCore
from directories import peak_bytes
from families import FAMILIES, batches
from penstock.files.weights_dir import WeightsDir
from penstock.weights.bits import same_bits


def managed(steps: int = 2, dtype: torch.dtype = torch.float32, **options):
    torch.manual_seed(0)
    model = small.Stack(**options).to(dtype)
    engine, _, _, _ = penstock.initialize(model, adamw(model.parameters()), core=OpenFakeCore())
    for step in range(steps):
        engine.backward(small.loss(engine, small.ids(step)))
        engine.step()
    return engine


def read(directory):
    files = WeightsDir(directory)
    return {name: files.read(name) for name in files.names}


def equal(a, b) -> bool:
    return a.keys() == b.keys() and all(same_bits(a[name], b[name]) for name in a)


def trained(name: str):
    pytest.importorskip("transformers", "5.0").utils.logging.disable_progress_bar()
    family = next(each for each in FAMILIES if each.name == name)
    torch.manual_seed(0)
    model = family.make(0.1)
    engine, _, _, _ = penstock.initialize(model, core=OpenFakeCore())
    batch = next(batches(family, 1))
    engine.backward(engine(**batch).loss)
    engine.step()
    return engine.eval(), batch


@pytest.mark.parametrize("name", [each.name for each in FAMILIES])
def test_the_directory_is_the_one_that_transformers_writes(tmp_path, name):
    engine, batch = trained(name)
    engine.module.save_pretrained(tmp_path / "theirs")
    engine.save_pretrained(tmp_path / "ours")
    engine.save_pretrained(tmp_path / "sharded", max_shard_bytes=20_000)
    theirs = sorted(os.listdir(tmp_path / "theirs"))
    assert theirs == sorted(os.listdir(tmp_path / "ours"))
    for each in theirs:
        if each.endswith(".json"):
            assert (tmp_path / "theirs" / each).read_text() == (tmp_path / "ours" / each).read_text()
    assert equal(read(tmp_path / "theirs"), read(tmp_path / "ours"))
    assert equal(read(tmp_path / "theirs"), read(tmp_path / "sharded"))
    for each in ("ours", "sharded"):
        again, told = type(engine.module).from_pretrained(tmp_path / each, output_loading_info=True)
        assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
        if name == "RWKV":  # changes its weights in eval(), in place
            continue
        with torch.no_grad():
            expected, found = engine(**batch), again.eval()(**batch)
        assert torch.equal(expected.loss, found.loss)
        assert "logits" not in expected or torch.equal(expected.logits, found.logits)


def test_the_first_versions_of_transformers_5_are_asked_for_nothing_that_they_lack(tmp_path, monkeypatch):
    engine, _ = trained("Mixtral")
    engine.save_pretrained(tmp_path / "now")
    library = pytest.importorskip("transformers.core_model_loading")
    for name in ("apply_converters", "apply_renamings", "PrefixChange"):
        monkeypatch.delattr(library, name, raising=False)
    engine.save_pretrained(tmp_path / "then")
    assert equal(read(tmp_path / "now"), read(tmp_path / "then"))


def test_a_version_of_transformers_that_cannot_say_the_names_of_files_ends_no_training(tmp_path, monkeypatch):
    engine, _ = trained("Llama")
    mapping = pytest.importorskip("transformers.conversion_mapping")
    monkeypatch.setattr(mapping, "get_model_conversion_mapping", lambda *_, **__: mapping.no_such_name)
    assert Path(engine.save_checkpoint(tmp_path / "saved")).is_dir()
    assert "AttributeError" in engine.description.problem and "no_such_name" in engine.description.problem


def test_what_was_exported_is_imported(tmp_path):
    engine, batch = trained("Mixtral")
    engine.save_pretrained(tmp_path / "a", max_shard_bytes=30_000)
    with torch.device("meta"):
        model = type(engine.module)(engine.module.config)
    again, _, _, _ = penstock.initialize(model, core=OpenFakeCore(), weights=tmp_path / "a")
    assert equal(engine.state_dict(), again.state_dict())
    again.save_pretrained(tmp_path / "b")
    assert equal(read(tmp_path / "a"), read(tmp_path / "b"))


def test_shards_are_filled_in_order_and_an_index_names_them(tmp_path):
    engine = managed(block=small.Normed)
    engine.save_pretrained(tmp_path / "out", max_shard_bytes=700)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    state = engine.state_dict()
    assert index["weight_map"].keys() == state.keys()
    assert index["metadata"] == {"total_size": sum(each.nbytes for each in state.values()),
                                 "total_parameters": sum(each.numel() for each in engine.parameters())}
    shards = sorted(set(index["weight_map"].values()))
    assert len(shards) > 2 and shards[0] == f"model-00001-of-{len(shards):05d}.safetensors"
    assert sorted(os.listdir(tmp_path / "out")) == [*shards, "model.safetensors.index.json"]
    for shard in shards:
        names = [name for name, file in index["weight_map"].items() if file == shard]
        assert sum(state[name].nbytes for name in names) <= 700 or len(names) == 1
    assert equal(state, read(tmp_path / "out"))


def test_ties_are_written_once_and_buffers_as_well(tmp_path):
    engine = managed(tied=True, block=small.Normed)
    engine.save_pretrained(tmp_path / "out")
    state = engine.state_dict()
    del state["head.weight"]
    assert equal(state, read(tmp_path / "out")) and "blocks.0.norm.running_mean" in state


def test_fp32_is_the_masters_and_other_types_are_the_weights(tmp_path):
    engine = managed(dtype=torch.bfloat16, block=small.Normed)
    engine.module.blocks[0].norm.running_mean.fill_(0.5)
    engine.save_pretrained(tmp_path / "own")
    engine.save_pretrained(tmp_path / "fp32", dtype=torch.float32)
    engine.save_pretrained(tmp_path / "fp16", dtype=torch.float16)
    state, masters = engine.state_dict(), dict(engine.named_weights("master"))
    assert equal(state, read(tmp_path / "own"))
    fp32 = read(tmp_path / "fp32")
    assert equal({**fp32, **masters}, fp32) and masters.keys() < fp32.keys()
    assert any(not torch.equal(each, state[name].float()) for name, each in masters.items()), "no more bits"
    assert fp32["blocks.0.norm.running_mean"].dtype == torch.float32
    assert fp32["blocks.0.norm.num_batches_tracked"].dtype == torch.int64
    assert equal({k: v.half() if v.is_floating_point() else v for k, v in state.items()}, read(tmp_path / "fp16"))
    with pytest.raises(penstock.UsageError, match="dtype=torch.int8"):
        engine.save_pretrained(tmp_path / "int8", dtype=torch.int8)


def test_the_type_that_is_written_is_said_in_the_configuration(tmp_path):
    engine, _ = trained("Llama")
    before = engine.module.config.to_dict()
    engine.save_pretrained(tmp_path / "out", dtype=torch.bfloat16)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"
    assert engine.module.config.to_dict() == before
    assert type(engine.module).from_pretrained(tmp_path / "out").dtype == torch.bfloat16


def test_frozen_weights_are_written_as_well(tmp_path):
    torch.manual_seed(0)
    model = small.Stack().bfloat16()
    model.embedding.requires_grad_(False)
    engine, _, _, _ = penstock.initialize(model, core=OpenFakeCore())
    engine.save_pretrained(tmp_path / "out", dtype=torch.float32)
    assert equal({k: v.float() for k, v in engine.state_dict().items()}, read(tmp_path / "out"))


def test_one_file_has_the_weights_under_deepspeeds_name_for_the_call(tmp_path):
    library = pytest.importorskip("safetensors.torch")
    engine = managed(dtype=torch.bfloat16)
    assert engine.save_16bit_model(tmp_path / "new") is True
    assert engine.save_16bit_model(tmp_path / "new", "again.safetensors") and engine.save_16bit_model(tmp_path / "new")
    assert sorted(os.listdir(tmp_path / "new")) == ["again.safetensors", "model.safetensors"]
    for each in os.listdir(tmp_path / "new"):
        assert equal(engine.state_dict(), library.load_file(tmp_path / "new" / each))
    for name in ("pytorch_model.bin", "../out.safetensors"):
        with pytest.raises(penstock.UsageError, match="ends with .safetensors"):
            engine.save_16bit_model(tmp_path, name)


def test_it_may_be_called_between_forward_and_backward(tmp_path):
    engine, plain = managed(), managed()
    for each in (engine, plain):
        torch.manual_seed(9)
        value = small.loss(each, small.ids(9))
        if each is engine:
            engine.save_pretrained(tmp_path / "out")
        each.backward(value)
        each.step()
    assert equal(plain.state_dict(), engine.state_dict())


def test_what_is_there_already_is_left_alone(tmp_path):
    engine = managed()
    (tmp_path / "empty").mkdir()
    engine.save_pretrained(tmp_path / "empty")
    with pytest.raises(penstock.StorageError, match="there is something already"):
        engine.save_pretrained(tmp_path / "empty")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(penstock.StorageError, match="there is something already"):
        engine.save_pretrained(tmp_path / "file")
    with pytest.raises(penstock.UsageError, match="max_shard_bytes"):
        engine.save_pretrained(tmp_path / "out", max_shard_bytes=0)
    assert equal(engine.state_dict(), read(tmp_path / "empty")) and (tmp_path / "file").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["empty", "file"]


def test_weights_that_are_there_are_replaced_where_that_is_asked_for(tmp_path):
    engine = managed()
    engine.save_pretrained(tmp_path / "a")
    engine.set_weight("head.weight", engine.weight("head.weight") + 1)
    engine.save_pretrained(tmp_path / "a", overwrite=True)
    assert equal(read(tmp_path / "a"), {name: each for name, each in engine.state_dict().items()})
    assert os.listdir(tmp_path) == ["a"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years")
    with pytest.raises(penstock.StorageError, match="there is something already"):
        engine.save_pretrained(tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years"


@pytest.mark.parametrize("at", [0, 1, 5, 12])
def test_a_drive_that_is_full_is_said_and_nothing_is_left(tmp_path, monkeypatch, at):
    engine, count, write = managed(), iter(range(1000)), os.pwrite

    def full(*args):
        if next(count) == at:
            raise OSError(28, "No space left on device")
        return write(*args)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(penstock.StorageError, match="nothing is written .*No space left.*; see that there is room"):
        engine.save_pretrained(tmp_path / "out", max_shard_bytes=700)
    assert not os.listdir(tmp_path)
    engine.save_pretrained(tmp_path / "out")
    assert equal(engine.state_dict(), read(tmp_path / "out"))


@pytest.mark.parametrize("call", [lambda engine, place: engine.save_pretrained(place / "out", overwrite=True),
                                  lambda engine, place: engine.save_16bit_model(place / "out")], ids=["directory", "file"])
def test_an_export_while_another_one_writes_there_is_refused_and_disturbs_nothing(call, tmp_path, monkeypatch):
    engine, write, refused = managed(), os.pwrite, []

    def writing(*args):
        monkeypatch.setattr(os, "pwrite", write)
        with pytest.raises(penstock.StorageError, match="out.*: another export is writing there now; wait until it ends") as told:
            call(engine, tmp_path)
        refused.append(told)
        return write(*args)
    monkeypatch.setattr(os, "pwrite", writing)
    call(engine, tmp_path)
    assert refused and equal(engine.state_dict(), read(tmp_path / "out"))
    assert os.listdir(tmp_path) == ["out"] and not any(each.startswith(".") for each in os.listdir(tmp_path / "out"))
    call(engine, tmp_path)


def test_the_remedy_is_room_only_where_room_is_missing(tmp_path, monkeypatch):
    def gone(*_):
        raise FileNotFoundError(2, "No such file or directory")
    monkeypatch.setattr(os, "pwrite", gone)
    with pytest.raises(penstock.StorageError, match="nothing is written .*No such file or directory.$"):
        managed().save_pretrained(tmp_path / "out")


def test_adapters_of_peft_are_left_to_peft(tmp_path):
    peft = pytest.importorskip("peft")
    base = next(each for each in FAMILIES if each.name == "Llama").make(0.0)
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, task_type="CAUSAL_LM", target_modules=["q_proj"]))
    engine, _, _, _ = penstock.initialize(model, core=OpenFakeCore())
    with pytest.raises(penstock.UsageError, match="adapters of PEFT: engine.module.save_pretrained"):
        engine.save_pretrained(tmp_path / "out")


def save_until(engine, directory, calls: int) -> int:
    """In a process that ends at once, as if killed, when it has made so many calls that write; its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = calls

    def counted(call):
        def counting(*args, **options):
            nonlocal left
            left -= 1
            if left < 0:
                os._exit(9)
            return call(*args, **options)
        return counting
    try:
        for name in ("pwrite", "fsync", "rename", "mkdir"):
            setattr(os, name, counted(getattr(os, name)))
        engine.save_pretrained(directory, max_shard_bytes=1500)
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.fake  # a native core does not outlive a fork
def test_a_process_that_is_killed_leaves_no_directory_or_a_whole_one(tmp_path):
    """At each call to the system that writes, makes durable or renames. What one leaves, the next one takes away."""
    engine, out = managed(), tmp_path / "out"
    expected, codes, whole = engine.state_dict(), [], 0
    while not codes or codes[-1] == 9:
        codes.append(save_until(engine, out, len(codes)))
        if out.exists():
            assert equal(expected, read(out)), f"killed at call {len(codes) - 1}"
            whole += 1
            for each in Path(out).iterdir():
                each.unlink()
            out.rmdir()
    assert codes[-1] == 0 and len(codes) > 20 and whole == 2  # one call is left after renaming
    assert not os.listdir(tmp_path)


PEAK = """
import penstock
from torch import nn
from fake_core import OpenFakeCore
model = nn.Sequential(*(nn.Linear(2048, 1024, bias=False) for _ in range(24)))
model[1:].requires_grad_(False)
engine, _, _, _ = penstock.initialize(model, core=OpenFakeCore())
engine.save_pretrained(sys.argv[1] + "-before")
peak_of(lambda: engine.save_pretrained(sys.argv[1], max_shard_bytes=50e6, dtype=torch.bfloat16))
"""


def test_about_one_parameter_is_in_memory_at_a_time(tmp_path):
    assert peak_bytes(PEAK, str(tmp_path / "out")) < 4 * 4 * 2048 * 1024
    assert len(os.listdir(tmp_path / "out")) == 4
