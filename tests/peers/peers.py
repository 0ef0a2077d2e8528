#!/usr/bin/env python3
"""Trains by the own commands of LLaMA-Factory and Axolotl, and by a script for an older TRL, with Penstock in
DeepSpeed's place, and compares with the same training without DeepSpeed. By hand, because it needs them:

    tests/peers/venv.sh llamafactory VENV
    VENV/bin/python tests/peers/peers.py llamafactory WORK CHECKOUT/examples/deepspeed/*.json --forms killed lora

The files are DeepSpeed configurations, here those of a checkout of the peer's repository. Prints a row for each
training: *equal* is losses, and weights at the end, bit for bit. In the form `killed` SIGKILL comes once checkpoint-4
is whole, and the same command goes on from there. tests/RESULTS.md has what came of it.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parent))

import tiny  # noqa: E402

ONE_WAY_TO_ROUND = {"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "default"}  # of torch's own optimizer
OPTIMIZER = "adamw_torch_fused"  # the other one takes square roots of MKL's, which are not always rounded right
QUIET = {"HF_HUB_OFFLINE": "1", "AXOLOTL_DO_NOT_TRACK": "1", "DO_NOT_TRACK": "1", "NO_COLOR": "1"}
FORMS = {  # what a training is beside its configuration
    "full": {}, "lora": {"lora": True}, "clipped": {"clip": 1.0}, "bf16": {"bf16": True}, "fp16": {"fp16": True},
    "killed": {}}
LIMIT_S = 600


class LlamaFactory:
    command = ["llamafactory-cli", "train"]
    launched = {"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": "1"}  # which it wants with DeepSpeed

    @staticmethod
    def settings(work, out, lora=False, clip=0.0, bf16=False, fp16=False):
        return {
            "model_name_or_path": str(work / "model"), "dataset_dir": str(work / "data"), "dataset": "sums",
            "output_dir": str(out), "stage": "sft", "do_train": True, "finetuning_type": "lora" if lora else "full",
            "template": "empty", "cutoff_len": 64, "preprocessing_num_workers": 1, "dataloader_num_workers": 0,
            "logging_steps": 1, "save_steps": 4, "max_steps": 8, "report_to": "none", "learning_rate": 1e-3,
            "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "lr_scheduler_type": "cosine",
            "warmup_ratio": 0.1, "max_grad_norm": clip, "use_cpu": True, "bf16": bf16, "fp16": fp16}


class Axolotl:
    command = ["axolotl", "train"]
    launched = {}

    @staticmethod
    def settings(work, out, lora=False, clip=0.0, bf16=False, fp16=False):
        adapter = {"adapter": "lora", "lora_r": 8, "lora_alpha": 16, "lora_target_linear": True,
                   "lora_mlp_kernel": False, "lora_qkv_kernel": False, "lora_o_kernel": False}  # they want a GPU
        return {
            "base_model": str(work / "model"), "datasets": [{"path": str(work / "data/sums.json"), "type": "alpaca"}],
            "dataset_prepared_path": str(work / "prepared"), "output_dir": str(out), "sequence_len": 256,
            "special_tokens": tiny.MARKS, "micro_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": 8,
            "save_steps": 4, "logging_steps": 1, "learning_rate": 1e-3, "optimizer": OPTIMIZER,
            "lr_scheduler": "cosine", "warmup_steps": 1, "max_grad_norm": clip, "bf16": bf16, "fp16": fp16,
            "tf32": False, "val_set_size": 0, "attn_implementation": "sdpa", **(adapter if lora else {})}


class Older:
    """TRL 0.15 with transformers 4.49, by a script of their time; its configurations are in tests/peers/older."""

    command = ["python", str(Path(__file__).parent / "sft.py")]
    launched = {}

    @staticmethod
    def settings(work, out, lora=False, clip=0.0, bf16=False, fp16=False):
        return {
            "model": str(work / "model"), "data": str(work / "data/sums.json"), "output_dir": str(out), "lora": lora,
            "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": 8, "save_steps": 4,
            "logging_steps": 1, "learning_rate": 1e-3, "max_grad_norm": clip, "use_cpu": True, "bf16": bf16,
            "fp16": fp16, "report_to": "none", "optim": OPTIMIZER}


PEERS = {"llamafactory": LlamaFactory, "axolotl": Axolotl, "older": Older}


class Training:
    """One start of a peer's command, and what it left."""

    def __init__(self, peer, work, name):
        self.peer, self.work, self.out = peer, work, work / "out" / name

    def run(self, form, config=None, resumed=False, until=None):
        """`until`: a file at whose coming it is killed. Gives its exit code."""
        given = {**self.peer.settings(self.work, self.out, **FORMS[form])}
        if config is not None:
            given["deepspeed"] = str(config)
        if resumed:
            given["resume_from_checkpoint"] = str(self.out / "checkpoint-4")
        else:
            shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True, exist_ok=True)
        settings = self.out.with_suffix(".yaml")  # which JSON is
        settings.write_text(json.dumps(given))
        environment = {**os.environ, **ONE_WAY_TO_ROUND, **QUIET, **(self.peer.launched if config else {})}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        with open(self.out.with_suffix(".log"), "a" if resumed else "w") as log:
            process = subprocess.Popen([*self.peer.command, str(settings)], env=environment, stdout=log,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        try:
            return wait(process, until)
        finally:
            if process.poll() is None or until is not None:
                kill(process)

    def losses(self):
        states = sorted(self.out.glob("checkpoint-*/trainer_state.json"), key=os.path.getmtime)
        logged = json.loads(states[-1].read_text())["log_history"]
        return [each["loss"] for each in logged if "loss" in each]

    def weights(self):
        return {name: each for path in sorted(self.out.glob("*.safetensors")) for name, each in load_file(path).items()}

    def problem(self):
        """The line of its log that says most."""
        lines = self.out.with_suffix(".log").read_text(errors="replace").splitlines()
        named = [line for line in lines if "Error: " in line and "ChildFailed" not in line]
        return (named or lines or ["no word"])[-1 if not named else 0].strip()


def kill(process):
    """The launcher and whom it has started: torchrun's workers are a process group of their own."""
    try:
        started = psutil.Process(process.pid)
        all_of_it = [*started.children(recursive=True), started]
    except psutil.NoSuchProcess:
        all_of_it = []
    for each in all_of_it:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            pass
    process.wait()
    alive = psutil.wait_procs(all_of_it, timeout=60)[1]
    if alive:
        raise SystemExit(f"{alive} go on after SIGKILL, and would train beside the one that goes on")


def is_whole(path):
    """A JSON file is written in place."""
    try:
        json.loads(path.read_text())
    except (OSError, ValueError):
        return False
    return True


def wait(process, until):
    end = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < end:
        if until is not None and is_whole(until):
            return "killed"
        time.sleep(0.01)
    return process.poll()


def compare(found, twin):
    """In words."""
    if found.losses() == twin.losses() and same(found.weights(), twin.weights()):
        return "equal"
    losses = max(abs(one - other) for one, other in zip(found.losses(), twin.losses(), strict=True))
    one, other = found.weights(), twin.weights()
    weights = max((one[name].double() - other[name].double()).abs().max().item() for name in one.keys() & other.keys())
    return f"losses within {losses:.1g}, weights within {weights:.1g}"


def same(one, other):
    return one.keys() == other.keys() and all(bool((each == other[name]).all()) for name, each in one.items())


def outcome(peer, work, config, form):
    twin = Training(peer, work, f"{form if FORMS[form] else 'full'}-without")
    if not (twin.out / "checkpoint-8").exists() and twin.run(form) != 0:
        return f"without DeepSpeed: {twin.problem()}"
    found = Training(peer, work, f"{form}-{config.stem}")
    if form == "killed":
        if found.run(form, config, until=found.out / "checkpoint-4/trainer_state.json") != "killed":
            return f"not killed: {found.problem()}"
        if (found.out / "checkpoint-8").exists():
            return "killed too late"
    code = found.run(form, config, resumed=form == "killed")
    return compare(found, twin) if code == 0 else found.problem()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("work", type=Path, help="a directory to work in")
    parser.add_argument("configurations", nargs="+", type=Path)
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    given = parser.parse_args()
    peer, work = PEERS[given.peer], given.work.resolve()
    tiny.make(work)
    for config in given.configurations:
        for form in given.forms:
            print(f"| {config.name} | {form} | {outcome(peer, work, config.resolve(), form)} |", flush=True)


if __name__ == "__main__":
    main()
