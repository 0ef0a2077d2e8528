"""transformers' Trainer, TRL's SFTTrainer and Accelerate by their own arguments: losses of the same script without DeepSpeed."""
import json
import random

import pytest
import torch

transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")
from tiny_language import WORDS, tokenizer  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments  # noqa: E402

transformers.utils.logging.set_verbosity_error()
AUTO = {
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "fp16": {"enabled": False}, "bf16": {"enabled": "auto"}, "gradient_clipping": "auto"}


def llama():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
                                        intermediate_size=48, vocab_size=len(WORDS), max_position_embeddings=32))


def rows():
    chance = random.Random(0)
    ids = [[chance.randrange(3, 64) for _ in range(12)] for _ in range(24)]
    return datasets.Dataset.from_list([{"input_ids": each, "labels": each, "attention_mask": [1] * 12} for each in ids])


def arguments(folder, kind=TrainingArguments, **given):
    return kind(output_dir=str(folder), **{
        "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": 5, "learning_rate": 1e-3,
        "lr_scheduler_type": "constant_with_warmup", "warmup_steps": 2, "logging_steps": 1, "save_steps": 2, "max_grad_norm": 0.0,
        "optim": "adamw_torch", "report_to": [], "use_cpu": True, "seed": 7, **given})


def losses(trainer):
    return [each["loss"] for each in trainer.state.log_history if "loss" in each]


@pytest.mark.parametrize("zero", [{"stage": 2, "offload_optimizer": {"device": "cpu"}},
                                  {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "PLACE"},
                                   "offload_param": {"device": "nvme", "nvme_path": "PLACE"},
                                   "stage3_gather_16bit_weights_on_model_save": True}], ids=["stage 2", "stage 3, nvme"])
def test_trainer_by_a_json_of_autos(zero, tmp_path):
    config = json.loads(json.dumps({**AUTO, "zero_optimization": zero}).replace("PLACE", str(tmp_path / "nvme")))
    plain = Trainer(llama(), arguments(tmp_path / "plain"), train_dataset=rows())
    plain.train()
    trainer = Trainer(llama(), arguments(tmp_path / "ds", deepspeed=config), train_dataset=rows())
    trainer.train()
    assert losses(trainer) == losses(plain) and len(losses(plain)) == 5
    trainer.save_model(tmp_path / "saved")
    saved = LlamaForCausalLM.from_pretrained(tmp_path / "saved")
    expected = plain.model.state_dict()
    assert all(torch.equal(each, expected[name]) for name, each in saved.state_dict().items())
    # Stopped at step 4, and gone on with.
    resumed = Trainer(llama(), arguments(tmp_path / "ds", deepspeed=config), train_dataset=rows())
    resumed.train(resume_from_checkpoint=str(tmp_path / "ds/checkpoint-4"))
    assert losses(resumed)[-1] == losses(plain)[-1]


def test_the_opening_says_where_things_lie_although_transformers_wants_few_words(tmp_path, caplog):
    trainer = Trainer(llama(), arguments(tmp_path / "out", save_strategy="no", max_steps=1, deepspeed={
        **AUTO, "zero_optimization": {"stage": 2}}), train_dataset=rows())
    trainer.train()
    assert [each.name for each in caplog.records if each.getMessage().startswith("weights in host memory, ")] == ["penstock"]


@pytest.mark.parametrize("stage", [2, 3])
def test_adapters_are_trained_saved_and_gone_on_with(stage, tmp_path):
    peft = pytest.importorskip("peft")
    config = {**AUTO, "zero_optimization": {"stage": stage, "stage3_gather_16bit_weights_on_model_save": True}}

    def trained(folder, goes_on=None, **given):
        torch.manual_seed(0)
        model = peft.get_peft_model(llama(), peft.LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
        trainer = Trainer(model, arguments(folder, **given), train_dataset=rows())
        trainer.train(resume_from_checkpoint=goes_on)
        return trainer
    plain, found = trained(tmp_path / "plain"), trained(tmp_path / "ds", deepspeed=config)
    assert losses(found) == losses(plain)
    assert sorted(each.name for each in (tmp_path / "ds/checkpoint-4").glob("adapter*")) == [
        "adapter_config.json", "adapter_model.safetensors"]
    resumed = trained(tmp_path / "ds", str(tmp_path / "ds/checkpoint-4"), deepspeed=config)
    assert losses(resumed)[-1] == losses(plain)[-1]


def test_a_model_is_trained_by_one_trainer_after_the_other_and_contradictions_are_theirs(tmp_path):
    config = {**AUTO, "zero_optimization": {"stage": 2}}

    def trained_twice(**given):
        model, told = llama(), []
        for number in range(2):
            trainer = Trainer(model, arguments(tmp_path / str(number), save_strategy="no", **given), train_dataset=rows())
            trainer.train()
            told += losses(trainer)
        return told
    plain = trained_twice()
    assert trained_twice(deepspeed=config) == plain and len(plain) == 10
    wrong = {**config, "optimizer": {"type": "AdamW", "params": {"lr": 0.5}}}
    with pytest.raises(ValueError, match="mismatches|correct the following"):
        Trainer(llama(), arguments(tmp_path, deepspeed=wrong), train_dataset=rows()).train()


def test_trl_fine_tunes_with_checkpointing_and_evaluates(tmp_path):
    trl = pytest.importorskip("trl")
    chance = random.Random(0)
    texts = datasets.Dataset.from_dict({"text": [" ".join(f"w{chance.randrange(61)}" for _ in range(12)) for _ in range(24)]})

    def trained(folder, **given):
        trainer = trl.SFTTrainer(
            model=llama(), train_dataset=texts, processing_class=tokenizer(), args=arguments(
                folder, trl.SFTConfig, max_length=24, gradient_checkpointing=True, save_strategy="no", bf16=False, **given))
        trainer.train()
        return trainer
    config = {**AUTO, "zero_optimization": {"stage": 3}}
    of_deepspeed, plain = trained(tmp_path / "ds", deepspeed=config), trained(tmp_path / "plain")
    assert losses(of_deepspeed) == losses(plain)


def test_accelerate_prepares_accumulates_saves_and_loads(tmp_path):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DeepSpeedPlugin
    from torch.utils.data import DataLoader, TensorDataset

    def run(plugin):
        for state in (AcceleratorState, PartialState):
            state._reset_state()
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
        accelerator = Accelerator(gradient_accumulation_steps=2, deepspeed_plugin=plugin, cpu=plugin is None)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
        data = torch.randn(32, 8)
        loader = DataLoader(TensorDataset(data, data.sum(1, keepdim=True)), batch_size=4)
        model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
        assert (type(model).__name__ == "DeepSpeedEngine") == (plugin is not None)  # which cpu=True would prevent

        def epoch():
            for x, y in loader:
                with accelerator.accumulate(model):
                    loss = (model(x) - y).square().mean()
                    accelerator.backward(loss)
                    optimizer.step()
                    schedule.step()
                    optimizer.zero_grad()
                yield loss.item()
        told = [*epoch(), *epoch()]
        if plugin is not None:
            accelerator.save_state(tmp_path / "state")
        told += epoch()
        if plugin is None:
            return told
        assert accelerator.get_state_dict(model)["0.weight"].shape == (32, 8)
        accelerator.load_state(tmp_path / "state")
        assert list(epoch()) == told[-8:]
        return told
    plain = run(None)
    for stage in (1, 3):
        plugin = DeepSpeedPlugin(zero_stage=stage, gradient_accumulation_steps=2, gradient_clipping=0.0,  # else it says 1.0
                                 zero3_save_16bit_model=True)
        assert run(plugin) == plain


@pytest.mark.parametrize("stage", [2, 3])
def test_trl_prefers_with_a_reference_and_generates(stage, tmp_path):
    trl = pytest.importorskip("trl")
    config = {**AUTO, "zero_optimization": {"stage": stage}}
    chance = random.Random(0)

    def text():
        return " ".join(f"w{chance.randrange(61)}" for _ in range(5))
    pairs = datasets.Dataset.from_list([{"prompt": text(), "chosen": f" {text()}", "rejected": f" {text()}"} for _ in range(8)])
    given = {"max_steps": 2, "gradient_accumulation_steps": 1, "save_strategy": "no", "bf16": False, "deepspeed": config}
    preferring = trl.DPOTrainer(llama(), ref_model=llama(), processing_class=tokenizer(), train_dataset=pairs,
                                args=arguments(tmp_path, trl.DPOConfig, max_length=16, **given))
    preferring.train()
    assert len(losses(preferring)) == 2
    rewarded = trl.GRPOTrainer(llama(), reward_funcs=lambda completions, **_: [float(len(each)) for each in completions],
                               processing_class=tokenizer(), train_dataset=pairs.select_columns("prompt"), args=arguments(
                                   tmp_path, trl.GRPOConfig, num_generations=2, max_completion_length=4, beta=0.0, **given))
    rewarded.train()
    assert len(losses(rewarded)) == 2


def test_logs_have_waits_and_memory_and_monitors_of_the_json_the_rest(tmp_path):
    import penstock.hugging_face
    trainer = Trainer(llama(), arguments(tmp_path / "out", save_strategy="no", max_steps=4, deepspeed={
        **AUTO, "zero_optimization": {"stage": 2},
        "csv_monitor": {"enabled": True, "output_path": str(tmp_path), "job_name": "csv"}}), train_dataset=rows())
    penstock.hugging_face.log_figures(trainer)
    trainer.train()
    told = [each for each in trainer.state.log_history if "loss" in each]
    assert all(each["penstock_host_bytes"] > 0 and each["penstock_nvme_bytes"] == 0 for each in told) and len(told) == 4
    lines = (tmp_path / "csv/Train_Samples_lr.csv").read_text().splitlines()
    assert [each.split(",")[0] for each in lines] == ["step", "4", "8", "12", "16"]
