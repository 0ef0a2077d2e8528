"""Monitors have DeepSpeed's events under its names and on its axes, and ours; what they have outlives the process."""
from __future__ import annotations

import csv
import logging
import re
import signal
import sys
import types

import pytest
import torch

import forked
import penstock
import small_models as small
from cores import NATIVE, OPTIONS, test_core
from penstock.monitors import events
from penstock.run.step_record import Memory, StepRecord
from penstock.run.stopwatch import Part, Stopwatch

# What DeepSpeed 0.19.8 writes to csv_monitor of two steps of two micro-batches of four rows with wall_clock_breakdown: by
# file the header and the samples of its lines. Seen on a CPU, where it has no fp16: the loss scale is of its source. The
# loss is 0.17.6's, of its source, too; later ones have none.
DEEPSPEEDS = {
    "Train_Samples_train_loss": ("train_loss", [0, 8]),
    "Train_Samples_lr": ("lr", [8, 16]),
    "Train_Samples_loss_scale": ("loss_scale", [8, 16]),
    "Train_Samples_elapsed_time_ms_forward": ("elapsed_time_ms_forward", [8, 16]),
    "Train_Samples_elapsed_time_ms_backward": ("elapsed_time_ms_backward", [8, 16]),
    "Train_Samples_elapsed_time_ms_backward_inner": ("elapsed_time_ms_backward_inner", [8, 16]),
    "Train_Samples_elapsed_time_ms_backward_allreduce": ("elapsed_time_ms_backward_allreduce", [8, 16]),
    "Train_Samples_elapsed_time_ms_step": ("elapsed_time_ms_step", [8, 16])}
ALWAYS = {"Train_Samples_train_loss", "Train_Samples_lr"}
OURS = {"Penstock_Samples_" + name for name in (
    "wait_seconds", "read_bytes", "write_bytes", "host_bytes", "nvme_bytes", "device_bytes", "torch_device_bytes")}


def opened(core=None, model=None, **sections):
    config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "gradient_clipping": 0.0,
              **sections}
    return penstock.initialize(model or small.Stack(), core=core or test_core(), config=config)[0]


def train(engine, steps, first=0):
    """The losses of its micro-batches."""
    losses = []
    for micro in range(2 * first, 2 * (first + steps)):
        losses.append(small.loss(engine, small.ids(micro)))
        engine.backward(losses[-1])
        engine.step()
    return [each.item() for each in losses]


def csv_monitor(folder):
    return {"enabled": True, "output_path": str(folder), "job_name": "a job"}


def lines(folder, name):
    """The header's second word, samples, values."""
    with open(folder / "a job" / f"{name}.csv", newline="") as file:
        (first, head), *rows = csv.reader(file)
    assert first == "step"
    return head, [int(row[0]) for row in rows], [float(row[1]) for row in rows]


def files(folder):
    return {each.stem for each in (folder / "a job").iterdir()}


def test_csv_files_are_deepspeeds_by_name_header_and_axis(tmp_path):
    engine = opened(csv_monitor=csv_monitor(tmp_path), fp16={"enabled": True, "initial_scale_power": 4},
                    wall_clock_breakdown=True)
    train(engine, 2)
    for name, (head, samples) in DEEPSPEEDS.items():
        assert lines(tmp_path, name)[:2] == (head, samples)
    assert files(tmp_path) - DEEPSPEEDS.keys() == OURS | {
        f"Penstock_Samples_wait_time_ms_{part}" for part in ("forward", "backward", "step")}
    assert lines(tmp_path, "Train_Samples_loss_scale")[2] == [16.0, 16.0]
    raw = (tmp_path / "a job/Train_Samples_lr.csv").read_bytes()
    assert raw == b"step,lr\r\n8,0.001\r\n16,0.001\r\n"


def test_values_are_the_steps(tmp_path):
    engine = opened(csv_monitor=csv_monitor(tmp_path), scheduler={
        "type": "WarmupLR", "params": {"warmup_num_steps": 4, "warmup_max_lr": 0.01, "warmup_min_lr": 0.0,
                                       "warmup_type": "linear"}})
    rates, losses = [], []
    for step in range(3):
        losses += train(engine, 1, step)
        rates.append(engine.get_lr()[0])  # of the next step, as DeepSpeed's
        assert engine.record.rate == ([0.0] + rates)[step]
    assert lines(tmp_path, "Train_Samples_lr")[2] == rates and rates[2] > rates[1]
    means = [sum(losses[at:at + 2]) / 2 for at in (0, 2, 4)]
    assert lines(tmp_path, "Train_Samples_train_loss")[2] == means
    assert files(tmp_path) == ALWAYS | OURS


def test_a_training_that_goes_on_goes_on_with_its_files(tmp_path):
    for first in (0, 2):
        engine = opened(test_core(folder=tmp_path / "store"), csv_monitor=csv_monitor(tmp_path))
        train(engine, 2, first)
        engine.close()
    assert lines(tmp_path, "Train_Samples_lr")[1] == [8, 16, 24, 32]
    assert lines(tmp_path, "Train_Samples_train_loss")[1] == [0, 8, 16, 24]


def test_a_process_that_is_killed_loses_no_line(tmp_path):
    script = ("import sys; sys.path[:0] = sys.argv[2:]; import os, signal, test_monitors as t; "
              "t.train(t.opened(csv_monitor=t.csv_monitor(sys.argv[1])), 3); os.kill(os.getpid(), signal.SIGKILL)")
    done = forked.run([sys.executable, "-c", script, str(tmp_path), *sys.path[:2]], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert lines(tmp_path, "Train_Samples_lr")[1] == [8, 16, 24]


def test_a_program_that_steps_the_optimizer_itself_has_events_without_a_loss(tmp_path):
    engine = opened(csv_monitor=csv_monitor(tmp_path))
    for micro in range(2):
        small.loss(engine, small.ids(micro)).backward()
        engine.optimizer.step()
        engine.optimizer.zero_grad()
    assert lines(tmp_path, "Train_Samples_lr")[1] == [8, 16]
    assert "Train_Samples_train_loss" not in files(tmp_path)


class Writer:
    """In the place of torch's SummaryWriter."""

    def __init__(self, log_dir):
        self.log_dir, self.kept, self.flushed, self.closed = log_dir, [], 0, False
        Writer.last = self

    def add_scalar(self, name, value, at):
        self.kept.append((name, value, at))

    def flush(self):
        self.flushed = len(self.kept)

    def close(self):
        self.closed = True


def test_tensorboard_is_flushed_with_each_step_and_closed_with_the_engine(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=Writer))
    engine = opened(tensorboard={"enabled": True, "output_path": str(tmp_path)})
    for step in (1, 2):
        train(engine, 1, step)
        assert Writer.last.flushed == len(Writer.last.kept) > 0
    assert Writer.last.log_dir == str(tmp_path / "DeepSpeedJobName") and not Writer.last.closed
    assert [each for each in Writer.last.kept if each[0].endswith("/lr")] == [
        ("Train/Samples/lr", 0.001, 8), ("Train/Samples/lr", 0.001, 16)]
    engine.close()
    assert Writer.last.closed


def test_tensorboards_own_files_are_read_back(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    engine = opened(tensorboard={"enabled": True, "output_path": str(tmp_path), "job_name": "a job"})
    train(engine, 2)
    read = reader.EventAccumulator(str(tmp_path / "a job")).Reload()  # the engine is not closed
    assert [each.step for each in read.Scalars("Train/Samples/lr")] == [8, 16]
    assert [each.step for each in read.Scalars("Train/Samples/train_loss")] == [0, 8]
    assert "Penstock/Samples/wait_seconds" in read.Tags()["scalars"]


@pytest.fixture
def wandb(monkeypatch):
    """A stand-in: what was called."""
    calls = []
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(
        init=lambda **named: calls.append(("init", named)),
        log=lambda values, step: calls.append((step, values))))
    return calls


def test_wandb_has_a_run_of_the_named_project_and_each_step_s_values_together(wandb):
    engine = opened(wandb={"enabled": True, "project": "p", "group": "g", "team": "t"})
    assert wandb == [("init", {"project": "p", "group": "g", "entity": "t"})]
    train(engine, 2)
    assert [each[0] for each in wandb[1:]] == [0, 8, 8, 16]  # never goes back
    assert list(wandb[1][1]) == ["Train/Samples/train_loss"] and wandb[2][1]["Train/Samples/lr"] == 0.001
    assert len(wandb[2][1]) == 1 + len(OURS)


@pytest.mark.parametrize("section, missing", [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb")])
def test_a_package_that_is_missing_is_said_before_anything_is_made(section, missing, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(penstock.UsageError, match=rf"{section}: .*pip install {section}.*leave the section out"):
        penstock.initialize(small.Stack(), store=tmp_path / "store", config={section: {"enabled": True}})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_runs_is_no_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", types.ModuleType("wandb"))
    with pytest.raises(penstock.UsageError, match="a folder of that name: pip install wandb"):
        opened(wandb={"enabled": True})


def test_a_folder_that_cannot_be_is_said(tmp_path):
    (tmp_path / "a job").write_text("a file")
    with pytest.raises(penstock.UsageError, match="csv_monitor: .*a job"):
        opened(csv_monitor=csv_monitor(tmp_path))


def test_unknown_keys_and_other_types_are_refused_by_name():
    for section, told in (({"csv_monitor": {"output_dir": "x"}}, "'csv_monitor.output_dir' is unknown"),
                          ({"wandb": {"enabled": "yes"}}, "'wandb.enabled' is \"yes\""),
                          ({"wall_clock_breakdown": 3}, "'wall_clock_breakdown' is 3")):
        with pytest.raises(penstock.UsageError, match=told):
            opened(**section)


def test_a_monitor_that_fails_is_told_of_once_and_left_out(wandb, monkeypatch, caplog, tmp_path):
    engine = opened(wandb={"enabled": True}, csv_monitor=csv_monitor(tmp_path))

    def log(values, step):
        raise ConnectionError("the network is gone")
    monkeypatch.setattr(sys.modules["wandb"], "log", log)
    train(engine, 3)
    told = [each.getMessage() for each in caplog.records if "wandb" in each.getMessage()]
    assert told == ["wandb: no more events are written, because of this: the network is gone"]
    assert lines(tmp_path, "Train_Samples_lr")[1] == [8, 16, 24]


def test_of_several_processes_the_first_alone_writes(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, written in (("1", []), ("0", ["a job"])):
        monkeypatch.setenv("RANK", rank)
        penstock.initialize(small.Stack(), core=test_core(), ranks=False, config={
            "csv_monitor": csv_monitor(tmp_path)})[0].close()
        assert [each.name for each in tmp_path.iterdir()] == written


def told_parts(caplog):
    return [each.getMessage() for each in caplog.records if "forward" in each.getMessage()]


@pytest.mark.parametrize("by_itself", [False, True])
def test_the_breakdown_has_a_line_with_each_line_of_progress(by_itself, caplog):
    caplog.set_level(logging.INFO, "penstock")
    engine = opened(wall_clock_breakdown=True, steps_per_print=2, gradient_accumulation_steps=1)
    for micro in range(4):
        loss = small.loss(engine, small.ids(micro))
        loss.backward() if by_itself else engine.backward(loss)
        engine.step()
        times = engine.record.parts
        assert list(times) == ["forward", "backward", "step"] and all(each.seconds > 0 for each in times.values())
        assert sum(each.seconds for each in times.values()) <= engine.record.seconds
        assert sum(each.wait_seconds for each in times.values()) <= engine.record.wait_seconds + 1e-9
    assert [each.split("  ")[0] for each in told_parts(caplog)] == ["step 2", "step 4"]
    part = r"%s [\d.e-]+ s \([\d.e-]+ s waiting for NVMe\)"
    assert re.fullmatch("step 4  " + "  ".join(part % name for name in times), told_parts(caplog)[1])


def test_without_steps_per_print_the_breakdown_is_of_each_step_and_nothing_else_is_told(caplog):
    caplog.set_level(logging.INFO, "penstock")
    engine = opened(wall_clock_breakdown=True)
    caplog.clear()
    train(engine, 2)
    told = [each.getMessage() for each in caplog.records if each.name == "penstock"]
    assert told == told_parts(caplog) and [each.split("  ")[0] for each in told] == ["step 1", "step 2"]


def test_evaluations_are_no_part_of_a_step():
    engine = opened(wall_clock_breakdown=True)
    with torch.no_grad():
        small.loss(engine, small.ids(0))
    assert engine._watch.take()["forward"] == Part()


def test_a_part_within_itself_goes_on_and_one_that_raised_ends():
    watch = Stopwatch(types.SimpleNamespace(device=torch.device("cpu")))
    with watch.timing("backward"):
        watch.begin("backward")
    with pytest.raises(ValueError), watch.timing("step"):
        raise ValueError
    taken = watch.take()
    assert taken["backward"].seconds > 0 and taken["step"].seconds > 0 and taken["forward"] == Part()
    assert watch.take() == dict.fromkeys(taken, Part())


def test_a_record_has_what_the_step_took(tmp_path):
    engine = opened(test_core(folder=tmp_path / "store"))
    assert engine.record is None
    losses = train(engine, 2)
    record = engine.record
    assert (record.step, record.batch, record.samples, record.updated) == (2, 8, 16, True)
    assert record.loss == sum(losses[2:]) / 2 and record.rate == 0.001 and record.loss_scale is None
    assert record.seconds > 0 and record.read_bytes > 0 and record.parts == {}
    assert record.memory.host == engine.core.figures().host_bytes > 0 and record.memory.torch == 0
    if NATIVE:
        there = sum(each.stat().st_size for each in (tmp_path / "store").iterdir())
        assert 0 < record.memory.nvme <= there < record.memory.nvme + 8192  # beside its lock
        assert record.memory.host_uses["staging"] > 0 and record.write_bytes > 0
        assert bool(record.memory.device) == ("device" in OPTIONS)
    else:
        assert record.wait_seconds > 0
        assert record.wait_seconds < engine.core.figures().waited_ns / 1e9  # of this step alone


def test_events_have_memory_and_waits_of_the_record():
    told = dict(each[:2] for each in events.events_of(StepRecord(
        3, losses=(torch.tensor(2.5),), batch=4, samples=12, wait_seconds=0.5, memory=Memory(100, {}, 2000, 30, 4),
        parts={"forward": Part(0.25, 0.125), "backward": Part(0.5), "step": Part(1.0)}), 0.125))
    assert told["Train/Samples/elapsed_time_ms_forward"] == 250 and told["Penstock/Samples/wait_time_ms_forward"] == 125
    assert [told[f"Penstock/Samples/{name}"] for name in (
        "wait_seconds", "host_bytes", "nvme_bytes", "device_bytes", "torch_device_bytes")] == [0.5, 100, 2000, 30, 4]


@pytest.mark.afterwards
def test_a_trainers_logs_have_waits_and_memory_also_for_those_to_whom_it_reports(tmp_path):
    transformers = pytest.importorskip("transformers")
    import penstock.hugging_face

    class Reporter(transformers.TrainerCallback):
        seen: list = []

        def on_log(self, args, state, control, logs=None, **_):
            self.seen.append(dict(logs))
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (16, 8))]
    gpt = transformers.GPT2Config(vocab_size=64, n_embd=16, n_layer=2, n_head=2, n_positions=8)
    trainer = transformers.Trainer(
        transformers.GPT2LMHeadModel(gpt),
        transformers.TrainingArguments(str(tmp_path), max_steps=4, logging_steps=2, per_device_train_batch_size=4,
                                       save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True),
        train_dataset=rows, callbacks=[Reporter()])
    engine = penstock.hugging_face.offload(trainer, core=test_core())
    trainer.train()
    told = [each for each in trainer.state.log_history if "loss" in each]
    assert len(told) == 2 and told == [{**each, "step": entry["step"]} for each, entry in zip(Reporter.seen, told)]
    memory = engine.record.memory
    assert all(each["penstock_host_bytes"] == memory.host > 0 for each in told)
    assert told[1]["penstock_nvme_bytes"] == memory.nvme > 0
    assert ("penstock_device_bytes" in told[1]) == bool(memory.device)
    if not NATIVE:
        assert told[1]["penstock_wait_seconds"] == pytest.approx(engine.record.wait_seconds)  # each step waits alike
    assert "penstock_host_bytes" not in trainer.state.log_history[-1]  # of the training's end
