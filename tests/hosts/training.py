"""A training of several ranks whose steps take a tenth of a second, and what its ranks tell: each in a file of its own."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import daemons

ROOT = Path(__file__).resolve().parents[2]
STEPS = 12
SECONDS = 240  # after which a training hangs, on a machine that does much else

SCRIPT = '''
import hashlib, json, os, sys, time
import torch, penstock
from torch import nn

rank = int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID", "0"))  # srun alone says the latter
last, pause = int(sys.argv[-2]), float(sys.argv[-1])
torch.set_num_threads(1)
torch.manual_seed(7 + rank)

def say(**what):
    with open(f"told.{rank}", "a") as file:
        file.write(json.dumps(what) + "\\n")

model = nn.Sequential(nn.Linear(20, 300), nn.LayerNorm(300), nn.ReLU(), nn.Linear(300, 300), nn.Linear(300, 5))
engine, *_ = penstock.initialize(model, torch.optim.AdamW(model.parameters(), lr=1e-2),
                                 store=penstock.Store("store", tile_elements=4096), settings=penstock.Settings(clip=0.7))
engine.stop_on_signals()
say(pid=os.getpid(), host=os.uname().nodename, behind=engine.global_steps)
while engine.global_steps < last:
    torch.manual_seed(engine.global_steps * 100 + rank)
    rows, wanted = torch.randn(4, 20), torch.randn(4, 5)
    loss = nn.functional.mse_loss(engine(rows), wanted)
    engine.backward(loss)
    say(step=engine.global_steps + 1, loss=loss.item())
    engine.step()
    time.sleep(pause)
digest = hashlib.sha256()
for what in ("master", "moment0", "moment1"):
    for name, values in engine.named_weights(what):
        digest.update(values.numpy().tobytes())
say(bits=digest.hexdigest())
engine.close()
'''


@dataclass(frozen=True)
class Result:
    """Losses by rank and step, and each rank's digest of all masters and moments."""

    losses: dict[tuple[int, int], float]
    bits: tuple[str, ...]


class Training:
    """In a folder, with its store."""

    def __init__(self, folder: Path, ranks: int = 2) -> None:
        self.folder, self.ranks = folder, ranks
        (folder / "train.py").write_text(SCRIPT)

    def environment(self, **changed: str) -> dict[str, str]:
        return daemons.environment(self.folder, **{"PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1",
                                                   "PYTHONDONTWRITEBYTECODE": "1", **changed})

    def launch(self, *words: str, pause: float = 0.0) -> list[str]:
        return [sys.executable, "-m", "penstock", "launch", *words, "train.py", str(STEPS), str(pause)]

    def begin(self, words: list[str], **changed: str) -> subprocess.Popen:
        """What the command says is in out and err, of which the last start's counts."""
        with open(self.folder / "out", "wb") as out, open(self.folder / "err", "wb") as err:
            return subprocess.Popen(words, cwd=self.folder, env=self.environment(**changed), stdin=subprocess.DEVNULL,
                                    stdout=out, stderr=err)

    def end(self, process: subprocess.Popen, seconds: float = SECONDS) -> tuple[int, str]:
        """Its exit code, and what it has told."""
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired as late:
            raise AssertionError(f"not ended after {seconds} s: {self.errors()}") from late
        return process.returncode, self.errors()

    def ran(self, words: list[str], **changed: str) -> None:
        code, errors = self.end(self.begin(words, **changed))
        assert code == 0, errors

    def errors(self) -> str:
        return (self.folder / "err").read_text(errors="replace")

    def told(self, rank: int) -> list[dict]:
        try:
            return [json.loads(line) for line in (self.folder / f"told.{rank}").read_text().splitlines()]
        except OSError:
            return []

    def pid(self, rank: int) -> int:
        """Of the newest start; within a namespace, if it is in one."""
        return [each["pid"] for each in self.told(rank) if "pid" in each][-1]

    def hosts(self) -> list[str]:
        return [[each["host"] for each in self.told(rank) if "host" in each][-1] for rank in range(self.ranks)]

    def began_behind(self) -> list[int]:
        """The step that was committed at the newest start."""
        return [[each["behind"] for each in self.told(rank) if "behind" in each][-1] for rank in range(self.ranks)]

    def last_steps(self) -> list[int]:
        """Begun, and committed unless the run was killed."""
        return [max((each["step"] for each in self.told(rank) if "step" in each), default=0)
                for rank in range(self.ranks)]

    def comes_to(self, step: int) -> None:
        assert daemons.within(lambda: min(self.last_steps()) >= step, SECONDS), (self.last_steps(), self.errors())

    def processes(self) -> dict[int, str]:
        """Of this folder, without daemons."""
        return {pid: words for pid, words in daemons.bearing(self.folder).items() if "train.py" in words}

    def all_end(self, seconds: float) -> float:
        """How long that took."""
        began = time.monotonic()
        assert daemons.within(lambda: not self.processes(), seconds), self.processes()
        return time.monotonic() - began

    def result(self) -> Result:
        """A step that was made again had the same loss."""
        losses: dict[tuple[int, int], float] = {}
        for rank in range(self.ranks):
            for each in (each for each in self.told(rank) if "step" in each):
                assert losses.setdefault((rank, each["step"]), each["loss"]) == each["loss"], each
        return Result(losses, tuple(self.told(rank)[-1].get("bits", "") for rank in range(self.ranks)))


def process_of(rank: int, mark: Path | str) -> int:
    """The process of a rank as this machine numbers it: also of one in a namespace."""
    for pid, words in daemons.bearing(mark).items():
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if "train.py" in words and "launch" not in words and f"RANK={rank}".encode() in variables:
            return pid
    raise AssertionError(f"no process of rank {rank}")


def a_port() -> list[str]:
    """A free one: others may use the machine at the same time."""
    from penstock.launch import ports
    return ["--master_port", str(ports.another())]


def library_is_there() -> str:
    """Why a training cannot be, or nothing."""
    from penstock.errors import UsageError
    from penstock.native import library
    try:
        library.library()
    except UsageError as absent:
        return str(absent)
    return ""


os.environ.setdefault("OMP_NUM_THREADS", "1")
