"""What penstock.plan() says is what the engine has; and asking changes nothing."""
from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import forked
import penstock
import small_models as small
from penstock.__main__ import main
from penstock.native import library
from penstock.native.described import Described
from test_ranks import ended, start

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


OF_RANKS = """
import json, sys, torch, penstock
import small_models as small

engine, *_ = penstock.initialize(small.Stack(), store=penstock.Store(sys.argv[1], states=sys.argv[2]))
opened = first = engine.core.info()
engine.backward(small.loss(engine, small.ids(0)))
engine.step()
last = engine.core.info()
print(json.dumps({"table": engine.core.memory_table(), "pool": first.pool_bytes, "planned": first.planned_bytes,
                  "first": opened.gathered_bytes, "gathered": last.gathered_bytes - first.gathered_bytes,
                  "exchanged": last.exchanged_bytes - first.exchanged_bytes,
                  "read": last.read_bytes - first.read_bytes, "written": last.write_bytes - first.write_bytes}), flush=True)
engine.close()
"""


@pytest.mark.parametrize("states", ["nvme", "cpu"])
def test_of_ranks_it_is_what_each_of_them_then_has(tmp_path, states):
    place = tmp_path / "store"
    told = penstock.plan(small.Stack(), store=penstock.Store(place, states=states), ranks=2)
    assert not place.exists()
    path = os.pathsep.join((str(PACKAGE), os.path.dirname(__file__)))
    codes, outputs, errors = ended(start(2, sys.executable, "-c", OF_RANKS, str(place), states, PYTHONPATH=path))
    assert codes == [0, 0], errors
    for rank, said in enumerate(outputs):
        found = json.loads(said.splitlines()[-1])
        manifests = found.pop("written") - told.write_bytes - told.resident_write_bytes
        assert 0 < manifests <= 2 * (place / "ranks-2" / str(rank) / "manifest.0").stat().st_size
        assert found == {
            "table": told.memory_table, "pool": told.pool_bytes, "planned": told.planned_bytes,
            "first": told.of_ranks.first_gathered_bytes, "gathered": told.of_ranks.gathered_bytes,
            "exchanged": told.of_ranks.exchanged_bytes, "read": told.read_bytes}
        files = [(place / "ranks-2" / str(rank) / each).stat().st_size for each in ("data", "manifest.0", "manifest.1")]
        assert sum(files) == told.store_bytes
    assert told.forecast is None and "not forecast" in told.unmeasured
    beside = told.of_ranks
    assert (beside.ranks, beside.ranks_per_node, beside.node_pool_bytes) == (2, 2, 2 * told.pool_bytes)


def test_of_ranks_it_says_the_papers_table_and_refuses_what_opening_would(tmp_path, capsys):
    told = penstock.plan(small.Stack(), store=tmp_path / "store", ranks=64, ranks_per_node=8)
    assert "8 of a node" in str(told) and "stage 3" in str(told) and "text" not in told.to_dict()["of_ranks"]
    assert told.of_ranks.zero_bytes[3] * 64 == told.of_ranks.zero_bytes[0] == 16 * told.parameters
    for wrong in ({"ranks": 0}, {"ranks": 2, "ranks_per_node": 3}, {"ranks": 2, "store": penstock.Store(
            tmp_path / "store", gradients="nvme")}):
        with pytest.raises(penstock.UsageError):
            penstock.plan(small.Stack(), **{"store": tmp_path / "store", **wrong})
    assert main(["plan", "small_models:Stack", "--ranks", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["of_ranks"]["ranks_per_node"] == 4


def test_without_a_directory_it_is_of_host_memory_as_initialize_has_it(capsys):
    told = penstock.plan(small.Stack())
    engine, *_ = penstock.initialize(small.Stack())
    assert told.memory_table == engine.core.memory_table() and told.uses["resident states"] > 0
    assert (told.store_bytes, told.resident_write_bytes, told.directories) == (0, 0, ())
    assert "NVMe         nothing: all is in host memory" in str(told)
    assert penstock.plan(small.Stack(), **QUICK).forecast.step.seconds > 0
    nvme = {"zero_optimization": {"offload_optimizer": {"device": "nvme"}}}
    for asks in (penstock.plan, penstock.initialize):
        with pytest.raises(penstock.UsageError, match="nobody says where"):
            asks(small.Stack(), config=nvme)
    assert main(["plan", "small_models:Stack", "--host-budget", "4096"]) == 3
    assert "Or name a directory on NVMe" in capsys.readouterr().err


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


def test_a_module_of_this_folder_is_found_by_a_command_too(tmp_path, monkeypatch, capsys):
    (tmp_path / "made_here.py").write_text("from torch.nn import Linear\n\ndef make():\n    return Linear(3, 3)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", ".", str(tmp_path))])
    assert main(["plan", "made_here:make"]) == 0 and "12 parameters" in capsys.readouterr().out
    assert str(tmp_path) not in sys.path


def test_the_verb_takes_a_directory_of_hugging_face(tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2, vocab_size=64,
                                      num_attention_heads=2, num_key_value_heads=2, architectures=["LlamaForCausalLM"])
    config.save_pretrained(tmp_path)
    assert main(["plan", str(tmp_path), "--json"]) == 0
    expected = penstock.plan(transformers.LlamaForCausalLM(config))
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(expected.to_dict()))


# ---------------------------------------------------------------- how long a step takes

QUICK = {"batch": small.ids(), "loss": lambda output: output.pow(2).mean(), "seconds": 0.01}


def test_a_batch_gives_the_time_of_a_step_in_each_order_and_nothing_stays(tmp_path):
    told = penstock.plan(small.Stack(), store=tmp_path / "a" / "store", **QUICK, endurance_bytes=1e12)
    assert list(tmp_path.iterdir()) == [] and told.unmeasured == ""
    forecast = told.forecast
    assert list(forecast.orders) == ["after_backward", "deferred", "within"]
    assert forecast.step is forecast.orders["after_backward"] and forecast.rates.places == (str(tmp_path),)
    for step in forecast.orders.values():
        parts = step.forward_s + step.backward_s + step.update_s + step.commit_s
        assert parts <= step.seconds < parts + 0.05  # and what is outside of passes
        assert step.seconds >= max(step.nvme_s, step.compute_s + step.updating_s)
        assert step.days_to_endurance * step.written_bytes_per_day == pytest.approx(1e12)
        assert step.tokens_that_hide_nvme == pytest.approx(10 * step.compute_that_hides_nvme)
        assert step.bottleneck in ("nvme", "processor", "both", "order")
    assert told.tokens == 10
    step = forecast.step
    assert (step.nvme_read_bytes, step.nvme_write_bytes) == pytest.approx((told.read_bytes, told.write_bytes))
    assert forecast.orders["deferred"].nvme_read_bytes < step.nvme_read_bytes
    assert [way.step.seconds for way in forecast.others] == sorted(way.step.seconds for way in forecast.others)
    assert {"update_order": "deferred"} in [way.store for way in forecast.others]
    assert {"update_order": "within", "deferred_share": "auto"} in [way.store for way in forecast.others]
    assert {"weights": "cpu", "states": "cpu"} in [way.store for way in forecast.others]
    assert ({}, {}) not in [(way.store, way.settings) for way in forecast.others]


def test_graphs_that_are_kept_are_told_of_where_there_is_memory(tmp_path, monkeypatch):
    def kept(told):
        return [way for way in told.forecast.others if way.settings == {"activations": "keep"}]
    recomputing = penstock.Settings(activations="recompute")
    told = penstock.plan(small.Stack(), store=tmp_path, settings=recomputing, **QUICK)
    ways = kept(told)
    assert {way.store.get("update_order", "after_backward") for way in ways} == {*told.forecast.orders}
    assert told.graph_bytes == 0 and "\ngraphs " not in str(told)
    keeping = penstock.plan(small.Stack(), store=tmp_path, **QUICK)
    assert {way.graph_bytes for way in ways} == {keeping.graph_bytes} and keeping.graph_bytes > 0
    assert kept(keeping) == [] and "\ngraphs " in str(keeping)
    assert "Settings(activations='keep'), which takes 0 MiB beside the pool" in str(ways[0])
    plan_of = Described.plan

    def short(described):
        told = plan_of(described)
        told.available_bytes = told.pool_bytes
        return told
    monkeypatch.setattr(Described, "plan", short)
    assert kept(penstock.plan(small.Stack(), store=tmp_path, settings=recomputing, **QUICK)) == []
    assert penstock.plan(small.Stack(), store=tmp_path, **QUICK).graph_bytes == 0


def test_it_is_told_as_the_program_tells_it(tmp_path):
    told = penstock.plan(small.Stack(), store=tmp_path, **QUICK)
    names = [each.split(" ", 1)[0] for each in str(told).splitlines()]
    assert [each for each in names if each] == ["model", "host", "graphs", "NVMe", "prefetch", "a", "measured", "step",
                                                "lanes", "decides", "wear", "faster"]
    again = json.loads(told.json())
    assert again == told.to_dict() and "text" not in told.json()
    assert again["forecast"]["orders"]["deferred"]["seconds"] == told.forecast.orders["deferred"].seconds


def test_without_a_batch_no_compute_is_made_up(tmp_path):
    told = penstock.plan(small.Stack(), store=tmp_path, seconds=0.01)
    assert told.forecast.step is None and dict(told.forecast.orders) == {} and told.forecast.others == ()
    assert told.forecast.nvme_s > 0 and told.forecast.update_s > 0
    assert "of NVMe" in str(told) and "not known without a batch" in str(told) and "tokens" not in str(told)
    absent = penstock.plan(small.Stack(), store=tmp_path / "absent")
    assert absent.forecast is None and "not known without a batch" in str(absent)
    unmeasured = penstock.plan(small.Stack(), store=tmp_path, seconds=0)
    assert unmeasured.forecast is None and "not measured (seconds=0)" in str(unmeasured)
    assert list(tmp_path.iterdir()) == []


def test_orders_that_a_model_or_its_settings_cannot_have_are_not_told_of(tmp_path):
    clipped = penstock.plan(small.Stack(), store=tmp_path, settings=penstock.Settings(clip=1.0), **QUICK)
    assert list(clipped.forecast.orders) == ["after_backward", "deferred", "within"]
    assert all(way.hopes == (way.store["update_order"] == "within") for way in clipped.forecast.others
               if "update_order" in way.store)
    batch = {**QUICK, "batch": torch.zeros(4, 8)}
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    store = penstock.Store(tmp_path, update_order="within")
    assert list(penstock.plan(model, store=store, **batch).forecast.orders) == ["after_backward", "deferred"]
    with pytest.raises(penstock.UsageError, match="within"):
        penstock.plan(small.Stack(), store=replace(store, commit_steps=2), settings=penstock.Settings(clip=1.0), **QUICK)


def test_micro_batches_are_passes_of_one_step(tmp_path):
    one = penstock.plan(small.Stack(), store=tmp_path, **QUICK)
    four = penstock.plan(small.Stack(), store=tmp_path, settings=penstock.Settings(accumulation=4), **QUICK)
    assert four.tokens == 4 * one.tokens
    assert four.forecast.step.nvme_read_bytes > one.forecast.step.nvme_read_bytes
    assert four.forecast.step.nvme_write_bytes == pytest.approx(one.forecast.step.nvme_write_bytes)
    assert four.read_bytes == pytest.approx(four.forecast.step.nvme_read_bytes)
    assert four.planned_bytes == four.read_bytes + four.write_bytes


@pytest.mark.parametrize("order", ["deferred", "within"])
def test_of_gradients_on_nvme_each_micro_batch_reads_what_the_one_before_wrote(tmp_path, order):
    def told(accumulation):
        store = penstock.Store(tmp_path / str(accumulation), gradients="nvme", update_order=order)
        settings = penstock.Settings(accumulation=accumulation)
        planned = penstock.plan(small.Stack(), store=store, settings=settings, **QUICK)
        assert planned.read_bytes == pytest.approx(planned.forecast.step.nvme_read_bytes)
        assert planned.write_bytes == pytest.approx(planned.forecast.step.nvme_write_bytes)
        return planned
    assert told(3).write_bytes - told(2).write_bytes == told(2).write_bytes - told(1).write_bytes > 0


def test_what_cannot_be_measured_is_refused(tmp_path):
    with pytest.raises(penstock.PenstockError, match="/proc/self"):
        penstock.plan(small.Stack(), store="/proc/self/penstock", **QUICK)
    with pytest.raises(penstock.UsageError, match="seconds=-1"):
        penstock.plan(small.Stack(), store=tmp_path, **{**QUICK, "seconds": -1})
    with pytest.raises(penstock.UsageError, match="measuring for 100"):
        penstock.plan(small.Stack(), store=tmp_path, seconds=100)
    apart = penstock.Store(tmp_path, device="emulated", device_budget_bytes=64 << 20)
    told = penstock.plan(small.Stack(), store=apart, **QUICK)
    assert told.forecast is None and "memory of its own" in str(told)


def test_a_directory_without_room_is_named(tmp_path):
    """As a quota would have it."""
    program = f"""
import resource, penstock, small_models as small
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    penstock.plan(small.Stack(), store={str(tmp_path)!r}, seconds=0.01)
except penstock.PenstockError as error:
    print(error)
"""
    done = forked.run([sys.executable, "-c", program], text=True, capture_output=True, env={
        **os.environ, "PYTHONPATH": f"{PACKAGE}:{os.path.dirname(os.path.abspath(__file__))}"})
    assert str(tmp_path) in done.stdout and "256 MiB" in done.stdout, done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_fit_is_told_with_what_would(tmp_path):
    store = penstock.Store(tmp_path / "store", host_budget_bytes=8192, prefetch_depth=3, states="cpu")
    with pytest.raises(penstock.FitError) as refused:
        penstock.plan(small.Stack(), store=store)
    told = str(refused.value).rpartition("the lightest that fits: ")[2].split(", ")
    changes = dict(each.split("=") for each in told)
    assert changes["prefetch_depth"] == "1" and changes["states"] == "nvme"
    numbers = {key: int(value) if value.isdecimal() else value for key, value in changes.items()}
    assert penstock.plan(small.Stack(), store=replace(store, **numbers)).pool_bytes <= numbers["host_budget_bytes"]


def test_the_verb_forecasts_steps_of_a_batch(tmp_path, capsys):
    arguments = ["--store", str(tmp_path), "--seconds", "0.01"]
    given = ["plan", "small_models:Stack", "--batch", "small_models:ids", "--loss", "small_models:mean", *arguments]
    assert main([*given, "--json", "--endurance", "600"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["tokens"] == 10 and told["forecast"]["step"]["days_to_endurance"] > 0
    assert main(given) == 0 and "decides" in capsys.readouterr().out
    for wrong in (["--batch", "0x4"], ["--batch", "small_models:absent"], ["--batch", "2x3", "--loss", "nothing"]):
        assert main(["plan", "small_models:Stack", *arguments, *wrong]) == 2
        assert wrong[-1] in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_verb_refuses_a_batch_of_tokens_for_a_model_that_takes_none(tmp_path, capsys):
    assert main(["plan", "small_models:Stack", "--store", str(tmp_path), "--batch", "2x3"]) == 2
    assert "Stack.forward() takes ids: name a function that gives its batch, --batch MODULE:FUNCTION" in \
        capsys.readouterr().err


def test_the_verb_makes_a_batch_of_tokens_for_models_of_transformers(tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=5, vocab_size=64,
                                      num_attention_heads=2, num_key_value_heads=2, architectures=["LlamaForCausalLM"])
    config.save_pretrained(tmp_path)
    assert main(["plan", str(tmp_path), "--batch", "2x12", "--store", str(tmp_path), "--seconds", "0.01",
                 "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["tokens"] == 24 and told["forecast"]["step"]["seconds"] > 0
