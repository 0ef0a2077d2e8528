"""Trainers of TRL beside their twins in plain torch: fine-tuning with packed rows, preferences with and without a reference
model, rewards, policies that generate, adapters. What they log, and the weights at the end, are the same bits."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import penstock
from cores import WITHIN_BACKWARD
from cores import test_core as OpenFakeCore
from penstock.hugging_face import KeepSnapshots
from penstock.weights.bits import same_bits
from tiny_language import save, text, tokenizer

trl = pytest.importorskip("trl")
datasets = pytest.importorskip("datasets")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.skipif(WITHIN_BACKWARD, reason="a Trainer clips and logs norms after backward")

TOLD = ("loss", "grad_norm", "learning_rate", "eval_loss", "step", "rewards/margins", "reward", "kl", "logps/chosen",
        "mean_token_accuracy", "accuracy", "completions/mean_length")
ROWS = 12
Parts = dict[str, Any]


@pytest.fixture(autouse=True)
def quiet():
    transformers.logging.set_verbosity_error()
    datasets.disable_progress_bars()


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    return save(tmp_path_factory.mktemp("base"), dropout=0.1)


def prompts() -> Any:
    return datasets.Dataset.from_list([{"prompt": text(each, 4)} for each in range(ROWS)])


def texts() -> Any:
    return datasets.Dataset.from_list([{"text": text(each, 5 + each % 9)} for each in range(4 * ROWS)])


def preferences() -> Any:
    return datasets.Dataset.from_list([{"prompt": text(each, 4), "chosen": " " + text(100 + each, 5),
                                        "rejected": " " + text(200 + each, 3)} for each in range(ROWS)])


def arguments(kind: Any, folder: Path, **more: Any) -> Any:
    return kind(output_dir=str(folder), **{**dict(
        max_steps=3, per_device_train_batch_size=2, gradient_accumulation_steps=2, max_grad_norm=0.5, learning_rate=1e-2,
        logging_steps=1, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True, seed=1, bf16=False,
        dataloader_pin_memory=False, gradient_checkpointing=False), **more})


def llama(base: Path) -> Any:
    return transformers.LlamaForCausalLM.from_pretrained(base)


def rewarder(base: Path) -> Any:
    torch.manual_seed(3)
    return transformers.LlamaForSequenceClassification.from_pretrained(base, num_labels=1)


def with_adapter(base: Path) -> Any:
    peft = pytest.importorskip("peft")
    torch.manual_seed(4)
    return peft.get_peft_model(llama(base), peft.LoraConfig(
        r=4, lora_dropout=0.1, task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"]))


def length(completions: list[str], **_: Any) -> list[float]:
    """The reward of a text."""
    return [len(set(each.split())) / 4 + each.count("1") for each in completions]


def trained(make: Callable[[Path], Any], trainer: Any, args: Any, base: Path, managed: bool, parts: Parts,
            **options: Any) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    transformers.set_seed(1)
    model = make(base)
    own = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(own, lr=args.learning_rate, foreach=False)
    callbacks = []
    if managed:
        engine, optimizer, _, _ = penstock.initialize(model, optimizer, core=OpenFakeCore(), **options)
        callbacks.append(KeepSnapshots(engine))
    parts = {key: each() if callable(each) and key != "reward_funcs" else each for key, each in parts.items()}
    one = trainer(model=model, args=args, processing_class=tokenizer(), optimizers=(optimizer, None), callbacks=callbacks,
                  **parts)
    one.train()
    history = [{key: each[key] for key in TOLD if key in each} for each in one.state.log_history]
    return history, {name: each.clone() for name, each in one.accelerator.get_state_dict(one.model).items()}


def check(make: Callable[[Path], Any], trainer: Any, args: Any, base: Path, parts: Parts, **options: Any) -> None:
    (was, weights), (now, own) = (trained(make, trainer, args, base, managed, parts, **(options if managed else {}))
                                  for managed in (False, True))
    assert len(was) > 3 and was == now
    assert weights.keys() == own.keys() and not [name for name in weights if not same_bits(weights[name], own[name])]


@pytest.mark.parametrize("packing", ["bfd", "wrapped"])
def test_fine_tuning_with_packed_rows(packing, base, tmp_path):
    args = arguments(trl.SFTConfig, tmp_path, packing=True, packing_strategy=packing, max_length=24)
    check(llama, trl.SFTTrainer, args, base, {"train_dataset": texts})


def test_fine_tuning_of_an_adapter_with_evaluation(base, tmp_path):
    args = arguments(trl.SFTConfig, tmp_path, max_length=24, eval_strategy="steps", eval_steps=2)
    check(with_adapter, trl.SFTTrainer, args, base, {"train_dataset": texts, "eval_dataset": prompts_as_texts})


def prompts_as_texts() -> Any:
    return prompts().rename_column("prompt", "text")


def test_preferences_with_a_reference_model_of_its_own(base, tmp_path):
    args = arguments(trl.DPOConfig, tmp_path, max_length=24)
    check(llama, trl.DPOTrainer, args, base, {"train_dataset": preferences})


def test_preferences_with_a_reference_model_that_is_managed(base, tmp_path):
    args = arguments(trl.DPOConfig, tmp_path, max_length=24)

    def reference() -> Any:
        return llama(base)

    def managed_reference() -> Any:
        model = llama(base).requires_grad_(False).eval()
        penstock.initialize(model, core=OpenFakeCore())
        return model
    was = trained(llama, trl.DPOTrainer, args, base, False, {"train_dataset": preferences, "ref_model": reference})
    now = trained(llama, trl.DPOTrainer, args, base, True, {"train_dataset": preferences, "ref_model": managed_reference})
    assert was[0] == now[0] and all(same_bits(was[1][name], now[1][name]) for name in was[1])


def test_preferences_of_an_adapter_without_a_reference_model(base, tmp_path):
    args = arguments(trl.DPOConfig, tmp_path, max_length=24)
    check(with_adapter, trl.DPOTrainer, args, base, {"train_dataset": preferences})


def test_preferences_whose_reference_is_computed_before(base, tmp_path):
    args = arguments(trl.DPOConfig, tmp_path, max_length=24, precompute_ref_log_probs=True)
    check(llama, trl.DPOTrainer, args, base, {"train_dataset": preferences})


def test_rewards(base, tmp_path):
    args = arguments(trl.RewardConfig, tmp_path, max_length=24)
    check(rewarder, trl.RewardTrainer, args, base, {"train_dataset": preferences})


@pytest.mark.parametrize("beta", [0.0, 0.1], ids=["alone", "beside a reference model"])
def test_policies_that_generate(beta, base, tmp_path):
    args = arguments(trl.GRPOConfig, tmp_path, max_completion_length=6, num_generations=2, beta=beta, num_iterations=2,
                     max_steps=4)
    check(llama, trl.GRPOTrainer, args, base, {"train_dataset": prompts, "reward_funcs": length})
