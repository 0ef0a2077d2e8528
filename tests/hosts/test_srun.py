"""A script by srun: `penstock launch --launcher slurm`. Wants Debian's slurm-wlm and munge."""
from __future__ import annotations

import os
import shlex
import signal
import sys
import time

import pytest

import daemons
import slurm
from daemons import within
from training import STEPS, Training, a_port, library_is_there, process_of

pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(slurm.absent()), reason=slurm.absent()),
              pytest.mark.skipif(bool(library_is_there()), reason=library_is_there())]
ALLOCATED = ["salloc", "-Q", "-n", "2"]


@pytest.fixture
def there(folder):
    made = slurm.Slurm(folder)
    training = Training(folder)
    yield made, training
    made.close()


def begin(there, pause=0.3, *words):
    made, training = there
    launch = training.launch("--launcher", "slurm", *a_port(), *words, pause=pause)
    return training.begin([*ALLOCATED, *launch], **made.variables)


def goes_on(there, undisturbed):
    made, training = there
    assert within(made.is_empty, 60), made.says("squeue")
    training.ran([*ALLOCATED, *training.launch("--launcher", "slurm", *a_port())], **made.variables)
    assert training.result() == undisturbed


def test_a_script_has_the_bits_of_one_that_the_launcher_starts_itself(there, undisturbed):
    goes_on(there, undisturbed)


def test_without_an_allocation_srun_makes_one_for_the_hosts_of_a_hostfile(there, undisturbed):
    made, training = there
    (training.folder / "hosts").write_text(f"{made.host} slots=2\n")
    training.ran(training.launch("--launcher", "slurm", "--hostfile", "hosts", *a_port()), **made.variables)
    assert training.result() == undisturbed


def test_a_rank_that_is_killed_ends_all_and_the_run_goes_on_to_the_same_bits(there, undisturbed):
    made, training = there
    begun = begin(there)
    training.comes_to(3)
    os.kill(process_of(1, training.folder), signal.SIGKILL)
    at = time.monotonic()
    code, errors = training.end(begun, 60)
    assert code == 128 + signal.SIGKILL, (code, errors)
    daemons.tell(f"srun, a script's rank killed: exit code {code} after {time.monotonic() - at:.1f} s")
    assert errors.count("Killed") == 1 and "task 1: Killed" in errors, errors
    training.all_end(20)
    assert max(training.last_steps()) < STEPS
    goes_on(there, undisturbed)


@pytest.mark.parametrize("attempt", range(3))
def test_scancel_by_sigterm_stops_all_behind_the_same_step(there, undisturbed, attempt):
    made, training = there
    begun = begin(there)
    training.comes_to(3 + attempt)
    made.says("scancel", "--signal=TERM", made.job())
    code, errors = training.end(begun, 60)
    assert code == 75, (code, errors)
    steps = training.last_steps()
    assert steps[0] == steps[1] < STEPS, steps
    training.all_end(20)
    goes_on(there, undisturbed)
    assert training.began_behind() == steps


def test_srun_alone_trains_one_model_too(there, undisturbed):
    made, training = there
    code, errors = training.end(training.begin(["srun", "-n", "2", sys.executable, "train.py", str(STEPS), "0"],
                                               **made.variables))
    assert code == 0, shlex.quote(errors)
    assert training.result() == undisturbed
