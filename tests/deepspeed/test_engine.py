"""What a DeepSpeedEngine answers, and its habits."""
import math

import deepspeed
import pytest
import torch
from conftest import Model
from test_initialize import batch, equal, train

import penstock
from penstock.deepspeed.configuration.echoed import ECHOED


@pytest.fixture
def open_engine(model, configuration):
    def made(**sections):
        return deepspeed.initialize(model=model, config=configuration(**sections))[0]
    return made


def test_backward_gives_the_micro_batchs_share_of_the_loss(open_engine, data):
    engine = open_engine()
    loss = engine(*batch(data, 0))
    assert engine.backward(loss).item() == loss.item() / 2
    assert engine.backward(engine(*batch(data, 1)), scale_wrt_gas=False).item() == engine(*batch(data, 1)).item()


def test_a_step_ends_where_the_program_says(open_engine, data):
    """As Accelerate does: step() at boundaries alone."""
    counted, told = open_engine(), None
    losses = train(counted, data, 2)
    weights = {name: each.clone() for name, each in counted.module_state_dict().items()}
    counted.destroy()
    torch.manual_seed(0)
    counted.module.load_state_dict(Model().state_dict())
    told, found = open_engine(), []
    for number in range(4):
        told.set_gradient_accumulation_boundary(is_boundary=number % 2 == 1)
        loss = told(*batch(data, number))
        told.backward(loss)
        found.append(loss.item())
        if number % 2 == 1:
            told.step()
    assert found == losses and equal({name: each.clone() for name, each in told.module_state_dict().items()}, weights)


def test_steps_that_overflow_count(open_engine, data):
    engine = open_engine(fp16={"enabled": True, "initial_scale_power": 4, "hysteresis": 1})
    x, y = (each.half() for each in batch(data, 0))
    for factor in (1.0, math.inf):
        for _ in range(2):
            engine.backward(engine(x, y) * factor)
            engine.step()
    assert (engine.global_steps, engine.skipped_steps, engine.was_step_applied()) == (2, 1, False)
    assert engine.optimizer.overflow and engine.optimizer.cur_scale == engine.loss_scale == 8.0
    assert engine.get_global_grad_norm() is None or math.isfinite(engine.get_global_grad_norm())
    assert engine.fp16_enabled() and not engine.bfloat16_enabled() and engine.dynamic_loss_scale()


def test_no_sync_goes_with_the_lower_stages(open_engine, data):
    engine = open_engine(zero_optimization={"stage": 1})
    with engine.no_sync():
        engine.backward(engine(*batch(data, 0)))
        with pytest.raises(AssertionError, match="within engine.no_sync"):
            engine.step()
    engine.destroy()
    with pytest.raises(AssertionError, match="stages 0 and 1"), open_engine(zero_optimization={"stage": 2}).no_sync():
        pass


def test_a_whole_step_by_train_batch(model, data, configuration):
    engine, _, loader, _ = deepspeed.initialize(model=model, training_data=data, config=configuration())
    losses = [engine.train_batch(iter(loader)).item() for _ in range(2)]
    assert engine.global_steps == 2 and all(math.isfinite(each) for each in losses)
    assert math.isfinite(engine.eval_batch(iter([batch(data, 0)])).item())
    assert math.isfinite(engine.train_batch().item()) and engine.global_samples == 24


def test_batches_may_become_larger(open_engine, data):
    engine = open_engine()
    engine.set_train_batch_size(16)
    assert (engine.gradient_accumulation_steps(), engine.train_batch_size()) == (4, 16)
    with pytest.raises(penstock.UsageError, match="no multiple of the micro-batch, 4 rows"):
        engine.set_train_batch_size(18)
    engine.backward(engine(*batch(data, 0)))
    engine.step()
    with pytest.raises(penstock.UsageError, match="within a step"):
        engine.set_train_batch_size(8)


def test_what_an_engine_has_not_is_its_modules(open_engine):
    engine = open_engine(gradient_clipping=0.5)
    engine.module.own = "the model's"
    assert engine.own == "the model's" and engine.blocks is engine.module.blocks
    with pytest.raises(AttributeError):
        engine.nothing
    assert (engine.gradient_clipping(), engine.optimizer_name(), engine.scheduler_name()) == (0.5, "AdamW", None)
    assert (engine.local_rank, engine.global_rank, engine.world_size, engine.dp_world_size) == (0, 0, 1, 1)
    assert engine.get_lr() == [0.01] and engine.get_mom() == [(0.9, 0.999)] and not engine.is_compiled
    engine.compile()
    engine.offload_states()
    engine.reload_states()


def test_a_checkpoint_by_any_tag_comes_back(open_engine, data, tmp_path):
    engine = open_engine()
    assert engine.load_checkpoint(tmp_path) == (None, None)
    train(engine, data, 1)
    for tag in (0.25, 7, "name", None):
        assert engine.save_checkpoint(tmp_path, tag, client_state={"step": 1}) is True
    weights = {name: each.clone() for name, each in engine.module_state_dict().items()}
    train(engine, data, 1)
    path, state = engine.load_checkpoint(tmp_path, 0.25)
    assert path == str(tmp_path / "0.25") and state["step"] == 1
    assert equal({name: each.clone() for name, each in engine.module_state_dict().items()}, weights)
    assert engine.load_checkpoint(tmp_path)[0] == str(tmp_path / "global_step1")
    engine.save_checkpoint(tmp_path, "name", client_state={"step": 2}, save_latest=False)
    assert engine.load_checkpoint(tmp_path, "name")[1] == {"step": 2}
    assert engine.load_checkpoint(tmp_path)[0] == str(tmp_path / "global_step1")
    with pytest.raises(penstock.StorageError, match="no checkpoint is there"):
        engine.load_checkpoint(tmp_path, "other")


def test_weights_are_saved_in_one_file(open_engine, data, tmp_path):
    engine = open_engine(zero_optimization={"stage": 3, "stage3_gather_16bit_weights_on_model_save": True})
    train(engine, data, 1)
    engine.module.blocks[0].requires_grad_(False)
    expected = {name: each.clone() for name, each in engine.module_state_dict().items()}
    assert engine.zero_gather_16bit_weights_on_model_save()
    assert engine.save_16bit_model(tmp_path)
    assert equal(torch.load(tmp_path / "pytorch_model.bin", weights_only=True), expected)
    trained = engine._zero3_consolidated_16bit_state_dict(exclude_frozen_parameters=True)
    assert set(trained) == {name for name in expected if not name.startswith("blocks.0")}
    clones = deepspeed.checkpoint.utils.clone_tensors_for_torch_save({"a": [expected["scale"]] * 2})
    assert clones["a"][0] is clones["a"][1] and clones["a"][0] is not expected["scale"]


def test_a_backward_of_torchs_own_is_refused_where_it_would_have_other_numbers(model, data, configuration):
    engine, *_ = deepspeed.initialize(model=model, config=configuration())
    for number in range(2):
        engine(*batch(data, number)).backward()
        if number == 0:
            engine.set_gradient_accumulation_boundary(None)
    with pytest.raises(penstock.UsageError, match="does not divide the loss by the 2 micro-batches"):
        engine.step()
    engine.zero_grad()
    losses = []
    for number in range(4):
        loss = engine(*batch(data, number))
        engine.scale(loss).backward()
        engine.step()
        losses.append(loss.item())
    engine.destroy()
    torch.manual_seed(0)
    other, *_ = deepspeed.initialize(model=Model(), config=configuration())
    assert train(other, data, 2) == losses
    one, *_ = deepspeed.initialize(model=Model(), config=configuration(gradient_accumulation_steps=1))
    one(*batch(data, 0)).backward()  # which divides by nothing
    one.step()
    half, *_ = deepspeed.initialize(model=Model(), config=configuration(
        gradient_accumulation_steps=1, fp16={"enabled": True, "loss_scale": 1024}))
    half(*(each.half() for each in batch(data, 0))).backward()
    with pytest.raises(penstock.UsageError, match="divided by the loss scale, 1024"):
        half.step()


def test_train_batch_goes_through_whole_epochs(configuration):
    seen = []

    class Seeing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

        def forward(self, x):
            seen.extend(x[:, 0].int().tolist())
            return self.linear(x).square().mean()
    rows = [(torch.full((4,), float(row)),) for row in range(16)]
    engine, *_ = deepspeed.initialize(model=Seeing(), training_data=rows, config=configuration())
    for _ in range(4):
        engine.train_batch()
    assert sorted(seen[:16]) == sorted(seen[16:]) == list(range(16)) and seen[:16] != seen[16:]
    engine.destroy()
    empty, *_ = deepspeed.initialize(model=Seeing(), config=configuration())
    with pytest.raises(penstock.UsageError, match="without batches"):
        empty.train_batch()


def test_a_checkpoint_of_another_optimizer_leaves_the_engine_as_it_is(data, configuration, tmp_path):
    first, *_ = deepspeed.initialize(model=Model(), config=configuration())
    train(first, data, 1)
    first.save_checkpoint(tmp_path)
    torch.manual_seed(0)
    other, *_ = deepspeed.initialize(model=Model(), config=configuration(optimizer={"type": "SGD", "params": {"lr": 0.1}}))
    train(other, data, 1)
    with pytest.raises(penstock.UsageError, match="made with another model, codec or kind of optimizer"):
        other.load_checkpoint(tmp_path)
    train(other, data, 1)
    assert other.global_steps == 2


def test_weights_by_deepspeeds_own_words(open_engine, data, tmp_path):
    engine = open_engine()
    assert engine.save_16bit_model(save_dir=tmp_path) and engine.save_16bit_model(tmp_path, save_filename="w.safetensors")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["pytorch_model.bin", "w.safetensors"]
    into = {}
    assert engine.module_state_dict(destination=into, prefix="model.") is into and "model.scale" in into


def test_a_schedule_made_in_python_takes_the_optimizers_rate(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    schedule = deepspeed.runtime.lr_schedules.WarmupLR(optimizer, warmup_num_steps=2)
    for _ in range(5):
        optimizer.step()
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == 1e-5
    with pytest.raises(TypeError, match="takes total_num_steps"):
        deepspeed.runtime.lr_schedules.WarmupDecayLR(optimizer)


def test_monitors_of_the_json_have_deepspeeds_events_and_the_programs(open_engine, data, tmp_path):
    engine = open_engine(wall_clock_breakdown=True, csv_monitor={
        "enabled": True, "output_path": str(tmp_path), "job_name": "a job"})
    assert engine.get_wall_clock_timers() == {}
    losses = train(engine, data, 2)
    engine.monitor.write_events([("Valid/Samples/my loss", 0.5, engine.global_samples)])
    told = {each.stem: each.read_text().splitlines() for each in (tmp_path / "a job").iterdir()}
    assert told["Train_Samples_lr"] == ["step,lr", "8,0.01", "16,0.01"]
    assert told["Train_Samples_train_loss"][1:] == [f"{8 * step},{sum(losses[2 * step:][:2]) / 2}" for step in (0, 1)]
    assert told["Valid_Samples_my_loss"] == ["step,my loss", "16,0.5"]
    forward = float(told["Train_Samples_elapsed_time_ms_forward"][2].split(",")[1])
    assert forward == engine.get_wall_clock_timers()["fwd"] > 0
    assert list(engine.get_wall_clock_timers()) == ["fwd", "bwd", "step"] and engine.monitor.enabled


def test_a_program_without_an_engine_writes_events_of_its_own(written, tmp_path):
    config = deepspeed.runtime.config.DeepSpeedConfig(written({"train_batch_size": 1, "csv_monitor": {
        "enabled": True, "output_path": str(tmp_path), "job_name": "a job"}}))
    monitor = deepspeed.monitor.monitor.MonitorMaster(config.monitor_config)
    monitor.write_events([("Test/Samples/accuracy", 0.25, 7)])
    assert (tmp_path / "a job/Test_Samples_accuracy.csv").read_text() == "step,accuracy\n7,0.25\n"


def test_without_monitors_there_is_one_that_is_not_enabled(open_engine):
    engine = open_engine(tensorboard={"enabled": False}, wandb={"enabled": False, "project": "p"})
    assert not engine.monitor.enabled
    engine.monitor.write_events([("a", 1.0, 1)])


def test_what_is_only_asked_is_what_the_configuration_says(model):
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {
        "stage": 2, "reduce_bucket_size": 12345, "allgather_bucket_size": "auto", "contiguous_gradients": False}}
    engine, *_ = deepspeed.initialize(model=model, config=config)  # without an optimizer, as of a reference model
    assert engine.zero_reduce_bucket_size() == 12345 and engine.zero_contiguous_gradients() is False
    assert engine.zero_allgather_bucket_size() == 500_000_000 and engine.flops_profiler_module_depth() == -1
    assert all(getattr(engine, call)() == unsaid for call, (key, unsaid) in ECHOED.items()
               if key.split(".")[-1] not in config["zero_optimization"])
