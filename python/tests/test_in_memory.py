"""A store without a disk: where nobody names a directory, host memory alone has weights and states."""
from __future__ import annotations

import os
import tempfile

import pytest

import penstock
import small_models as small
from compare import adamw
from cores import NATIVE, WAYS
from test_one_run import ends, same, train

pytestmark = pytest.mark.skipif(not NATIVE, reason="of the core on NVMe")


def start(settings=None, **where):
    import torch
    torch.manual_seed(0)
    model = small.Stack(block=small.Normed)
    return penstock.initialize(model, None if "config" in where else adamw(model.parameters()), settings=settings, **where)[0]


def bytes_of_open_files():
    """Of those of stores: what they have, and what they take on disk."""
    found = {}
    for each in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{each}"
        if os.path.exists(path) and "penstock-one-run" in os.readlink(path) and "/" in os.readlink(path).split("one-run", 1)[1]:
            found[os.readlink(path).rsplit("/", 1)[1].split(" ")[0]] = os.stat(path).st_size
    return found


@pytest.mark.parametrize("order", ["after_backward", "deferred", "within"])
def test_it_trains_to_the_bits_of_one_on_nvme_and_writes_nothing(tmp_path, order):
    settings = penstock.Settings(clip=0.0)
    on_disk = start(settings, store=penstock.Store(tmp_path / "a", **WAYS[order]))
    in_memory = start(settings, store=penstock.Store.in_memory(**WAYS[order]))
    for engine in (on_disk, in_memory):
        train(engine)
    assert same(ends(on_disk), ends(in_memory))
    assert bytes_of_open_files()["data"] == 0 and in_memory.core.info().write_bytes == 0


def test_nobody_names_a_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    engine = start()
    train(engine)
    assert os.listdir(tmp_path) == [] and engine.core.info().read_bytes == 0
    engine.set_weight("head.weight", engine.weight("head.weight") + 1)
    first = ends(engine)
    engine.save_checkpoint(tmp_path / "c", client_state={"epoch": 1})
    train(engine, 3, 5)
    later = ends(engine)
    assert engine.load_checkpoint(tmp_path / "c")[1] == {"epoch": 1} and same(ends(engine), first)
    train(engine, 3, 5)
    assert same(ends(engine), later)
    engine.close()
    other = start()
    other.load_checkpoint(tmp_path / "c")
    assert same(ends(other), first) and os.listdir(tmp_path) == ["c"]
    kept = start(store=penstock.Store(tmp_path / "kept", resume_from=tmp_path / "c" / "global_step3" / "store"))
    assert same(ends(kept), first)


def test_a_configuration_that_names_no_directory():
    assert start(config={"train_batch_size": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}) is not None
    nvme = {"train_batch_size": 2, "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}}
    with pytest.raises(penstock.UsageError, match="offload_param.device' is nvme, and nobody says where"):
        start(config=nvme)


def test_what_has_no_room_asks_for_a_directory():
    with pytest.raises(penstock.FitError, match="Or name a directory on NVMe"):
        start(store=penstock.Store.in_memory(host_budget_bytes=4096))


def test_an_engine_gives_its_model_back():
    engine = start()
    train(engine)
    expected = {name: engine.weight(name) for name in engine.binding.named}
    model = engine.release()
    assert all((each == expected[name]).all() for name, each in model.named_parameters())
