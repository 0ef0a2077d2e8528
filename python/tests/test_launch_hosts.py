"""penstock launch over several hosts: an ssh that stays on this machine, and commands of the names mpirun and srun."""
from __future__ import annotations

import ast
import os
import signal
import socket
import sys

import pytest

from launched import Launches, gone, within

TWO = "one slots=1\ntwo slots=2\n"


@pytest.fixture
def launches(tmp_path):
    folder = tmp_path / "a 'folder' of \"$HOME\""
    folder.mkdir()
    made = Launches(folder)
    (folder / "hosts").write_text(TWO)
    yield made
    made.close()


def asked(launches):
    """The words that each ssh had."""
    return [ast.literal_eval(line) for line in (launches.folder / "ssh.log").read_text().splitlines()]


def test_ranks_of_hosts_are_numbered_in_their_order(launches):
    names = ("WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOSTNAME")
    code, out, err = launches.run("-Hhosts", "--master_addr=10.0.0.1", "child.py",
                                  *(f"all:env={each}" for each in names), "all:env=MASTER_ADDR",
                                  "all:env=MASTER_PORT", "0:args")
    assert (code, err) == (0, "")
    values = {"0": "3 0 1 0 2 one", "1": "3 0 2 1 2 two", "2": "3 1 2 1 2 two"}
    for rank, line in values.items():
        for name, value in zip(names, line.split()):
            assert f"{rank}: {name}={value}" in out
        assert {f"{rank}: MASTER_ADDR=10.0.0.1", f"{rank}: MASTER_PORT={launches.port}"} <= {*out}
    assert any(line.startswith("0: ['--local_rank=0', ") for line in out)


def test_words_paths_and_the_environment_arrive_as_they_are(launches):
    odd = "a 'b' \"c\" $HOME `d` \\ * ; é\ttab"
    (launches.folder / ".deepspeed_env").write_text("OWN=it's $5 & more\n")
    (launches.folder / "activate").write_text("export OF_VENV=1\n")
    code, out, err = launches.run("-Hhosts", "-ione", "--force_multi", "--venv_script=activate", "child.py",
                                  "0:env=OWN", "0:env=MLFLOW_X", "0:env=OF_VENV", "0:args", odd, MLFLOW_X="x y")
    assert (code, err) == (0, "")
    assert out[3].endswith(f"'0:args', {odd!r}]")
    assert out[:3] == ["0: MLFLOW_X=x y", "0: OF_VENV=1", "0: OWN=it's $5 & more"]


def test_ssh_is_asked_once_for_each_host_and_then_starts(launches):
    assert launches.run("-Hhosts", "--ssh_port=2222", "--launcher_args=-i 'my key'", "child.py")[0] == 0
    words = asked(launches)
    assert [sorted(each[-2] for each in part) for part in (words[:2], words[2:])] == [["one", "two"]] * 2
    assert all(each[each.index("-p") + 1] == "2222" and each[each.index("-i") + 1] == "my key" for each in words)
    assert all("-oBatchMode=yes" in each for each in words)


def test_without_a_check_only_an_address_is_asked_for(launches):
    assert launches.run("-Hhosts", "--no_ssh_check", "--master_addr=127.0.0.1", "child.py")[0] == 0
    assert len(asked(launches)) == 2
    assert launches.run("-Hhosts", "--no_ssh_check", "child.py")[0] == 0
    assert sorted(each[-2] for each in asked(launches)[2:]) == ["one", "one", "two"]


@pytest.mark.parametrize("host, said", [
    ("gone", "gone cannot be reached: ssh: connect to host gone port 22: Connection refused; try ssh gone hostname"),
    ("bare", "bare has no directory"), ("old", f"old has no {sys.executable} with Penstock")])
def test_a_host_that_cannot_is_named_and_nothing_is_started(launches, host, said):
    (launches.folder / "hosts").write_text(f"one slots=1\n{host} slots=1\n")
    code, out, err = launches.run("-Hhosts", "child.py", "all:env=RANK")
    assert (code, out) == (2, []) and said in err and len(err.splitlines()) == 1


def test_a_port_in_use_on_the_first_host_is_named(launches):
    with socket.socket() as taken:
        taken.bind(("", launches.port))
        taken.listen(1)
        code, out, err = launches.run("-Hhosts", "child.py", "all:env=RANK")
        assert (code, out) == (2, []) and f"port {launches.port} is in use on one" in err
        alone = ("-Hhosts", "--no_ssh", "--master_addr=127.0.0.1", "child.py", "1:env=RANK")
        code, out, err = launches.run("--node_rank=0", *alone)
        assert (code, out) == (2, []) and f"port {launches.port} is in use here" in err
        assert launches.run("--node_rank=1", *alone)[:2] == (0, ["1: RANK=1"])


def test_no_ssh_starts_the_own_part(launches):
    words = ("-Hhosts", "--no_ssh", "--master_addr=127.0.0.1", "child.py", "all:env=RANK")
    assert launches.run("--node_rank=1", *words) == (0, ["1: RANK=1", "2: RANK=2"], "")
    assert launches.run("--node_rank=0", *words) == (0, ["0: RANK=0"], "")
    assert not (launches.folder / "ssh.log").exists()


def test_a_single_host_is_this_machine_unless_told_otherwise(launches):
    code, out, err = launches.run("-Hhosts", "--num_nodes=1", "child.py", "0:env=MASTER_ADDR")
    assert (code, out) == (0, ["0: MASTER_ADDR=127.0.0.1"])
    assert "one is the only host and is taken for this machine" in err
    assert launches.run("-Hhosts", "--num_nodes=1", "-q", "child.py")[2] == ""


def begin_all(launches, *actions):
    launch = launches.begin("-Hhosts", "--no_ssh_check", "--master_addr=127.0.0.1", "child.py", *actions)
    return launch, [launches.pid(rank) for rank in "012"]


def test_one_that_ends_badly_ends_those_of_all_hosts(launches):
    launch, pids = begin_all(launches, "0:sleep", "2:ignore", "2:sleep", "1:wait=pid.0", "1:wait=pid.2", "1:exit=3")
    code, _, err = launches.end(launch)
    assert code == 3 and all(map(gone, pids))
    assert err.splitlines()[0].startswith(f"penstock launch: rank 1 on two, process {pids[1]}, ended with exit code 3")
    assert "rank 0" not in err


def test_who_ended_because_of_another_host_is_not_told_of(launches):
    launch, pids = begin_all(launches, "0:wait=pid.1", "0:wait=pid.2", f"0:kill={signal.SIGKILL.value}", "1:stops=7",
                             "1:sleep", "2:wait=pid.0", "2:wait=pid.1", "2:exit=7")
    code, _, err = launches.end(launch)
    assert code == 137 and all(map(gone, pids))
    assert err.startswith(f"penstock launch: rank 0 on one, process {pids[0]}, was ended by SIGKILL")
    assert len(err.splitlines()) == 1, err


def test_where_no_host_has_another_cause_one_says_so(launches):
    launch, pids = begin_all(launches, "1:stops=7", "1:sleep", "2:stops=7", "2:sleep", "0:wait=pid.1", "0:wait=pid.2",
                             "0:exit=7")
    code, _, err = launches.end(launch)
    assert code == 7 and all(map(gone, pids))
    assert err == "penstock launch: a rank on one ended with exit code 7\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_processes_of_all_hosts(launches, number):
    launch, _ = begin_all(launches, "all:stops", "all:sleep")
    launch.send_signal(number)
    assert launches.end(launch) == (75, ["0 stops", "1 stops", "2 stops"], "")


def test_three_signals_kill_everywhere(launches):
    launch, pids = begin_all(launches, "all:ignore", "all:sleep")
    for _ in range(3):
        launch.send_signal(signal.SIGTERM)
        within(lambda: launch.poll() is not None, 0.1)
    assert launches.end(launch)[0] == 137 and all(map(gone, pids))


def test_a_launcher_that_is_killed_takes_those_of_all_hosts_with_it(launches):
    launch, pids = begin_all(launches, "0:ignore", "all:sleep")
    launch.kill()
    assert within(lambda: all(map(gone, pids)), 10)


def test_an_ssh_that_dies_ends_all(launches):
    launch, pids = begin_all(launches, "all:sleep")
    os.kill(int((launches.folder / "ssh.pid.two").read_text()), signal.SIGKILL)
    code, _, err = launches.end(launch)
    assert code == 137 and "the connection to two was ended by SIGKILL" in err
    assert within(lambda: all(map(gone, pids)), 10)


def test_a_script_that_is_not_there_is_named_by_its_host(launches):
    code, _, err = launches.run("-Hhosts", "--no_ssh_check", "--no_ssh", "--of_job=one:0@two:0", "--node_rank=1",
                                "absent.py")
    assert code == 2 and err.startswith("two: absent.py: there is no such script")


MPIRUN = """#!{python} -SE
import os, signal, subprocess, sys
words = sys.argv[1:]
hosts = open(words[words.index("--hostfile") + 1]).read()
open("mpirun.hosts", "w").write(hosts)
at = words.index(sys.executable)
exported = dict(words[i + 1].split("=", 1) for i, word in enumerate(words[:at]) if word == "-x")
rank, all = 0, []
for line in hosts.splitlines():
    slots = int(line.partition("slots=")[2])
    for local in range(slots):
        own = dict(OMPI_COMM_WORLD_RANK=str(rank), OMPI_COMM_WORLD_SIZE=words[words.index("-n") + 1],
                   OMPI_COMM_WORLD_LOCAL_RANK=str(local), OMPI_COMM_WORLD_LOCAL_SIZE=str(slots))
        all.append(subprocess.Popen(words[at:], env={{**os.environ, **exported, **own}}))
        rank += 1
signal.signal(signal.SIGTERM, lambda *_: [each.kill() for each in all])
sys.exit(max(each.wait() for each in all))
"""

SRUN = """#!{python} -SE
import os, subprocess, sys
words = sys.argv[1:]
open("srun.words", "w").write(repr(words))
at, count = words.index(sys.executable), int(words[words.index("--ntasks") + 1])
all = [subprocess.Popen(words[at:], env={{**os.environ, "SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(count),
       "SLURM_LOCALID": str(rank % 2), "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}}) for rank in range(count)]
sys.exit(max(each.wait() for each in all))
"""


def test_mpirun_starts_all_and_each_finds_its_rank(launches):
    launches.program("mpirun", MPIRUN.format(python=sys.executable))
    (launches.folder / ".deepspeed_env").write_text("OWN=a b\n")
    code, out, err = launches.run("-Hhosts", "--launcher=openmpi", "child.py", "all:env=LOCAL_RANK", "2:env=OWN",
                                  "2:env=LOCAL_WORLD_SIZE", "2:env=MASTER_ADDR", "2:env=OMPI_COMM_WORLD_RANK", "1:args")
    assert (code, err) == (0, "")
    assert out[:2] == ["0: LOCAL_RANK=0", "1: LOCAL_RANK=0"] and out[2].startswith("1: ['--local_rank=0', 'all:env")
    assert out[3:] == ["2: LOCAL_RANK=1", "2: LOCAL_WORLD_SIZE=2", "2: MASTER_ADDR=one", "2: OMPI_COMM_WORLD_RANK=2",
                       "2: OWN=a b"]
    assert (launches.folder / "mpirun.hosts").read_text() == TWO
    assert launches.run("-Hhosts", "--launcher=openmpi", "--num_gpus=1", "child.py", "1:exit=4")[0] == 4


def test_mpirun_ends_its_processes_when_the_launcher_is_killed(launches):
    launches.program("mpirun", MPIRUN.format(python=sys.executable))
    launch = launches.begin("-Hhosts", "--launcher=openmpi", "child.py", "all:sleep")
    pids = [launches.pid(rank) for rank in "012"]
    launch.kill()
    assert within(lambda: all(map(gone, pids)), 10)


def test_srun_starts_all_on_the_hosts_of_the_allocation(launches):
    launches.program("srun", SRUN.format(python=sys.executable))
    launches.program("scontrol", "#!/bin/sh\necho ${3}1; echo ${3}2\n")
    allocation = {"SLURM_JOB_NODELIST": "node", "SLURM_TASKS_PER_NODE": "2(x2)"}
    code, out, err = launches.run("--launcher=slurm", "--launcher_args=--mem 1G", "child.py", "all:env=LOCAL_RANK",
                                  "3:env=MASTER_ADDR", **allocation)
    assert (code, err) == (0, "")
    assert out == [f"{rank}: LOCAL_RANK={rank % 2}" for rank in range(4)] + ["3: MASTER_ADDR=node1"]
    words = ast.literal_eval((launches.folder / "srun.words").read_text())
    assert words[:words.index(sys.executable)] == [
        "--ntasks", "4", "--nodes", "2", "--ntasks-per-node", "2", "--nodelist", "node1,node2", "--kill-on-bad-exit=1",
        "--export=ALL", "--mem", "1G"]
    code, _, err = launches.run("--launcher=slurm", "child.py")
    assert code == 2 and "outside of an allocation" in err


@pytest.mark.parametrize("words, said", [
    ("--launcher=openmpi --include=two:1", "cannot choose two:1"), ("--launcher=slurm", "one 1, two 2"),
    ("--launcher=openmpi --bind_cores_to_rank", "mpirun has options of its own"),
    ("--launcher=mpich", "--launcher mpich: there are ssh")])
def test_what_mpirun_and_srun_cannot_say_is_refused(launches, words, said):
    for name in ("mpirun", "srun"):
        launches.program(name, "#!/bin/sh\n")
    code, _, err = launches.run("-Hhosts", *words.split(), "child.py")
    assert code == 2 and said in err


def test_a_launcher_that_is_not_there_is_named(launches):
    code, _, err = launches.run("-Hhosts", "--launcher=openmpi", "child.py",
                                PATH=f"{launches.folder}/bin:{os.path.dirname(sys.executable)}")
    assert code == 2 and "there is no mpirun in PATH" in err
