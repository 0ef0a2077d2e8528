"""One script, started by whatever starts processes: with the losses that it has under `penstock launch`."""
from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.launch import ports
from penstock.native import library
from penstock.ranks.by_mpi import PORTS, take_words
from test_ranks import ended

try:
    library.library()
except penstock.UsageError as absent:
    pytest.skip(str(absent), allow_module_level=True)

PACKAGE = Path(penstock.__file__).resolve().parents[1]
SCRIPT = '''
import json, os, sys
import torch, penstock
from torch import nn

torch.manual_seed(3)
model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
rows = torch.randn(32, 4)
engine, _, loader, _ = penstock.initialize(model, torch.optim.AdamW(model.parameters(), lr=1e-2), training_data=rows,
                                           store=sys.argv[-1], settings=penstock.Settings(micro_batch=4))
losses = []
for batch in loader:
    loss = engine(batch).square().mean()
    engine.backward(loss)
    engine.step()
    losses.append(loss.item())
told = {"rank": engine.global_rank, "ranks": engine.world_size, "local": os.environ["LOCAL_RANK"], "losses": losses,
        "norm": engine.get_global_grad_norm()}
engine.close()
os.write(1, (json.dumps(told) + "\\n").encode())
'''
OURS = ("OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC")


def environment(**more):
    return {**{name: value for name, value in os.environ.items() if not name.startswith(OURS)}, "PYTHONPATH": str(PACKAGE),
            "OMP_NUM_THREADS": "1", **more}


def told_by(*commands, seconds=120, **of_each):
    """What the ranks say, in their order. `of_each`: variables, with a value for each command."""
    begun = [subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                              env=environment(**{name: values[at] for name, values in of_each.items()}))
             for at, command in enumerate(commands)]
    try:
        codes, outputs, errors = ended(begun, seconds)
    except subprocess.TimeoutExpired:
        for each in begun:
            os.killpg(each.pid, signal.SIGTERM)  # of which launchers tell their own processes
        raise
    assert codes == [0] * len(commands), errors
    told = [json.loads(line) for each in outputs for line in each.splitlines() if line.startswith("{")]
    return sorted(told, key=lambda each: each["rank"])


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("started") / "train.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.fixture(scope="module")
def launched(script, tmp_path_factory):
    told = told_by([sys.executable, "-m", "penstock", "launch", "--num_gpus", "2", script,
                    str(tmp_path_factory.mktemp("launched") / "store")])
    assert [(each["rank"], each["ranks"], each["local"]) for each in told] == [(0, 2, "0"), (1, 2, "1")]
    assert [len(each["losses"]) for each in told] == [4, 4]
    assert told[0]["losses"] != told[1]["losses"], "each has rows of its own"
    return told


def test_torchrun(script, launched, tmp_path):
    assert told_by([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(ports.another()),
                    script, str(tmp_path / "store")]) == launched


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
def test_mpirun(script, launched, tmp_path):
    assert told_by(["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2", sys.executable, script,
                    str(tmp_path / "store")]) == launched


def of_slurm(**more):
    """Of two ranks of a step on this host, by name."""
    return {"SLURM_JOB_ID": ["77"] * 2, "SLURM_STEP_ID": [str(os.getpid())] * 2, "SLURM_STEP_NUM_TASKS": ["2"] * 2,
            "SLURM_STEP_TASKS_PER_NODE": ["2"] * 2, "SLURM_PROCID": ["0", "1"], "SLURM_LOCALID": ["0", "1"], **more}


def test_srun(script, launched, tmp_path):
    """By the variables that it sets; tests/hosts has Slurm itself."""
    command = [sys.executable, script, str(tmp_path / "store")]
    assert told_by(command, command, **of_slurm()) == launched


# Who they are, and where they meet.
def words_of(given):
    environment = dict(given)
    take_words(environment)
    return {name: environment[name] for name in set(environment) - set(given)}


def mpi(rank=1, size=4, local=1, of_host=4, **more):
    return {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(size), "OMPI_COMM_WORLD_LOCAL_RANK": str(local),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(of_host), "PMIX_NAMESPACE": "196476929", **more}


def slurm(rank=3, **more):
    return {**{name: values[1] for name, values in of_slurm().items()}, "SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank), **more}


@pytest.fixture
def two_hosts(tmp_path, monkeypatch):
    (tmp_path / "scontrol").write_text("#!/bin/sh\n"
                                       "[ \"$*\" = 'show hostnames worker-[4-5]' ] && printf 'worker-4\\nworker-5\\n'\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return slurm(SLURM_STEP_NUM_TASKS="5", SLURM_STEP_TASKS_PER_NODE="3,2", SLURM_NODEID="1", SLURM_LOCALID="0",
                 SLURM_STEP_NODELIST="worker-[4-5]")


def test_ranks_of_one_host_meet_there_at_a_port_of_their_job():
    told = words_of(mpi())
    port = told.pop("MASTER_PORT")
    assert told == {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "LOCAL_SIZE": "4",
                    "MASTER_ADDR": "127.0.0.1"}
    assert words_of(mpi(rank=3))["MASTER_PORT"] == port and int(port) in PORTS
    other = mpi(OMPI_MCA_ess_base_jobid="5")
    del other["PMIX_NAMESPACE"]
    assert words_of(other)["MASTER_PORT"] != port
    ports = {words_of(slurm(SLURM_STEP_ID=str(step)))["MASTER_PORT"] for step in range(3)}
    assert len(ports) == 3, "steps of one job may run at once"


def test_what_is_set_already_stays():
    told = words_of(mpi(of_host=2, MASTER_ADDR="worker-1", MASTER_PORT="29500"))
    assert told == {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "LOCAL_SIZE": "2"}
    assert words_of(mpi(WORLD_SIZE="2")) == {}


def test_slurms_ranks_on_several_hosts_meet_on_the_first(two_hosts):
    told = words_of(two_hosts)
    assert (told["MASTER_ADDR"], told["RANK"], told["LOCAL_RANK"], told["LOCAL_WORLD_SIZE"]) == ("worker-4", "3", "0", "2")


@pytest.mark.parametrize("given, words", [
    (mpi(of_host=2), r"several hosts.*mpirun -x MASTER_ADDR=HOST"),
    (slurm(SLURM_STEP_NUM_TASKS="4", SLURM_STEP_NODELIST="absent"), r"several hosts.*scontrol.*set MASTER_ADDR"),
    ({name: value for name, value in mpi().items() if name != "PMIX_NAMESPACE"}, "PMIX_NAMESPACE.*set MASTER_PORT")])
def test_where_it_is_not_known_where_they_meet_it_is_said_what_to_set(given, words):
    with pytest.raises(penstock.UsageError, match=words):
        take_words(dict(given))


@pytest.mark.parametrize("given", [
    {}, mpi(rank=0, size=1, of_host=1), {"PMI_SIZE": "2", "PMI_RANK": "0"}, {"SLURM_NTASKS": "8", "SLURM_PROCID": "0"},
    slurm(PMI_SIZE="8", PMI_RANK="5")])
def test_of_one_process_and_of_mpichs_nothing_is_said(given):
    assert words_of(given) == {}


def test_pmi_of_slurms_own_is_slurms():
    assert words_of(slurm(rank=1, PMI_SIZE="2", PMI_RANK="1"))["RANK"] == "1"
