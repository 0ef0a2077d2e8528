"""A configuration, and a Store or Settings beside it: one, or refused by name."""
from __future__ import annotations

import copy
import json
import pickle
from dataclasses import fields, replace

import pytest
import torch

import penstock
import small_models as small
from fake_core import OpenFakeCore
from penstock.configuration.config import read_config
from penstock.configuration.merged import SETTINGS_KEYS
from penstock.loss_scale import LossScale
from penstock.store import STORE_KEYS, settings_of

ALONE = {"directories", "resume_from", "go_back", "keep", "snapshots", "trace", "trace_steps", "progress", "said"}


def nested(key, value):
    for word in reversed(key.split(".")):
        value = {word: value}
    return value


OTHER = {  # a value of the configuration that is not the default, and as Store has it
    "run.name": ("mine",) * 2, "memory.host_budget": ("1GiB", 1 << 30), "memory.prefetch_depth": (3,) * 2,
    "memory.staging_tiles": (9,) * 2, "memory.tile_elements": (8192,) * 2,
    "zero_optimization.offload_param.device": ("cpu",) * 2, "zero_optimization.offload_optimizer.device": ("cpu",) * 2,
    "run.commit_every": (10,) * 2, "run.update_order": ("deferred",) * 2,
    "run.deferred_share": (0.5,) * 2, "run.sum_order": ("ranks_first",) * 2, "run.verify": ("none",) * 2,
    "memory.codec": ("compact",) * 2, "data_types.grad_accum_dtype": ("fp32",) * 2, "memory.gradients": ("nvme",) * 2,
    "memory.activation_budget": ("1MiB", 1 << 20), "memory.fill_host_budget": (True,) * 2,
    "memory.device": ("cuda:1",) * 2, "memory.device_budget": (4096,) * 2, "run.threads": (3,) * 2,
    "aio.deadline": (7, 7.0)}


def test_every_setting_of_a_store_has_a_key_or_is_the_programs_alone():
    assert {each.name for each in fields(penstock.Store)} == {*STORE_KEYS, *ALONE}
    assert set(OTHER) == set(STORE_KEYS.values())
    assert {each.name for each in fields(penstock.Settings)} == {
        *SETTINGS_KEYS, "accumulation", "micro_batch", "dtype", "loss_scale", "room", "said"}


@pytest.mark.parametrize("field, value, words", [
    ("prefetch_depth", 65, r"Store\(prefetch_depth=...\), memory.prefetch_depth of a configuration, is 65 \(an integer\); "
                           "expected an integer from 0 to 64"),
    ("staging_tiles", 0, "expected an integer from 2 to 1024"), ("commit_steps", 0, "expected an integer from 1 to "),
    ("tile_elements", 4096.5, "a number with a fraction")])
def test_a_number_that_its_key_does_not_have_is_refused_by_name(tmp_path, field, value, words):
    with pytest.raises(penstock.UsageError, match=words):
        penstock.plan(torch.nn.Linear(2, 2), store=penstock.Store(tmp_path, **{field: value}))
    assert list(tmp_path.iterdir()) == []


def test_numbers_and_truths_of_others_cross_as_numbers_and_truths(tmp_path):
    store = penstock.Store(tmp_path, prefetch_depth=torch.tensor(3), snapshots=False, fill_host_budget=1)
    told = json.loads(settings_of(store))
    assert told["memory.prefetch_depth"] == 3 and told["memory.fill_host_budget"] is True


@pytest.mark.parametrize("field, key", STORE_KEYS.items())
def test_what_only_the_configuration_says_is_obeyed_and_what_contradicts_is_refused(field, key, tmp_path):
    written, value = OTHER[key]
    config = read_config(nested(key, written))
    default = getattr(penstock.Store(tmp_path), field)
    assert value != default
    merged = config.store_at(penstock.Store(tmp_path, trace="t.json"))
    assert getattr(merged, field) == value and merged.trace == "t.json" and merged.paths() == [str(tmp_path)]
    assert getattr(config.store_at(penstock.Store(tmp_path, **{field: value})), field) == value
    if field == "codec":
        default = "split"  # None says nothing of it
    with pytest.raises(penstock.UsageError, match=rf"Store\({field}=.*{key}"):
        config.store_at(penstock.Store(tmp_path, **{field: default}))


def test_all_that_contradicts_is_one_error(tmp_path):
    config = read_config({"run": {"commit_every": 10}, "memory": {"prefetch_depth": 5}})
    with pytest.raises(penstock.UsageError,
                       match="prefetch_depth=4.*memory.prefetch_depth.*commit_steps=1.*run.commit_every"):
        config.store_at(penstock.Store(tmp_path, prefetch_depth=4, commit_steps=1))
    merged = config.store_at(penstock.Store(tmp_path, commit_steps=10))
    assert (merged.commit_steps, merged.prefetch_depth, merged.weights) == (10, 5, "nvme")


def test_an_exact_codec_is_whichever_store_says(tmp_path):
    config = read_config({"memory": {"codec": "exact"}})
    assert config.store_at(penstock.Store(tmp_path, codec="split")).codec == "split"
    assert config.store_at(penstock.Store(tmp_path)).codec is None
    with pytest.raises(penstock.UsageError, match="codec='compact'.*memory.codec"):
        config.store_at(penstock.Store(tmp_path, codec="compact"))


def test_what_was_given_is_known_also_where_it_is_the_default():
    assert penstock.Store("/a").said == {"directories"}
    assert penstock.Store("/a", "job", commit_steps=1).said == {"directories", "job", "commit_steps"}
    for made in (replace(penstock.Store("/a", commit_steps=1), threads=2, weights="nvme"),
                 copy.deepcopy(replace(penstock.Store("/a", commit_steps=1), threads=2)),
                 pickle.loads(pickle.dumps(penstock.Store("/a", commit_steps=1, threads=2)))):
        assert made.said == {"directories", "commit_steps", "threads"}
    assert penstock.Store("/a", commit_steps=1) == penstock.Store("/a")
    assert "said" not in repr(penstock.Store("/a"))
    assert penstock.Settings(2, activations="keep").said == {"accumulation", "activations"}


def test_settings_beside_a_configuration_are_merged_with_it():
    config = read_config({"gradient_accumulation_steps": 4, "bf16": {"enabled": True}, "steps_per_print": 3})
    merged = config.settings_with(penstock.Settings(micro_batch=5))
    assert (merged.accumulation, merged.dtype, merged.steps_per_print) == (4, torch.bfloat16, 3)
    assert merged.micro_batch == 5 and merged.clip == 1.0, "the configuration's default, as without Settings"
    assert config.settings_with(None) is config.settings
    for wrong, key in (({"accumulation": 1}, "gradient_accumulation_steps"), ({"dtype": None}, "bf16.enabled"),
                       ({"steps_per_print": 4}, "steps_per_print")):
        with pytest.raises(penstock.UsageError, match=rf"Settings\({next(iter(wrong))}=.*{key}"):
            config.settings_with(penstock.Settings(**wrong))
    half = read_config({"fp16": {"enabled": True, "loss_scale": 8}})
    assert half.settings_with(penstock.Settings(drop_last=True)).loss_scale == LossScale(8, fixed=True)
    with pytest.raises(penstock.UsageError, match="loss_scale.*fp16"):
        half.settings_with(penstock.Settings(loss_scale=LossScale(16, fixed=True)))


def test_activations_of_single_units_go_with_the_configurations_of_the_others():
    config = read_config({"memory": {"activations": "recompute"}})
    assert config.settings_with(penstock.Settings(activations={"blocks.0": "keep"})).activations == {
        "*": "recompute", "blocks.0": "keep"}
    with pytest.raises(penstock.UsageError, match="activations=.*memory.activations"):
        config.settings_with(penstock.Settings(activations={"*": "keep"}))
    with pytest.raises(penstock.UsageError, match="activations='keep'.*memory.activations"):
        config.settings_with(penstock.Settings(activations="keep"))


def test_batch_sizes_of_both_make_the_step_that_is_said():
    config = read_config({"train_batch_size": 8})
    merged = config.settings_with(penstock.Settings(accumulation=4, micro_batch=2))
    assert (merged.accumulation, merged.micro_batch) == (4, 2)
    with pytest.raises(penstock.UsageError, match="train_batch_size 8 is not"):
        config.settings_with(penstock.Settings(accumulation=3))


def test_a_device_may_stand_in_the_configuration(tmp_path):
    assert read_config({"memory": {"device": "cuda:3"}}).store_at(tmp_path).device == "cuda:3"
    with pytest.raises(penstock.UsageError, match="memory.device.*there are 'cpu', 'cuda'"):
        penstock.initialize(small.Stack(), store=tmp_path / "store", config={"memory": {"device": "tpu"}})
    assert not (tmp_path / "store").exists()


def test_a_file_and_a_store_open_together(tmp_path):
    file = tmp_path / "ds.json"
    file.write_text(json.dumps({"run": {"commit_every": 7}, "gradient_accumulation_steps": 2}))
    store = penstock.Store(tmp_path / "store", commit_steps=1)
    with pytest.raises(penstock.UsageError, match=r"ds.json: Store\(commit_steps=1\)"):
        penstock.initialize(small.Stack(), store=store, config=file)
    engine, *_ = penstock.initialize(small.Stack(), core=OpenFakeCore(), config=file,
                                     settings=penstock.Settings(clip=2.0))
    assert engine.gradient_accumulation_steps() == 2 and engine.gradient_clipping() == 2.0


def test_directories_of_the_configuration_that_are_not_taken_are_told(tmp_path):
    config = read_config({"run": {"swap_directory": "/elsewhere"}, "gradient_clipping": 1})
    assert "without effect: run.swap_directory" in config.note(penstock.Store(tmp_path))
    assert config.note() is None
