"""Transformers' Trainer: a script and its twin with two lines changed, run as programs."""
from __future__ import annotations

import difflib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

import forked
from cores import NATIVE
from penstock.weights.bits import same_bits

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

SCRIPTS = Path(__file__).resolve().parent / "scripts"
PYTHON_PATH = os.pathsep.join((str(SCRIPTS.parent), os.environ.get("PENSTOCK_PACKAGE_AT", str(SCRIPTS.parents[1]))))


def python(script: str) -> list[str]:
    """The command of a script; over the core on NVMe both of the twins round each operation by itself."""
    first = "import cores; cores.round_each_operation();" if NATIVE else ""
    first += "import warnings; warnings.simplefilter('ignore');"
    run = f"import runpy, sys; {first} sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
    return [sys.executable, "-c", run, str(SCRIPTS / script)]


def run(script: str, folder: Path, steps: int, *more: str, killed: bool = False) -> None:
    folder.mkdir(exist_ok=True)
    done = forked.run([*python(script), str(folder), str(steps), *more], warm=forked.TRAINER,
                      env={**os.environ, "PYTHONPATH": PYTHON_PATH}, capture_output=True, text=True)
    assert (done.returncode != 0) == killed, done.stderr[-3000:]


def history(folder: Path) -> list[dict[str, float]]:
    return json.loads((folder / "history.json").read_text())


def same_model(a: Path, b: Path) -> bool:
    x, y = load_file(a / "final" / "model.safetensors"), load_file(b / "final" / "model.safetensors")
    return x.keys() == y.keys() and all(same_bits(x[name], y[name]) for name in x)


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    run("trainer_plain.py", folder, 8)
    return folder


@pytest.mark.skipif(os.environ.get("OMP_NUM_THREADS") != "1", reason="libraries may have threads")
def test_processes_are_forked_though_transformers_is_large():
    with forked.Popen([sys.executable, "-c", "pass"], warm=forked.TRAINER) as made:
        assert made.forked, "something that is imported has a thread: what is here takes ten times as long"


@pytest.mark.parametrize("twin, lines", [("trainer_managed.py", 2), ("trainer_offloaded.py", 1)])
def test_the_twin_differs_in_few_lines_beside_imports_and_its_first(twin, lines):
    one, other = ((SCRIPTS / name).read_text().splitlines() for name in ("trainer_plain.py", twin))
    changed = [line[2:] for line in difflib.ndiff(one, other) if line.startswith("+ ")]
    changed = [line for line in changed if line and "import" not in line and not line.startswith('"""')]
    assert len(changed) == lines, changed


@pytest.mark.parametrize("twin", ["trainer_managed.py", "trainer_offloaded.py"])
def test_trainer_logs_and_saves_the_same(twin, plain, tmp_path):
    run(twin, tmp_path, 8)
    assert history(tmp_path) == history(plain)
    assert same_model(tmp_path, plain)


@pytest.mark.parametrize("twin", ["trainer_managed.py", "trainer_offloaded.py"])
def test_trainer_resumes_from_its_checkpoint_to_the_same_losses(twin, plain, tmp_path):
    run(twin, tmp_path, 8)
    shutil.rmtree(tmp_path / "out" / "checkpoint-8")  # the store is at step 8, the checkpoint that is left at 6
    run(twin, tmp_path, 8, "resume")
    assert history(tmp_path) == history(plain)
    assert same_model(tmp_path, plain)


def test_trainer_that_is_killed_resumes_to_the_same_losses(plain, tmp_path):
    chance = random.Random(int(os.environ.get("PENSTOCK_SEED", "1")))
    for _ in range(int(os.environ.get("PENSTOCK_KILLS", "2"))):
        start(tmp_path, chance)
    if resume(tmp_path):
        run("trainer_managed.py", tmp_path, 8, "resume")
    else:
        run("trainer_managed.py", tmp_path, 8)
    assert history(tmp_path) == history(plain)
    assert same_model(tmp_path, plain)


def start(folder: Path, chance: random.Random) -> None:
    """Runs until it is killed, some time after the store has taken a step, or to its end."""
    process = forked.Popen([*python("trainer_managed.py"), str(folder), "8", *(["resume"] if resume(folder) else [])],
                           env={**os.environ, "PYTHONPATH": PYTHON_PATH}, warm=forked.TRAINER,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    before = committed(folder)
    while process.poll() is None and committed(folder) == before:
        time.sleep(0.02)
    time.sleep(chance.random() * 0.3)
    process.kill()
    said = process.communicate()[1]
    assert process.returncode in (0, -9), said[-3000:]


def committed(folder: Path) -> list[int]:
    """Changes with each step that the store takes."""
    return sorted(file.stat().st_mtime_ns for kind in ("generation.pt", "manifest.*")
                  for file in (folder / "store").glob(kind))


def resume(folder: Path) -> bool:
    """Whether there is a checkpoint to resume from; else all is begun anew. transformers takes the last one whether it is whole
    or not, and makes a step more where the kill came behind the last step's."""
    for each in (folder / "out").glob("checkpoint-*"):
        if each.name == "checkpoint-8" or not (each / "trainer_state.json").exists():
            shutil.rmtree(each)
    if any(each.name.removeprefix("checkpoint-").isdigit() for each in (folder / "out").glob("checkpoint-*")):
        return True  # others are on their way in or out
    shutil.rmtree(folder / "store", ignore_errors=True)
    shutil.rmtree(folder / "out", ignore_errors=True)
    return False


def test_trainer_does_not_begin_anew_on_a_store_that_was_stopped(tmp_path):
    run("trainer_managed.py", tmp_path, 2)
    shutil.rmtree(tmp_path / "out")
    run("trainer_managed.py", tmp_path, 2, killed=True)


AUTO = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto", "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
        "optimizer": {"type": "AdamW", "params": {
            "lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
        "scheduler": {"type": "WarmupDecayLR", "params": {
            "warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}}}


@pytest.mark.parametrize("options, steps", [
    ({"max_steps": 40, "warmup_steps": 5, "bf16": True}, None), ({"warmup_steps": 0.1, "max_grad_norm": 0.5}, 30),
    ({"per_device_train_batch_size": 3, "gradient_accumulation_steps": 4, "max_steps": 7}, None)])
def test_trainers_arguments_fill_in_what_transformers_fills_in(options, steps, tmp_path, monkeypatch):
    import transformers
    from accelerate.utils.deepspeed import HfDeepSpeedConfig
    from transformers.integrations import deepspeed as integration

    from penstock.configuration.config import read_config
    from penstock.hugging_face import known_values
    monkeypatch.setattr(integration, "dep_version_check", lambda _: None)  # it is not installed
    monkeypatch.setattr(integration, "set_hf_deepspeed_config", lambda _: None)

    class Config(integration.HfTrainerDeepSpeedConfig, HfDeepSpeedConfig):
        pass
    arguments = transformers.TrainingArguments(tmp_path, learning_rate=3e-4, weight_decay=0.1, adam_beta2=0.95,
                                               use_cpu=True, report_to=[], **options)
    theirs = Config(json.loads(json.dumps(AUTO)))
    theirs.trainer_config_process(arguments)
    theirs.fill_only("optimizer.params.lr", arguments.learning_rate)
    total = steps or arguments.max_steps
    theirs.fill_only("scheduler.params.total_num_steps", total)
    theirs.fill_only("scheduler.params.warmup_num_steps", arguments.get_warmup_steps(total))
    filled, own = read_config(theirs.config).resolved["values"], read_config(AUTO, known_values(arguments, steps))
    assert own.resolved["values"] == filled and own.resolved["missing"] == []


def test_a_trainers_own_optimizer_is_offloaded_with_its_groups(tmp_path, monkeypatch):
    """And what has the model already is refused."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    import penstock
    from cores import test_core
    from penstock.hugging_face import offload

    def trainer(folder):
        torch.manual_seed(0)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=32))
        rows = [torch.arange(16) % 7 + 3 * number for number in range(16)]
        return Trainer(model, TrainingArguments(
            output_dir=str(folder), max_steps=4, per_device_train_batch_size=2, gradient_accumulation_steps=2, learning_rate=1e-2,
            weight_decay=0.1, logging_steps=1, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True, optim="adamw_torch"),
            train_dataset=[{"input_ids": row, "labels": row} for row in rows])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        told = []
        for offloaded in (False, True):
            made = trainer(tmp_path / str(offloaded))
            if offloaded:
                with monkeypatch.context() as other:
                    other.setattr(made, "is_fsdp_enabled", True)
                    with pytest.raises(penstock.UsageError, match="fsdp=..., which takes the model"):
                        offload(made, core=test_core())
                engine = offload(made, core=test_core())
                assert [group["weight_decay"] for group in engine.optimizer.param_groups] == [0.1, 0.0]
                with pytest.raises(penstock.ModelError, match="managed by another engine"):
                    offload(made, core=test_core())
            made.train()
            told.append([each["loss"] for each in made.state.log_history if "loss" in each])
        assert len(told[0]) == 4
        assert told[0] == told[1] if not NATIVE else told[0] == pytest.approx(told[1], abs=1e-5)
    finally:
        torch.set_num_threads(threads)


STOPPER = """
class Stopper(transformers.TrainerCallback):
    def on_substep_end(self, args, state, control, **_):
        if state.global_step == 4 and not resume:
            os.kill(os.getpid(), signal.SIGTERM)
engine.stop_on_signals()
trainer.add_callback(Stopper())
trainer.train("""


def test_a_signal_saves_a_checkpoint_and_ends_trainer_which_goes_on_to_the_same_losses(plain, tmp_path):
    text = (SCRIPTS / "trainer_offloaded.py").read_text()
    text = text.replace("import json\n", "import json, os, signal, transformers\n")
    (tmp_path / "script.py").write_text(text.replace("trainer.train(", STOPPER))

    def ended(*more):
        return forked.run([*python(str(tmp_path / "script.py")), str(tmp_path), "8", *more], text=True,
                          env={**os.environ, "PYTHONPATH": PYTHON_PATH}, warm=forked.TRAINER, capture_output=True)
    done = ended()
    assert done.returncode == 75 and "stopped by SIGTERM behind step 5" in done.stderr, done.stderr[-3000:]
    assert (tmp_path / "out/checkpoint-5/penstock-step-5").exists() and not (tmp_path / "final").exists()
    assert ended("resume").returncode == 0
    assert history(tmp_path) == history(plain)
    assert same_model(tmp_path, plain)
