"""What is read of a configuration that was written for DeepSpeed."""
from __future__ import annotations

import json

import pytest
import torch

import penstock
import small_models as small
from fake_core import OpenFakeCore
from penstock.__main__ import main
from penstock.configuration.config import read_config
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
    assert rates == [0.0, 0.0, 0.01, 0.02, 0.01] and engine.global_steps == 4  # DeepSpeed begins at -1
    assert optimizer.param_groups[0]["betas"] == (0.8, 0.9)
    read = read_config(str(file))
    assert read.without_effect == () and read.settings.steps_per_print == 10


@pytest.mark.parametrize("config, text", [
    ({"gradient_cliping": 1}, "'gradient_cliping' is unknown; the nearest known one is 'gradient_clipping'"),
    ({"zero_optimization": {"offload_param": {"devise": "cpu"}}}, "nearest known one is "
     "'zero_optimization.offload_param.device'"),
    ({"train_batch_size": 5, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2}, "is not"),
    ({"optimizer": {"type": "Lamb"}}, "'optimizer.type' is \"Lamb\".*\"AdamW\" or \"Adam\""),
    ({"optimizer": {"type": "Adam", "params": {"rate": 1}}}, "optimizer.params.rate.*known in optimizer.params are lr"),
    ({"optimizer": {"type": "SGD", "params": {"betas": [0.9, 0.9]}}}, "no parameter of optimizer.type \"SGD\""),
    ({"optimizer": {"type": "SGD", "params": {"nesterov": True}}}, "momentum is 0.*nesterov"),
    ({"scheduler": {"type": "OneCycle"}}, "cycle_min_lr is missing.*cycle_max_lr is missing"),
    ({"scheduler": {"type": "WarmupDecayLR"}}, "total_num_steps is missing"),
    ({"scheduler": {"type": "WarmupLR", "params": {"cycle_min_lr": 1}}}, "cycle_min_lr has no effect"),
    ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, "choose one"),
    ({"bf16": {"enabled": False}, "bfloat16": {"enabled": True}}, "leave one out"),
    ({"gradient_accumulation_steps": 0}, "an integer from 1"), ({"gradient_clipping": -1}, "a number from 0"),
    ({"fp16": True}, "'fp16' is true.*expected a section"), ({"optimizer": {"type": "SGD", "params": 3}}, "a section"),
    ({"model": {"hidden": 8}}, "'model' is of the program"), ({"run": {"commit_every": "scratch"}}, "program alone"),
    ({"amp": {"enabled": True}}, "'amp' cannot be obeyed"),
    ({"curriculum_learning": {"enabled": True}}, "order of the data is the loader's"),
    ({"fp16": {"enabled": float("nan")}}, "Out of range"), ({"fp16": {"enabled": object()}}, "not JSON serializable"),
    ("nowhere.json", "no such file")])
def test_what_is_wrong_is_said(config, text):
    with pytest.raises(penstock.UsageError, match=f"(?s){text}"):
        open_engine(config)


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(penstock.UsageError, match="5 things are wrong") as told:
        open_engine({"nonsense": 1, "gradient_clipping": "much", "optimizer": {"type": "Lamb"}, "aio": {"blok": 1},
                     "train_batch_size": 3, "gradient_accumulation_steps": 2})
    assert all(each in str(told.value) for each in ("nonsense", "gradient_clipping", "Lamb", "aio.blok", "multiple"))


def test_more_than_a_message_holds_is_said_whole():
    with pytest.raises(penstock.UsageError) as told:
        open_engine({f"unknown_{number}": 1 for number in range(100)})
    assert all(f"'unknown_{number}'" in str(told.value) for number in range(100))


def test_old_spellings_are_read():
    config = read_config({"bfloat16": {"enabled": "auto"}, "zero_optimization": {
        "stage": 2, "cpu_offload": True, "offload_param": {"device": "nvme", "nvme_path": "/nvme"}},
        "optimizer": {"type": "deepspeedcpuadam", "params": {"lr": 0.5}}}, {"bfloat16.enabled": True})
    assert config.settings.dtype == torch.bfloat16
    assert config.store.states == "cpu" and config.store.weights == "nvme" and config.store.paths() == ["/nvme"]
    made = config.optimizer([torch.zeros(1, requires_grad=True)])
    assert type(made) is torch.optim.AdamW and made.param_groups[0]["lr"] == 0.5
    assert made.param_groups[0]["weight_decay"] == 0, "DeepSpeed's default, not torch's"
    became = {each["key"]: each["became"] for each in config.resolved["translated"]}
    assert became["zero_optimization.cpu_offload"] == 'zero_optimization.offload_optimizer.device "cpu"'


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_from_stage_2_on_processes_keep_no_gradients_of_their_own(stage):
    config = {"zero_optimization": {"stage": stage}}
    by_stage = "ranks_first" if stage >= 2 else None
    for given in ("/nvme/run", penstock.Store("/nvme/run")):
        assert read_config(config).store_at(given).sum_order == by_stage
    said = penstock.Store("/nvme/run", sum_order="passes_first")
    assert read_config(config).store_at(said).sum_order == "passes_first"
    config["run"] = {"sum_order": "passes_first", "swap_directory": "/nvme/run"}
    assert read_config(config).store_at(None).sum_order == "passes_first"


@pytest.mark.parametrize("device, kept", [("none", "cpu"), ("cpu", "cpu"), ("nvme", "nvme"), ("auto", "cpu")])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_any_stage_keeps_things_where_the_offload_sections_say(stage, device, kept):
    config = read_config({"run": {"swap_directory": "/nvme"}, "zero_optimization": {
        "stage": stage, "offload_param": {"device": device}, "offload_optimizer": {"device": device}}})
    assert config.store.weights == config.store.states == kept


def test_what_the_caller_gives_goes_before_the_directory_of_the_configuration(tmp_path):
    config = read_config({"zero_optimization": {"offload_param": {"device": "cpu", "nvme_path": "/nvme"}},
                          "memory": {"host_budget": "1GiB"}})
    assert config.store_at(None) is config.store and config.store.host_budget_bytes == 1 << 30
    given = config.store_at(tmp_path)
    assert given.paths() == [str(tmp_path)] and given.weights == "cpu"
    merged = config.store_at(penstock.Store(tmp_path))
    assert merged.paths() == [str(tmp_path)] and merged.weights == "cpu" and merged.host_budget_bytes == 1 << 30
    own = penstock.Store(tmp_path)
    assert read_config({}).store_at(own) == own and read_config({}).store_at(None) is None


@pytest.mark.parametrize("kind, params", [
    ("AdamW", {"betas": [0.8, 0.9]}), ("Adam", {"adam_w_mode": False}), ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("Adagrad", {"initial_accumulator_value": 0.1}), ("Lion", {"weight_decay": 0.1})])
def test_each_optimizer_trains(kind, params):
    engine, optimizer, _, _ = open_engine({"optimizer": {"type": kind, "params": {"lr": 0.01, **params}}})
    step(engine)
    assert optimizer.report.updated
    for name, value in params.items():
        if name != "adam_w_mode":
            assert optimizer.param_groups[0][name] == (tuple(value) if isinstance(value, list) else value)


def test_auto_is_what_the_caller_knows_or_its_rule():
    text = {"train_micro_batch_size_per_gpu": "auto", "gradient_clipping": "auto", "optimizer": {
        "type": "AdamW", "params": {"lr": "auto"}}, "scheduler": {
            "type": "WarmupLR", "params": {"warmup_max_lr": "auto"}}}
    config = read_config(text, {"train_micro_batch_size_per_gpu": 4, "optimizer.params.lr": 2e-5})
    assert config.settings.micro_batch == 4 and config.settings.clip == 1.0
    became = {each["key"]: (each["became"], each["rule"]) for each in config.resolved["auto"]}
    assert became["optimizer.params.lr"] == (2e-5, "the value that the caller knows")
    assert became["scheduler.params.warmup_max_lr"] == (2e-5, "optimizer.params.lr")
    decay = {"type": "WarmupDecayLR", "params": {"total_num_steps": 9, "warmup_max_lr": "auto"}}
    rate = {"optimizer": {"type": "AdamW", "params": {"lr": 0.5}}}
    assert read_config({"scheduler": decay, **rate}).resolved["values"]["scheduler.params.warmup_max_lr"] == 0.5
    del decay["params"]["warmup_max_lr"]
    with pytest.raises(penstock.UsageError, match="say which"):
        read_config({"scheduler": decay, **rate})
    with pytest.raises(penstock.UsageError, match="optimizer.params.lr"):
        read_config(text, {"optimizer.params.lr": "fast"})


@pytest.mark.parametrize("kind, more, rates", [
    ("WarmupLR", {}, [0, 0, 0.25, 0.5]), ("WarmupLR", {"warmup_max_lr": "auto"}, [0, 0, 0.25, 0.5]),
    ("WarmupDecayLR", {"total_num_steps": 9}, [0, 0, 0.0005, 0.001]),
    ("WarmupDecayLR", {"total_num_steps": 9, "warmup_max_lr": "auto"}, [0, 0, 0.25, 0.5])])
def test_a_warm_up_ends_at_the_rate_of_an_optimizer_that_is_given(kind, more, rates):
    model = small.Stack()
    engine, *_ = penstock.initialize(model, torch.optim.AdamW(model.parameters(), lr=0.5), core=OpenFakeCore(), config={
        "scheduler": {"type": kind, "params": {"warmup_num_steps": 2, "warmup_type": "linear", **more}}})
    told = []
    for micro in range(4):
        told.append(engine.get_lr()[0])
        step(engine, micro)
    assert told == rates


def test_an_optimizer_that_nobody_says_is_none():
    assert read_config({}).optimizer is None and read_config({"scheduler": {"type": "WarmupLR"}}).optimizer is None
    made = read_config({"optimizer": {"params": {"lr": 0.5}}}).optimizer([torch.zeros(1, requires_grad=True)])
    assert type(made) is torch.optim.AdamW and made.param_groups[0]["lr"] == 0.5


def test_a_last_micro_batch_may_be_left_out():
    _, _, loader, _ = open_engine({"train_micro_batch_size_per_gpu": 2, "dataloader_drop_last": True},
                                  training_data=list(range(5)))
    assert len(loader) == 2


def test_config_show_says_what_each_auto_became(tmp_path, capsys):
    file = tmp_path / "ds.json"
    file.write_text('{"gradient_clipping": "auto", "memory_breakdown": true, "bfloat16": {"enabled": true}}')
    assert main(["config", "show", str(file)]) == 0
    told = capsys.readouterr().out
    assert "gradient_clipping = 1.0   (1, as where it is not said)" in told
    assert told.splitlines()[-1].endswith("--as deepspeed")
    assert "memory_breakdown   (because" in told and "bfloat16.enabled = true: bf16.enabled true" in told
    file.write_text('{"gradient_cliping": 1}')
    assert main(["config", "show", str(file)]) == 2 and "nearest known one" in capsys.readouterr().out
    assert main(["config", "show", str(tmp_path / "none.json")]) == 2


AUTO = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto", "bf16": {"enabled": "auto"}, "optimizer": {"type": "AdamW", "params": {
            "lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}}, "scheduler": {
                "type": "WarmupLR", "params": {"warmup_max_lr": "auto", "warmup_num_steps": "auto"}}}
NUMBERS = {"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 2, "optimizer.params.lr": 0.25,
           "optimizer.params.betas": [0.8, 0.9], "optimizer.params.weight_decay": 0.5,
           "scheduler.params.warmup_num_steps": 4}


def test_an_auto_that_decides_numbers_is_not_guessed():
    with pytest.raises(penstock.UsageError) as told:
        open_engine(AUTO)
    assert all(key in str(told.value) for key in NUMBERS) and "known={" in str(told.value)
    assert "gradient_clipping" not in str(told.value) and "params.eps" not in str(told.value)
    engine, optimizer, loader, _ = open_engine(AUTO, known=NUMBERS, training_data=list(range(6)))
    group = optimizer.param_groups[0]
    assert engine.gradient_accumulation_steps() == 2 and loader.batch_size == 3
    assert group["betas"] == (0.8, 0.9) and group["weight_decay"] == 0.5 and group["initial_lr"] == 0.25


@pytest.mark.parametrize("missing", NUMBERS)
def test_each_number_that_is_missing_is_named_and_no_other(missing):
    with pytest.raises(penstock.UsageError) as told:
        open_engine(AUTO, known={key: value for key, value in NUMBERS.items() if key != missing})
    assert [key for key in NUMBERS if key in str(told.value)] == [missing]


def test_batch_sizes_that_follow_are_not_asked_for():
    engine, *_ = open_engine({"train_batch_size": 8, "train_micro_batch_size_per_gpu": "auto",
                              "gradient_accumulation_steps": 4})
    assert engine.train_micro_batch_size_per_gpu() == 2 and engine.train_batch_size() == 8
    engine, *_ = open_engine({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 2})
    assert engine.gradient_accumulation_steps() == 1 and engine.train_batch_size() == 2


def test_an_optimizer_and_a_scheduler_that_are_given_need_no_numbers_of_the_configuration():
    text = {key: AUTO[key] for key in ("optimizer", "scheduler")}
    model = small.Stack()
    own = torch.optim.SGD(model.parameters(), lr=0.5)
    with pytest.raises(penstock.UsageError, match="scheduler.params.warmup_num_steps") as told:
        penstock.initialize(model, own, core=OpenFakeCore(), config=text)
    assert "optimizer.params" not in str(told.value)
    scheduler = torch.optim.lr_scheduler.ConstantLR(own)
    _, optimizer, _, given = penstock.initialize(model, own, core=OpenFakeCore(), config=text, lr_scheduler=scheduler)
    assert given is scheduler and optimizer.param_groups is own.param_groups


def test_values_that_nobody_asks_for_are_refused_by_name():
    with pytest.raises(penstock.UsageError, match="no config is given"):
        penstock.initialize(small.Stack(), core=OpenFakeCore(), known={"optimizer.params.lr": 1})
    with pytest.raises(penstock.UsageError, match="'optimizer.params.learning_rate', which there is not"):
        open_engine({}, known={"optimizer.params.learning_rate": 1})


def test_what_is_not_as_it_is_written_is_told_once_and_in_one_line(caplog):
    config = {"bf16": {"enabled": "auto"}, "memory_breakdown": True, "aio": {"block_size": 4096},
              "zero_optimization": {"stage": 2, "overlap_comm": True, "leaf_module": {"classes": ["Experts"]}}}
    open_engine(config)
    (told,) = [each.getMessage() for each in caplog.records if each.name == "penstock"]
    assert "\n" not in told
    for part in ("bf16.enabled = false", "gradient_clipping = 1.0", "zero_optimization.stage (where", "config show",
                 "without effect: memory_breakdown, zero_optimization.leaf_module, 2 of aio and zero_optimization that would tune "):
        assert part in told, told
    assert "block_size" not in told and "overlap_comm" not in told
    caplog.clear()
    open_engine({"gradient_clipping": 1.0, "bf16": {"enabled": False}})
    assert not [each for each in caplog.records if each.name == "penstock"]


def test_an_optimizer_that_goes_before_the_configurations_is_told(caplog):
    model = small.Stack()
    penstock.initialize(model, torch.optim.SGD(model.parameters(), lr=1), core=OpenFakeCore(), config={
        "gradient_clipping": 1, "optimizer": {"type": "AdamW", "params": {"lr": 3}}})
    assert "without effect: optimizer." in caplog.text


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


def test_consecutive_hysteresis_counts_from_the_last_whole_step():
    scale = LossScale.dynamic(power=4, window=100, hysteresis=2, consecutive=True)
    told = []
    for overflow in (True, False, True, True, False):
        scale.after(overflow)
        told.append(scale.value)
    assert told == [16, 16, 16, 8, 8]


def test_the_scale_goes_on_where_the_store_does(tmp_path):
    config = {"fp16": {"enabled": True, "initial_scale_power": 4, "loss_scale_window": 2}}

    def start():
        torch.manual_seed(0)
        return penstock.initialize(small.Stack(), config=config, core=OpenFakeCore(folder=tmp_path))[0]
    engine = start()
    for seed in range(3):
        step(engine, seed)
    assert start().optimizer.loss_scale == engine.optimizer.loss_scale


def test_accelerate_says_never_with_an_infinity(tmp_path):
    read = read_config({"train_batch_size": 1, "steps_per_print": float("inf")})
    assert read.settings.steps_per_print is None or read.settings.steps_per_print > 10**9
