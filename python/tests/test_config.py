"""What is read of a configuration that was written for DeepSpeed."""
from __future__ import annotations

import json

import pytest
import torch

import penstock
import small_models as small
from fake_core import OpenFakeCore
from penstock.config import read_config
from penstock.loss_scale import LossScale


def open_engine(config, **options):
    torch.manual_seed(0)
    return penstock.initialize(small.Stack(), config=config, core=OpenFakeCore(), **options)


def step(engine, seed=0):
    engine.backward(small.loss(engine, small.ids(seed)))
    engine.step()


def test_a_file_gives_batch_clip_optimizer_scheduler_and_type(tmp_path):
    file = tmp_path / "ds.json"
    file.write_text(json.dumps({
        "train_batch_size": 6, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.5, "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.02, "betas": [0.8, 0.9], "eps": "auto"}},
        "scheduler": {"type": "WarmupDecayLR", "params": {
            "warmup_min_lr": 0, "warmup_max_lr": 0.02, "warmup_num_steps": 2, "total_num_steps": 4,
            "warmup_type": "linear"}},
        "zero_optimization": {"stage": 3}, "steps_per_print": 10}))
    engine, optimizer, loader, scheduler = open_engine(str(file), training_data=list(range(5)))
    assert engine.gradient_accumulation_steps() == 3 and optimizer.clip == 0.5 and loader.batch_size == 2
    assert next(engine.module.parameters()).dtype == torch.bfloat16
    rates = [engine.get_lr()[0]]
    for micro in range(12):
        step(engine, micro)
        if engine.micro_steps % 3 == 0:
            rates.append(engine.get_lr()[0])
    assert rates == [0.0, 0.01, 0.02, 0.01, 0.0] and engine.global_steps == 4
    assert optimizer.param_groups[0]["betas"] == (0.8, 0.9)
    assert read_config(str(file)).not_read == ("zero_optimization", "steps_per_print")


@pytest.mark.parametrize("config, text", [
    ({"gradient_cliping": 1}, "'gradient_cliping', did you mean 'gradient_clipping'"),
    ({"train_batch_size": 5, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2}, "is not"),
    ({"optimizer": {"type": "Lamb"}}, "'Lamb' is none of"),
    ({"optimizer": {"type": "Adam", "params": {"rate": 1}}}, "optimizer.params"),
    ({"scheduler": {"type": "OneCycle"}}, "'OneCycle'"),
    ({"scheduler": {"type": "WarmupDecayLR"}}, "total_num_steps is missing"),
    ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, "choose one"),
    ({"gradient_accumulation_steps": 0}, "whole number of 1"), ({"gradient_clipping": -1}, "0 or more"),
    ({"fp16": True}, "fp16: an object"), ({"optimizer": {"type": "SGD", "params": 3}}, "params: an object"),
    ("nowhere.json", "no such file")])
def test_what_is_wrong_is_said(config, text):
    with pytest.raises(penstock.UsageError, match=text):
        open_engine(config)


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(penstock.UsageError, match="(?s)'nonsense'.*gradient_clipping.*Lamb"):
        open_engine({"nonsense": 1, "gradient_clipping": "much", "optimizer": {"type": "Lamb"}})


def test_auto_is_as_if_it_were_not_said():
    engine, optimizer, _, _ = open_engine({"train_batch_size": "auto", "gradient_clipping": "auto", "bf16": {
        "enabled": "auto"}, "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}}})
    assert engine.gradient_accumulation_steps() == 1 and optimizer.param_groups[0]["lr"] == 1e-3


def test_a_step_that_overflows_is_skipped_and_halves_the_scale():
    engine, optimizer, _, _ = open_engine({"fp16": {"enabled": True, "initial_scale_power": 4, "hysteresis": 1}})
    step(engine)
    assert optimizer.report.updated and optimizer.loss_scale.value == 16
    before = dict(engine.state_dict())
    broken = engine.module.norm.bias.register_hook(lambda gradient: gradient / 0)
    step(engine)
    broken.remove()
    assert not optimizer.report.updated and optimizer.loss_scale.value == 8 and engine.global_steps == 1
    assert all(torch.equal(each, before[name]) for name, each in engine.state_dict().items())
    step(engine)
    assert optimizer.report.updated and engine.global_steps == 2


def test_the_scale_is_taken_out_of_the_gradient_again():
    ends = []
    for scale in (1, 1024):
        engine, *_ = open_engine({"fp16": {"enabled": True, "loss_scale": scale}})
        engine.module.eval()
        step(engine)
        ends.append(dict(engine.named_weights("master")))
    assert all(torch.allclose(ends[0][name], ends[1][name], atol=2e-3) for name in ends[0])


def test_the_scale_doubles_after_a_window_and_waits_for_its_hysteresis():
    scale = LossScale.dynamic(power=4, window=2, hysteresis=2)
    told = []
    for overflow in (False, False, True, True, False, False, False, True):
        scale.after(overflow)
        told.append(scale.value)
    assert told == [16, 32, 32, 16, 16, 32, 32, 32]
    other = LossScale.dynamic()
    other.take(scale.encode())
    assert other == scale


def test_the_scale_goes_on_where_the_store_does(tmp_path):
    config = {"fp16": {"enabled": True, "initial_scale_power": 4, "loss_scale_window": 2}}

    def start():
        torch.manual_seed(0)
        return penstock.initialize(small.Stack(), config=config, core=OpenFakeCore(folder=tmp_path))[0]
    engine = start()
    for seed in range(3):
        step(engine, seed)
    assert start().optimizer.loss_scale == engine.optimizer.loss_scale
