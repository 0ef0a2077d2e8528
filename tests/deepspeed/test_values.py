"""A value that DeepSpeed refuses is refused, in the words in which penstock.initialize(config=) refuses it; and what is
shown of a configuration is what it says."""
import json
from pathlib import Path

import deepspeed
import pytest

import penstock
from penstock.__main__ import main
from penstock.deepspeed.configuration.given import configuration
from penstock.deepspeed.shown import shown as shown_of
from penstock.native import config as config_library

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*ROOT.glob("python/tests/configurations/*.json"), *ROOT.glob("tests/peers/older/*.json")])
DEVICES = '.*"cpu" or "nvme" or "none"'
WRONG = {
    "a device that there is not": ({"offload_param": {"device": "nvm"}}, 'offload_param.device\' is "nvm" .text.; expected' + DEVICES),
    "a device in capitals": ({"offload_optimizer": {"device": "NVME"}}, 'offload_optimizer.device\' is "NVME" .text.' + DEVICES),
    "a device that is none": ({"offload_param": {"device": True}}, "offload_param.device' is true .true or false.; expected"),
    "a stage that there is not": ({"stage": 5}, "stage' is 5 .an integer.; expected an integer from 0 to 3"),
    "a stage below": ({"stage": -1}, "stage' is -1 .an integer.; expected an integer from 0 to 3"),
    "a stage in text": ({"stage": "3"}, "stage' is \"3\" .text.; expected an integer from 0 to 3"),
    "a switch in text": ({"cpu_offload": "false"}, "cpu_offload' is \"false\" .text.; expected true or false"),
    "both spellings": ({"cpu_offload": True, "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"}}, "said twice"),
    "a threshold below": ({"stage3_param_persistence_threshold": -1},
                          "threshold' is -1 .an integer.; expected a number of elements from 0"),
    "a threshold in text": ({"param_persistence_threshold": "many"}, "stage3_param_persistence_threshold' is \"many\" .text."),
    "saving in text": ({"stage3_gather_16bit_weights_on_model_save": "false"},
                       "on_model_save' is \"false\" .text.; expected true or false"),
    "a path of numbers": ({"offload_param": {"device": "nvme", "nvme_path": 5}}, "nvme_path' is 5 .an integer.; expected a path"),
    "no section": ({"offload_param": "cpu"}, "offload_param' is \"cpu\" .text.; expected a section"),
}


@pytest.mark.parametrize("zero, text", WRONG.values(), ids=WRONG)
def test_a_value_that_deepspeed_refuses_is_refused_by_each_who_reads_it(zero, text, model, configuration, written, capsys):
    config = configuration(zero_optimization=zero)
    for read in (lambda: deepspeed.initialize(model=model, config=config),
                 lambda: deepspeed.zero.Init(config_dict_or_path=config),
                 lambda: deepspeed.runtime.config.DeepSpeedConfig(config)):
        with pytest.raises(penstock.UsageError, match=f"zero_optimization.*{text}"):
            read()
    assert main(["config", "show", written(config), "--as", "deepspeed"]) == 2
    told = capsys.readouterr().out
    assert "wrong:\n  key 'zero_optimization." in told and "in host memory" not in told


def test_all_that_is_wrong_is_named_at_once(model, configuration):
    with pytest.raises(penstock.UsageError, match="5 things are wrong") as told:
        deepspeed.initialize(model=model, config=configuration(
            gradient_clipping=-1, zero_optimization={"stage": 7, "offload_param": {"device": "disk"}},
            run={"swap_directory": 5}, optimizer=["AdamW"]))
    assert all(each in str(told.value) for each in ("gradient_clipping", "stage' is 7", '"disk"', "swap_directory", "'optimizer'"))


@pytest.mark.parametrize("key", ["zero_optimization.stage", "zero_optimization.offload_param.device"])
def test_a_place_that_nobody_has_filled_in_is_asked_for(key, model, configuration):
    zero = {"stage": "auto"} if key.endswith("stage") else {"offload_param": {"device": "auto"}}
    with pytest.raises(penstock.UsageError, match=f"nobody has filled in {key}: write it there"):
        deepspeed.initialize(model=model, config=configuration(zero_optimization=zero))


@pytest.mark.parametrize("zero", [
    {"stage": 3.0}, {"stage": 3, "stage3_param_persistence_threshold": 1e5}, {"stage": 2, "cpu_offload": True},
    {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "PLACE/a"},
     "offload_optimizer": {"device": "nvme", "nvme_path": "PLACE/b"}},
    {"stage": 3, "offload_param": {"device": "none", "nvme_path": None}}], ids=str)
def test_what_deepspeed_takes_is_taken(zero, model, configuration, tmp_path):
    zero = json.loads(json.dumps(zero).replace("PLACE", str(tmp_path)))
    engine, *_ = deepspeed.initialize(model=model, config=configuration(zero_optimization=zero))
    assert engine.zero_optimization_stage() == int(zero["stage"])


def test_a_path_and_a_place_with_its_bandwidth_are_taken(model, configuration, tmp_path):
    zero = {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": tmp_path / "of a program"}}
    deepspeed.initialize(model=model, config=configuration(zero_optimization=zero))
    assert (tmp_path / "of a program").is_dir()
    engine, *_ = deepspeed.initialize(model=model, config=configuration(run={"swap_directory": [
        {"path": str(tmp_path / "kept"), "bandwidth": "auto"}]}))
    assert any((tmp_path / "kept").iterdir())
    engine.close()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_of_what_others_wrote_nothing_more_is_wrong(file, written):
    config = json.loads("".join(line for line in file.read_text().splitlines() if not line.startswith("//")))
    of_the_core = config_library.resolve(json.dumps(configuration(config)), "ds.json")
    assert shown_of(written(config), {}).resolved["wrong"] == of_the_core["wrong"]


HUGGING_FACE = {
    "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"}, "zero_optimization": {
        "stage": 3, "stage3_param_persistence_threshold": "auto", "offload_param": {"device": "nvme", "nvme_path": "/nvme"},
        "offload_optimizer": {"device": "cpu"}}}


def shown(config, written, capsys, *more):
    code = main(["config", "show", written(config), "--as", "deepspeed", *more])
    return code, capsys.readouterr().out


def test_where_weights_go_is_shown_although_numbers_are_auto(written, capsys):
    code, told = shown(HUGGING_FACE, written, capsys, "--all")
    assert code == 2 and "must be known (--known, or transformers and Accelerate, which fill it in):\n  gradient_clipping" in told
    assert "weights (stage 3, offload_param): on NVMe\n" in told and "directory: /nvme," in told
    assert "masters and moments (offload_optimizer): in host memory\n" in told
    assert 'how small, stage3_param_persistence_threshold, is "auto", Trainer\'s' in told
    by_default = told.partition("by default:")[2]
    assert "memory.host_budget" in by_default
    assert not any(key in by_default for key in ("offload_param", "gradient_clipping", "bf16.enabled", "memory.device ="))


def test_a_place_that_is_auto_is_trainers(written, capsys):
    zero = {**HUGGING_FACE["zero_optimization"], "stage": "auto", "offload_optimizer": {"device": "auto"}}
    _, told = shown({**HUGGING_FACE, "zero_optimization": zero}, written, capsys)
    assert "weights (stage auto, offload_param): on NVMe\n" in told
    assert 'masters and moments (offload_optimizer): "auto", Trainer\'s or Accelerate\'s' in told
    assert 'parameters between steps: "auto"' in told
