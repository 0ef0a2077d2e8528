"""`penstock train` on a GPU, or with PENSTOCK_GPU=emulated: losses of steps, which are the whole of a run in short."""
from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

DEVICE = os.environ.get("PENSTOCK_GPU", "cuda")
PROGRAM = os.environ.get("PENSTOCK_PROGRAM", str(Path(__file__).parent / "bin" / "penstock"))
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "CUBLAS_WORKSPACE_CONFIG"}  # its own to see to
STEPS = 8
CONTEXT = 512 if DEVICE == "cuda" else 64  # what a CPU computes in seconds
MODEL = {"type": "gpt", "vocabulary": 256, "hidden": 256, "layers": 4, "heads": 4, "feed_forward": 1024, "context": CONTEXT}
# Of the device: all weights at once, and gradients of two units beside weights of as many.
WIDE, TIGHT = 64 << 20, 14 << 20


@pytest.fixture(scope="module")
def tokens(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    text = folder / "text.txt"
    text.write_bytes(bytes(random.Random(1).choices(range(97, 123), k=1 << 20)))
    subprocess.run([PROGRAM, "prepare", "--out", folder / "text.tokens", text], check=True, capture_output=True)
    return folder / "text.tokens"


def command(folder: Path, tokens: Path, device: str = DEVICE, **settings: object) -> list[str]:
    """`settings`: keys of the configuration, with __ for dots."""
    folder.mkdir(exist_ok=True)
    config = {
        "model": MODEL, "data": {"train": str(tokens)}, "train_micro_batch_size_per_gpu": 2, "train_batch_size": 4,
        "gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": str(folder / "swap")},
                              "offload_optimizer": {"device": "nvme"}},
        "memory": {"host_budget": "256MiB"}, "run": {"directory": str(folder / "run"), "seed": 1, "deterministic": True}}
    (folder / "config.json").write_text(json.dumps(config))
    sets = {"run.steps": STEPS, "memory.device": device, "memory.device_budget": TIGHT if device != "cpu" else 0,
            **{key.replace("__", "."): value for key, value in settings.items()}}
    words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    return [PROGRAM, "train", str(folder / "config.json"), *words]


def losses_of(folder: Path) -> list[float]:
    """Of each step what was logged last: a run that goes on does some again."""
    path = folder / "run" / "log.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    by_step = {record["step"]: record["loss"] for record in records if "loss" in record}
    return [by_step[step] for step in sorted(by_step)]


def train(folder: Path, tokens: Path, *more: object, **settings: object) -> list[float]:
    done = subprocess.run(command(folder, tokens, *more, **settings), capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr[-3000:]
    return losses_of(folder)


@pytest.fixture(scope="module")
def first(tmp_path_factory, tokens) -> list[float]:
    losses = train(tmp_path_factory.mktemp("runs") / "first", tokens, memory__device_budget=WIDE)
    assert len(losses) == STEPS and losses[-1] < losses[0]
    return losses


def test_it_learns_as_on_the_cpu(tmp_path, tokens, first):
    assert train(tmp_path / "cpu", tokens, "cpu") == pytest.approx(first, rel=1e-4)


SAME = {
    "again": {"memory__device_budget": WIDE},
    "less memory": {},
    "one unit ahead": {"memory__prefetch_depth": 1},
    "half of what is free": {"memory__device_budget": 0},
    "deferred": {"run__update_order": "deferred"},
    "within": {"run__update_order": "within"},
    "some deferred": {"run__update_order": "within", "run__deferred_share": "0.5"},
    "gradients on NVMe": {"memory__gradients": "nvme"},
    "inputs on NVMe": {"memory__activations": "recompute", "memory__activation_budget": CONTEXT << 11},
    "graphs kept": {"memory__activations": "keep"},
    "all recomputed": {"memory__activations": "recompute"},
    "some graphs given up": {"memory__graph_budget": CONTEXT << 17},
    "some graphs kept": {"memory__activations": "keep", "memory__graph_budget": CONTEXT << 17},
    "host memory filled": {"memory__fill_host_budget": "true"},
}


@pytest.mark.parametrize("case", [case for case in SAME if DEVICE == "cuda" or "free" not in case])
def test_the_same_bits(tmp_path, tokens, first, case):
    assert train(tmp_path / "run", tokens, **SAME[case]) == first


def test_sixteen_bits(tmp_path, tokens):
    one = train(tmp_path / "one", tokens, bf16__enabled="true", memory__device_budget=WIDE)
    assert train(tmp_path / "other", tokens, bf16__enabled="true", run__update_order="deferred") == one
    assert train(tmp_path / "cpu", tokens, "cpu", bf16__enabled="true") == pytest.approx(one, rel=2e-2)


@pytest.mark.skipif(DEVICE != "cuda", reason="a CPU computes all the same")
def test_left_alone_and_by_tf32_it_learns_too(tmp_path, tokens, first):
    assert train(tmp_path / "free", tokens, run__deterministic="false") == pytest.approx(first, rel=1e-3)
    rounded = train(tmp_path / "tf32", tokens, run__matmul="high")
    assert rounded == pytest.approx(first, rel=1e-2) and rounded != first


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path, tokens, first):
    folder = tmp_path / "run"
    for _ in range(3):
        before = len(losses_of(folder))
        with subprocess.Popen(command(folder, tokens), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env=ENVIRONMENT) as child:
            deadline = time.monotonic() + 60
            while len(losses_of(folder)) <= before and child.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            child.send_signal(signal.SIGKILL)
    assert train(folder, tokens) == first
