"""The program by srun, as Open MPI's ranks: Debian's slurm-wlm has the plugin pmix. Wants slurm-wlm, munge, and a program
that was built where libopenmpi-dev and openmpi-bin are (PENSTOCK_PROGRAM)."""
from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import daemons
import slurm
import store_files
import toy
from daemons import within
from program import Program
from training import ROOT, SECONDS
from training_log import read_reference

PROGRAM = os.environ.get("PENSTOCK_PROGRAM", "")
STEPS = 200
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
SRUN = ["srun", "--mpi=pmix", "--kill-on-bad-exit=1", "-n", "2"]
ALLOCATED = ["salloc", "-Q", "-n", "2"]


def absent() -> str:
    if why := slurm.absent():
        return why
    if not PROGRAM or daemons.missing("mpirun"):
        return "PENSTOCK_PROGRAM names no program, or Open MPI is not there"
    linked = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=False).stdout
    return "" if "libmpi" in linked else "the program is built without Open MPI"


pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(absent()), reason=absent())]


class Run:
    """In a folder, made once for all of a test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        toy.write_toy(Program(PROGRAM), self.folder, "every", {"run.steps": STEPS})

    def begin(self, words, **variables):
        with open(self.folder / "err", "wb") as err:
            return subprocess.Popen(words, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=err, stderr=err,
                                    env=daemons.environment(self.folder.parent, OMP_NUM_THREADS="1",
                                                            PYTHONPATH=str(ROOT / "python"), **variables))

    def end(self, process, seconds=SECONDS):
        process.wait(seconds)
        return process.returncode, (self.folder / "err").read_text(errors="replace")

    def steps(self):
        try:
            return len((self.folder / "run/log.jsonl").read_text().splitlines())
        except OSError:
            return 0

    def comes_to(self, step):
        assert within(lambda: self.steps() >= step, SECONDS), (self.folder / "err").read_text()

    def ranks(self):
        return {pid: words for pid, words in daemons.bearing(self.folder.parent).items() if words.startswith(PROGRAM)}

    def store(self, rank):
        return self.folder / f"swap/ranks-2/{rank}"

    def committed(self):
        """The step of each rank."""
        return [store_files.committed_step(self.store(rank)) for rank in (0, 1)]

    def result(self):
        """Losses, norms and rates by step; what both ranks have committed, byte by byte."""
        return read_reference(self.folder / "run/log.jsonl"), [bits(self.store(rank)) for rank in (0, 1)]


def bits(store):
    """A digest of each tile: a store's own hashes are salted with its identity."""
    data = (store / "data").read_bytes()
    return [hashlib.sha256(data[each.offset:each.offset + each.extent_bytes]).hexdigest()
            for each in store_files.newest(store).tiles]


@pytest.fixture(scope="module")
def undisturbed():
    with daemons.Daemons() as made:
        run = Run(made.folder)
        code, errors = run.end(run.begin([*MPIRUN, PROGRAM, "train", "config.json"]))
        assert code == 0, errors
        losses, committed = run.result()
        assert len(losses) == STEPS and all(committed)
        yield losses, committed


@pytest.fixture
def there(folder):
    made = slurm.Slurm(folder)
    yield made, Run(folder)
    made.close()


def train(there, words=(*SRUN, PROGRAM)):
    made, run = there
    return run.begin([*words, "train", "config.json"], **made.variables)


def goes_on(there, undisturbed, words=(*SRUN, PROGRAM)):
    made, run = there
    assert within(made.is_empty, 60), made.says("squeue")
    code, errors = run.end(train(there, words))
    assert code == 0, errors
    assert run.result() == undisturbed


def test_srun_has_the_bits_of_mpirun(there, undisturbed):
    goes_on(there, undisturbed)


def test_the_launcher_says_pmix_by_itself(there, undisturbed):
    goes_on(there, undisturbed, [*ALLOCATED, sys.executable, "-m", "penstock", "launch", "--launcher", "slurm"])


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed_ends_all_and_the_run_goes_on_to_the_same_bits(there, undisturbed, rank):
    made, run = there
    begun = train(there)
    run.comes_to(20)
    os.kill(next(pid for pid in run.ranks() if f"SLURM_PROCID={rank}\0" in Path(f"/proc/{pid}/environ").read_text()),
            signal.SIGKILL)
    at = time.monotonic()
    code, errors = run.end(begun, 60)
    daemons.tell(f"srun, the program's rank {rank} killed: exit code {code} after {time.monotonic() - at:.1f} s")
    assert code == 128 + signal.SIGKILL, (code, errors)
    assert f"task {rank}: Killed" in errors, errors
    assert within(lambda: not run.ranks(), 20), run.ranks()
    assert run.steps() < STEPS
    goes_on(there, undisturbed)


@pytest.mark.parametrize("attempt", range(3))
def test_scancel_by_sigterm_stops_all_behind_the_same_step(there, undisturbed, attempt):
    made, run = there
    begun = train(there)
    run.comes_to(20 + 7 * attempt)
    made.says("scancel", "--signal=TERM", made.job())
    code, errors = run.end(begun, 60)
    assert code == 75, (code, errors)
    assert within(lambda: not run.ranks(), 20), run.ranks()
    assert run.steps() < STEPS
    assert run.committed() == [run.steps()] * 2, errors
    goes_on(there, undisturbed)
