"""deepspeed.initialize(): engines over each placement train to the bits of a loop of plain torch."""
import base64
import json
import os
from argparse import ArgumentParser, Namespace

import deepspeed
import pytest
import torch
from conftest import Model

import penstock
from penstock.__main__ import main


def plain(data, steps, micro=2, rows=4, rate=1e-2):
    """The losses and weights of the same steps by torch alone."""
    torch.manual_seed(0)
    model, losses = Model(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0, foreach=False)
    for step in range(steps):
        for number in range(micro):
            loss = model(*batch(data, step * micro + number, rows))
            (loss / micro).backward()
            losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    return losses, model.state_dict()


def batch(data, number, rows=4):
    chosen = [data[(number * rows + row) % len(data)] for row in range(rows)]
    return tuple(torch.stack(each) for each in zip(*chosen))


def train(engine, data, steps):
    losses = []
    for number in range(2 * steps):
        loss = engine(*batch(data, number))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(each, other[name]) for name, each in one.items())


NVME = {"device": "nvme", "nvme_path": "PLACE"}
PLACEMENTS = {
    "stage 0": {}, "stage 1": {"stage": 1}, "stage 2": {"stage": 2},
    "stage 2, cpu": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True}},
    "stage 2, older words": {"stage": 2, "cpu_offload": True},
    "stage 3": {"stage": 3},
    "stage 3, cpu": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}},
    "stage 3, nvme": {"stage": 3, "offload_optimizer": NVME, "offload_param": NVME},
    "stage 3, states on nvme": {"stage": 3, "offload_optimizer": NVME, "offload_param": {"device": "cpu"}},
    "stage 3, nothing stays": {"stage": 3, "offload_param": NVME, "stage3_param_persistence_threshold": 0}}


@pytest.mark.parametrize("name", PLACEMENTS)
def test_each_placement_has_plain_torchs_bits(name, model, data, configuration, tmp_path):
    zero = json.loads(json.dumps(PLACEMENTS[name]).replace("PLACE", str(tmp_path / "nvme")))
    engine, optimizer, loader, scheduler = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=configuration(zero_optimization=zero))
    losses, weights = plain(data, 3)
    assert train(engine, data, 3) == losses
    assert (loader, scheduler) == (None, None) and isinstance(engine, deepspeed.DeepSpeedEngine)
    assert optimizer is engine.optimizer and isinstance(optimizer, deepspeed.DeepSpeedOptimizer)
    assert engine.zero_optimization_stage() == zero.get("stage", 0)
    states = zero.get("offload_optimizer", {"device": "cpu"} if "cpu_offload" in zero else {}).get("device")
    assert engine.zero_use_cpu_optimizer() == (states is not None) and engine.zero_cpu_offload() == (states == "cpu")
    if "nvme" in name:
        assert os.listdir(tmp_path / "nvme") == [], "files of one run have no names"
    assert equal({name: each.clone() for name, each in engine.module_state_dict().items()}, weights)


@pytest.mark.parametrize("stage, offload, there", [(2, {}, "all"), (3, {}, "small"), (3, {"device": "cpu"}, "small")])
def test_small_parameters_are_readable_between_steps_and_below_stage_3_all_are(stage, offload, there, data, configuration):
    torch.manual_seed(0)
    model = Model(width=400)  # 160,000 elements
    engine, *_ = deepspeed.initialize(model=model, config=configuration(zero_optimization={
        "stage": stage, "offload_param": offload or {"device": "none"}}))
    Status = deepspeed.zero.ZeroParamStatus
    assert model.scale.ds_status is Status.AVAILABLE and model.scale.item() == 1.0
    weight = model.blocks[0].weight
    assert weight.ds_status is (Status.AVAILABLE if there == "all" else Status.NOT_AVAILABLE)
    assert (weight.ds_numel, weight.ds_shape) == (160_000, (400, 400)) and deepspeed.runtime.zero.utils.is_zero_param(weight)
    assert engine.device.type == "cpu"


def test_keys_of_stage_3_have_shorter_names_too(model, configuration):
    engine, *_ = deepspeed.initialize(model=model, config=configuration(zero_optimization={
        "stage": 3, "param_persistence_threshold": 0, "gather_16bit_weights_on_model_save": True, "max_live_parameters": 0}))
    assert engine.zero_gather_16bit_weights_on_model_save()
    assert model.blocks[0].weight.ds_status is deepspeed.zero.ZeroParamStatus.NOT_AVAILABLE


def test_the_configuration_comes_by_each_of_its_ways(model, configuration, written):
    parser = deepspeed.add_config_arguments(ArgumentParser())
    given = configuration()
    in_base64 = base64.urlsafe_b64encode(json.dumps(given).encode()).decode()
    for ways in ({"config": given}, {"config_params": given}, {"config": written(given)}, {"config": in_base64},
                 {"args": parser.parse_args(["--deepspeed", "--deepspeed_config", written(given)])}):
        engine, *_ = deepspeed.initialize(model=model, **ways)
        assert (engine.train_batch_size(), engine.get_batch_info()) == (8, (8, 4, 2))
        assert engine.config == given
        engine.destroy()
    with pytest.raises(penstock.UsageError, match="needs a configuration"):
        deepspeed.initialize(Namespace(deepspeed=True), model)
    with pytest.raises(penstock.UsageError, match="nothing.json: no such file"):
        deepspeed.initialize(model=model, config="nothing.json")
    with pytest.raises(penstock.UsageError, match="a torch.nn.Module, not NoneType"):
        deepspeed.initialize(config=given)


def test_what_nobody_fills_in_is_asked_for(model, configuration):
    left = configuration(optimizer={"type": "AdamW", "params": {"lr": "auto"}})
    with pytest.raises(penstock.UsageError, match="nobody knows one for optimizer.params.lr"):
        deepspeed.initialize(model=model, config=left)


def test_null_and_a_warm_up_of_nothing_are_taken_as_deepspeed_takes_them(model, configuration):
    """Accelerate writes the one, older transformers the other."""
    engine, _, _, scheduler = deepspeed.initialize(model=model, config=configuration(
        scheduler={"type": "WarmupLR", "params": {"warmup_num_steps": 0, "warmup_max_lr": 0.1, "warmup_min_lr": 0.0}},
        zero_optimization={"stage": 2, "offload_optimizer": {"device": "none", "nvme_path": None}}, bf16=None))
    assert scheduler is engine.lr_scheduler and isinstance(scheduler, deepspeed.runtime.lr_schedules.WarmupLR.__bases__[0])


def test_the_loader_shuffles_and_goes_on_from_a_checkpoint(model, data, configuration, tmp_path):
    given = {"model": model, "training_data": data, "config": configuration()}
    engine, _, loader, _ = deepspeed.initialize(**given)
    rows = [tuple(row.tolist() for row in x) for x, _ in loader]
    assert rows != [tuple(row.tolist() for row in batch(data, number)[0]) for number in range(len(rows))]
    losses = []
    for number, (x, y) in enumerate(loader):
        loss = engine(x, y)
        engine.backward(loss)
        engine.step()
        if number >= 4:
            losses.append(loss.item())
        if number == 3:
            engine.save_checkpoint(tmp_path)
    engine.load_checkpoint(tmp_path)
    again = []
    for x, y in loader:
        loss = engine(x, y)
        engine.backward(loss)
        engine.step()
        again.append(loss.item())
    assert again == losses and len(losses) == 2


@pytest.mark.parametrize("make", [
    lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.0), lambda p: deepspeed.ops.adam.DeepSpeedCPUAdam(p, lr=1e-2),
    lambda p: deepspeed.ops.adam.FusedAdam(p, lr=1e-2)], ids=["torch", "DeepSpeedCPUAdam", "FusedAdam"])
@pytest.mark.parametrize("as_function", [False, True])
def test_an_optimizer_of_the_programs(make, as_function, model, data, configuration):
    given = configuration()
    del given["optimizer"]
    optimizer = make if as_function else make(list(model.parameters()))
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=given)
    losses, weights = plain(data, 2)
    assert train(engine, data, 2) == losses and equal(dict(engine.module.state_dict()), weights)


def test_without_an_optimizer_the_model_stays_as_it_is_and_is_called(model, data, configuration):
    given = configuration(bf16={"enabled": True})
    del given["optimizer"]
    engine, optimizer, _, _ = deepspeed.initialize(model=model, config=given)
    assert isinstance(engine, deepspeed.DeepSpeedEngine) and optimizer is None
    assert engine.eval()(*(each.bfloat16() for each in batch(data, 0))).dtype == torch.bfloat16
    assert type(model.scale) is torch.nn.Parameter and engine.zero_optimization_stage() == 0
    for call in (engine.step, engine.backward, engine.save_checkpoint):
        with pytest.raises(penstock.UsageError, match="has no optimizer: give it one"):
            call()


def test_a_model_is_trained_twice(model, data, configuration):
    """Hyperparameter search, and Trainer.train() again."""
    losses, _ = plain(data, 2)
    first, *_ = deepspeed.initialize(model=model, config=configuration())
    assert train(first, data, 2) == losses
    ended = {name: each.clone() for name, each in first.module_state_dict().items()}
    second, *_ = deepspeed.initialize(model=model, config=configuration(zero_optimization={"stage": 3}))
    assert equal({name: each.clone() for name, each in second.module_state_dict().items()}, ended)
    train(second, data, 1)
    second.destroy()
    second.destroy()
    assert all(type(each) is torch.nn.Parameter for each in model.parameters()) and model(*batch(data, 0)).item() > 0


def test_several_processes_that_nobody_has_told_of_each_other_are_refused_by_name(model, configuration, monkeypatch):
    torch.distributed.destroy_process_group() if torch.distributed.is_initialized() else None
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    with pytest.raises(penstock.UsageError, match="OMPI_COMM_WORLD_SIZE is 4.*by `deepspeed`"):
        deepspeed.initialize(model=model, config=configuration())
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(penstock.UsageError, match="RANK, MASTER_ADDR, MASTER_PORT are not set"):
        deepspeed.initialize(model=model, config=configuration())
    with pytest.raises(penstock.UsageError, match="dist_init_required=False"):
        deepspeed.initialize(model=model, config=configuration(), dist_init_required=False)
    with pytest.raises(penstock.UsageError, match="mpu"):
        deepspeed.initialize(model=model, config=configuration(), mpu=object())


def test_run_swap_directory_is_a_store_that_is_kept(data, configuration, tmp_path):
    given = configuration(run={"swap_directory": str(tmp_path / "kept")})
    losses, _ = plain(data, 3)
    for life in range(2):
        torch.manual_seed(0)
        engine, *_ = deepspeed.initialize(model=Model(), config=given)
        assert engine.global_steps == 2 * life
        for number in range(2 * engine.global_steps, 4 + 2 * life):
            loss = engine(*batch(data, number))
            engine.backward(loss)
            engine.step()
            assert loss.item() == losses[number]
        engine.close()


def test_modules_that_are_marked_are_gathered_as_a_whole(data, configuration):
    class Experts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(2))

        def forward(self, x):
            return sum(each(x) for each in self.inner)

    class Mixed(Model):
        def __init__(self):
            super().__init__(depth=1)
            self.experts = Experts()

        def forward(self, x, y):
            return super().forward(self.experts(x), y)
    model = Mixed()
    assert deepspeed.utils.set_z3_leaf_modules(model, [Experts]) == [model.experts]
    assert deepspeed.utils.get_z3_leaf_modules(model) == [model.experts]
    engine, *_ = deepspeed.initialize(model=model, config=configuration(zero_optimization={
        "stage": 3, "stage3_param_persistence_threshold": 0}))
    assert "experts" in {unit.name for unit in engine.core.units}
    train(engine, data, 1)
    with pytest.raises(penstock.UsageError, match="no module of"):
        deepspeed.utils.set_z3_leaf_modules(model, ["Nothing"])


def test_what_decides_numbers_is_deepspeeds_where_nobody_says_it(data, configuration):
    """No clipping; Lion's second beta."""
    torch.manual_seed(0)
    engine, *_ = deepspeed.initialize(model=Model(), config=configuration())
    large = [(100 * x, 100 * y) for x, y in data]
    losses, weights = plain(large, 2)
    assert train(engine, large, 2) == losses and engine.gradient_clipping() == 0.0
    assert equal({name: each.clone() for name, each in engine.module_state_dict().items()}, weights)
    engine.destroy()
    _, lion, *_ = deepspeed.initialize(model=Model(), config=configuration(optimizer={"type": "Lion", "params": {"lr": 1e-4}}))
    assert lion.param_groups[0]["betas"] == (0.9, 0.999)


@pytest.mark.parametrize("sections, text", [
    ({"gradient_clipping": "auto"}, "nobody has filled in gradient_clipping"), ({"bf16": {"enabled": "auto"}}, "bf16.enabled"),
    ({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}}, "add \"nvme_path\""),
    ({"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": [1]}}, "a number of elements from 0"),
    ({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/proc/nope"}}}, "/proc/nope")])
def test_what_a_configuration_lacks_or_cannot_have_is_named(sections, text, model, configuration):
    with pytest.raises(penstock.PenstockError, match=text):
        deepspeed.initialize(model=model, config=configuration(**sections))


def test_what_is_no_configuration_is_named(model, tmp_path):
    (tmp_path / "list.json").write_text("[1]")
    for given, text in ((tmp_path, "Is a directory"), (tmp_path / "list.json", "an object of JSON"), ([1], "not list"), (5, "not int")):
        with pytest.raises(penstock.UsageError, match=text):
            deepspeed.initialize(model=model, config=given)
        with pytest.raises(penstock.UsageError, match=text):
            deepspeed.zero.Init(config_dict_or_path=given)


def test_a_module_is_not_taken_from_another_ones_engine(configuration, data):
    shared = torch.nn.Linear(4, 4)
    first, *_ = deepspeed.initialize(model=torch.nn.Sequential(shared, torch.nn.Linear(4, 1)), config=configuration())
    with pytest.raises(penstock.UsageError, match="parameter '0.weight' is of another module's engine.*destroy"):
        deepspeed.initialize(model=torch.nn.Sequential(shared, torch.nn.Linear(4, 2)), config=configuration())
    reference = configuration()
    del reference["optimizer"]
    idle, *_ = deepspeed.initialize(model=first.module, config=reference)
    assert torch.equal(idle(torch.ones(2, 4)), first(torch.ones(2, 4)))
    for _ in range(2):
        first.backward(first(torch.ones(2, 4)).mean())
        first.step()
    assert first.global_steps == 1


def test_an_engine_without_an_optimizer_answers_and_has_its_loader(data, configuration):
    given = configuration(fp16={"enabled": True, "auto_cast": True}, zero_optimization={"stage": 3})
    del given["optimizer"]
    engine, _, loader, _ = deepspeed.initialize(model=Model(), training_data=data, config=given)
    assert len(list(loader)) == 6 and engine(*batch(data, 0)).dtype == torch.float16
    assert (engine.get_lr(), engine.gradient_clipping(), engine.get_global_grad_norm(), engine.loss_scale) == ([], 0.0, None, 1.0)
    assert engine.module.scale.ds_status is deepspeed.zero.ZeroParamStatus.AVAILABLE and engine.skipped_steps == 0
    assert not engine.was_step_applied() and engine.is_gradient_accumulation_boundary()


def shown(tmp_path, capsys, config, *more):
    (tmp_path / "ds.json").write_text(json.dumps(config))
    code = main(["config", "show", str(tmp_path / "ds.json"), "--as", "deepspeed", *more])
    return code, capsys.readouterr().out


def test_what_is_shown_of_a_configuration_is_what_the_engine_has(tmp_path, capsys, model):
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "zero_optimization": {
        "stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": str(tmp_path / "nvme")}}}
    code, told = shown(tmp_path, capsys, config)
    assert code == 0 and not (tmp_path / "nvme").exists()
    assert "masters and moments (offload_optimizer): on NVMe" in told and f"directory: {tmp_path / 'nvme'}" in told
    assert "at most 100,000 elements stay in memory" in told and "gradient_clipping = 0.0" in told
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()), config=config)
    assert engine.settings.clip == 0.0 and engine.core.figures().nvme_bytes > 0
    auto = {**config, "gradient_clipping": "auto"}
    code, told = shown(tmp_path, capsys, auto, "--known", '{"gradient_clipping": 2.5}')
    assert code == 0 and "gradient_clipping = 2.5" in told
    assert shown(tmp_path, capsys, {**config, "gradient_cliping": 1})[0] == 2
    code, told = shown(tmp_path, capsys, {**auto, "bf16": {"enabled": "auto"}, "gradient_cliping": 1})
    assert code == 2 and "gradient_clipping =" not in told and "nearest known one is 'gradient_clipping'" in told
    assert "(--known, or transformers and Accelerate, which fill it in):\n  gradient_clipping\n  bf16.enabled" in told
