"""Configurations that others wrote for DeepSpeed, as they are. Writes the table CONFIGURATIONS.md."""
from __future__ import annotations

import os
from pathlib import Path

import pytest

import penstock
import small_models as small
from fake_core import OpenFakeCore
from penstock.configuration.config import Config, read_config
from penstock.native import config as config_library

HERE = Path(__file__).resolve().parent
TABLE = HERE.parent / "CONFIGURATIONS.md"
FILES = sorted((HERE / "configurations").glob("*.json"))
# What transformers' Trainer and Accelerate fill in for "auto" before DeepSpeed sees it.
KNOWN = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
         "optimizer.params.lr": 5e-5, "optimizer.params.betas": [0.9, 0.999], "optimizer.params.eps": 1e-8,
         "optimizer.params.weight_decay": 0.01, "scheduler.params.warmup_min_lr": 0,
         "scheduler.params.warmup_max_lr": 5e-5, "scheduler.params.warmup_num_steps": 10,
         "scheduler.params.total_num_steps": 100}
REFUSED = {  # what DeepSpeed refuses on one rank too, and what would change results
    "bert_layer_drop": "bias_correction", "bert_squad": "max_grad_norm", "bert_squad_onebit": "OnebitAdam",
    "llama_lora_eight_gpus": "train_batch_size 64", "megatron_offload": "DeepSpeed_Adam",
    "self_control": "sparse_attention", "zenflow": "zenflow"}
ROWS: dict[str, str] = {}


@pytest.fixture(scope="module", autouse=True)
def table():
    yield
    if len(ROWS) == len(FILES):
        write_table()


@pytest.mark.parametrize("file", FILES, ids=lambda each: each.stem)
def test_a_configuration_that_others_wrote_trains_or_says_why_not(file):
    text = file.read_text()
    resolved = config_library.resolve(text, file.name, KNOWN)
    if file.stem in REFUSED:
        assert any(REFUSED[file.stem] in each for each in resolved["wrong"]), resolved["wrong"]
        with pytest.raises(penstock.UsageError, match=REFUSED[file.stem]):
            read_config(file, KNOWN)
    else:
        assert resolved["wrong"] == []
        trains(read_config(file, KNOWN))
    accounted(text, resolved)
    asked = config_library.resolve(text, file.name)["missing"]
    ROWS[file.stem] = row(file.stem, text.splitlines()[0].removeprefix("// from: "), resolved, asked)
    if asked:
        with pytest.raises(penstock.UsageError, match=asked[0]):
            read_config(file)


def trains(config: Config) -> None:
    model = small.Stack()
    optimizer = config.optimizer(list(model.parameters())) if config.optimizer else None
    engine, *_ = penstock.initialize(model, optimizer, core=OpenFakeCore(), settings=config.settings,
                                     lr_scheduler=config.scheduler)
    for micro in range(engine.gradient_accumulation_steps()):
        engine.backward(small.loss(engine, small.ids(micro)))
        engine.step()
    assert engine.optimizer.report is not None


def accounted(text: str, resolved: dict) -> None:
    """Each key of the text is in one of the lists, or wrong: nothing is passed over."""
    import json
    listed = {each["key"] for part in ("obeyed", "translated", "without_effect", "auto") for each in resolved[part]}

    def visit(section, path):
        for name, value in section.items():
            key = f"{path}.{name}" if path else name
            if key in listed or any(key in each for each in resolved["wrong"]):
                continue
            assert isinstance(value, dict), key
            visit(value, key)
    visit(json.loads("\n".join(text.splitlines()[1:])), "")


def row(name: str, source: str, resolved: dict, asked: list[str]) -> str:
    wrong = resolved["wrong"]
    ruled = [f"{each['key']} = {each['became']}" for each in resolved["auto"]
             if each["rule"] != "the value that the caller knows"]
    return (f"| `{name}` | {source} | {'refused: ' + '; '.join(wrong) if wrong else 'trains'} "
            f"| {', '.join(each.rpartition('.')[2] for each in asked)} | {'; '.join(ruled)} "
            f"| {'; '.join(each['key'] + ': ' + each['became'] for each in resolved['translated'])} "
            f"| {len(resolved['without_effect'])} |").replace("\n", " ")


def write_table() -> None:
    lines = [
        "# Configurations that others wrote", "",
        "Written by tests/test_config_list.py: files of `tests/configurations/` (keys and values of their sources),",
        "read as they are. Values for `auto` are like those that transformers' `Trainer` or Accelerate fill in, and",
        "where they know none, the rule's, which the table shows. *Asks for*: what the error lists where nobody knows",
        "it (`known=`). *Trains*: a step of a small model over the tests' stand-in core.",
        "`python -m penstock config show FILE` says the same of yours, key by key.", "",
        f"{len(FILES) - len(REFUSED)} of {len(FILES)} train, {len(REFUSED)} are refused by name.", "",
        "| file | from | outcome | asks for | `auto` by its rule | read as something else | keys without effect here |",
        "|---|---|---|---|---|---|---|"]
    lines += [ROWS[file.stem] for file in FILES]
    new = TABLE.with_suffix(".new")
    new.write_text("\n".join(lines) + "\n")
    os.replace(new, TABLE)
