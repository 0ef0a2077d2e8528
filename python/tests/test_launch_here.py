"""penstock launch on this machine: what processes are told, and how all of them end."""
from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from launched import PACKAGE, Launches, gone, within


@pytest.fixture
def launches(tmp_path):
    made = Launches(tmp_path)
    yield made
    made.close()


def stop_when_both_sleep(launches, launch, number=signal.SIGTERM):
    for rank in "01":
        launches.pid(rank)
    launch.send_signal(number)


def test_each_process_is_told_who_it_is(launches):
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LOCAL_SIZE", "NODE_RANK", "CROSS_SIZE",
             "MASTER_ADDR")
    code, out, err = launches.run("--num_gpus", "2", "child.py", *(f"all:env={each}" for each in names), "1:args")
    assert (code, err) == (0, "")
    said = dict(zip(names, ("{}", "2", "{}", "2", "2", "0", "1", "127.0.0.1")))
    assert out[:-1] == sorted(f"{rank}: {name}={value.format(rank)}" for rank in "01" for name, value in said.items())
    assert out[-1].startswith("1: ['--local_rank=1', 'all:env=RANK'")


def test_without_a_gpu_there_is_one_process_with_all_cores(launches):
    code, out, _ = launches.run("--no_local_rank", "child.py", "all:env=WORLD_SIZE", "all:env=OMP_NUM_THREADS",
                                "all:args", "--num_gpus", "5")
    assert code == 0 and out[0] == "0: OMP_NUM_THREADS=None" and out[1] == "0: WORLD_SIZE=1"
    assert out[2].endswith("'--num_gpus', '5']")


def test_cores_are_shared_unless_the_user_says_otherwise(launches):
    cores = len(os.sched_getaffinity(0))
    asked = ("--num_gpus", "2", "child.py", "0:env=OMP_NUM_THREADS")
    assert launches.run(*asked)[1] == [f"0: OMP_NUM_THREADS={max(1, cores // 2)}"]
    assert launches.run(*asked, OMP_NUM_THREADS="7")[1] == ["0: OMP_NUM_THREADS=7"]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="wants two cores")
def test_processes_are_bound_to_cores_of_their_own(launches):
    first, second, *_ = sorted(os.sched_getaffinity(0))
    code, out, _ = launches.run("--num_gpus=2", "--bind_cores_to_rank", f"--bind_core_list={first},{second}",
                                "child.py", "all:cores", "all:env=OMP_NUM_THREADS", OMP_NUM_THREADS="9")
    assert out == ["0: OMP_NUM_THREADS=1", f"0: cores [{first}]", "1: OMP_NUM_THREADS=1", f"1: cores [{second}]"]


def test_modules_and_programs_are_started_too(launches):
    (launches.folder / "own").mkdir()
    (launches.folder / "own/part.py").write_text("import sys; print(__name__, sys.argv[1:])")
    assert launches.run("--module", "own.part", "x")[1] == ["__main__ ['--local_rank=0', 'x']"]
    launches.program("own_program", "#!/bin/sh\necho $RANK \"$@\"\n")
    assert launches.run("--no_python", "--no_local_rank", "own_program", "a b")[1] == ["0 a b"]


def test_the_environments_file_counts_here_too(launches):
    (launches.folder / ".deepspeed_env").write_text("# ours\n\nOWN=a b\n")
    assert launches.run("child.py", "0:env=OWN")[1] == ["0: OWN=a b"]
    (launches.folder / "other").write_text("OWN='c'\n")
    assert launches.run("child.py", "0:env=OWN", DS_ENV_FILE="other")[1] == ["0: OWN=c"]
    code, out, err = launches.run("child.py", "0:env=OWN", DS_ENV_FILE="absent")
    assert (code, out) == (2, []) and "DS_ENV_FILE is absent" in err


def test_each_rank_has_a_log_of_its_own(launches):
    code, out, _ = launches.run("--num_gpus=2", "--enable_each_rank_log=logs", "child.py", "all:env=RANK")
    assert (code, out) == (0, [])
    logs = sorted((launches.folder / "logs").iterdir(), key=lambda each: each.name[-5:])
    assert [each.read_text() for each in logs] == ["0: RANK=0\n", "1: RANK=1\n"]
    assert [each.name.partition("_")[2] for each in logs] == ["rank0.log", "rank1.log"]


def test_the_launchers_id_is_in_a_file_while_it_runs(launches):
    launch = launches.begin("--save_pid", "child.py", "0:wait=go")
    launches.pid("0")
    path = f"/tmp/{launch.pid}.deepspeed"
    with open(path) as file:
        assert file.read() == str(launch.pid)
    (launches.folder / "go").touch()
    assert launches.end(launch)[0] == 0 and not os.path.exists(path)


def test_a_port_in_use_is_another_or_refused_by_name(launches):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen(1)
        port = str(taken.getsockname()[1])
        code, out, err = launches.run("--num_gpus=2", "--master_port", port, "child.py", "all:env=RANK")
    assert (code, out) == (2, []) and f"--master_port {port} is in use" in err


def test_standard_input_reaches_the_process(launches):
    launch = launches.begin("child.py", "0:reads")
    assert launch.communicate("a line\n", timeout=20)[0] == "0: read 'a line\\n'\n"


@pytest.mark.parametrize("action, code, said", [
    ("exit=3", 3, "ended with exit code 3"), ("kill=9", 137, "was ended by SIGKILL, for a lack of memory perhaps"),
    ("kill=6", 134, "was ended by SIGABRT"), ("exit=255", 255, "ended with exit code 255")])
def test_one_that_ends_badly_ends_all_and_is_named_once(launches, action, code, said):
    ended, out, err = launches.run("--num_gpus=3", "child.py", "0:sleep", "2:sleep", "0:starts", "1:wait=pid.0",
                                   "1:wait=pid.2", f"1:{action}")
    assert ended == code and err.count("penstock launch:") == 1, err
    assert f"rank 1, process {launches.pid('1')}, {said}" in err and err.endswith("; the other 2 are ended\n")
    assert all(gone(launches.pid(each)) for each in ("0", "2"))
    assert within(lambda: gone(launches.pid("grandchild")))


def test_one_that_ends_well_ends_nobody(launches):
    assert launches.run("--num_gpus=2", "child.py", "0:exit=0", "1:after=0.3", "1:env=RANK")[:2] == (0, ["1: RANK=1"])


def test_who_ended_because_of_another_is_not_the_cause(launches):
    code, _, err = launches.run("--num_gpus=3", "child.py", "0:exit=7", "1:wait=pid.0", "1:after=0.2", "1:exit=5",
                                "2:sleep")
    assert code == 5 and "rank 1" in err and "rank 0" not in err
    code, _, err = launches.run("--num_gpus=2", "child.py", "all:exit=7")
    assert code == 7 and err.count("exit code 7") == 1
    code, _, err = launches.run("--num_gpus=2", "child.py", "0:exit=7", "1:sleep")
    assert code == 7 and "rank 0" in err and gone(launches.pid("1"))


def test_one_that_stops_stops_all(launches):
    """A scheduler's SIGTERM to one: the others are waited for, then asked."""
    code, out, err = launches.run("--num_gpus=2", "child.py", "1:wait=pid.0", "1:exit=75", "0:stops", "0:sleep")
    assert code == 75 and out == ["0 stops"] and "rank 1" in err and "has stopped" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_reaches_all_once_and_their_exit_code_is_kept(launches, number):
    launch = launches.begin("--num_gpus=2", "child.py", "all:stops", "all:sleep")
    stop_when_both_sleep(launches, launch, number)
    assert launches.end(launch) == (75, ["0 stops", "1 stops"], "")


def test_scripts_that_know_no_stop_end_by_the_signal(launches):
    launch = launches.begin("--num_gpus=2", "child.py", "all:sleep")
    stop_when_both_sleep(launches, launch)
    assert launches.end(launch)[0] == 143


def test_one_that_breaks_while_all_stop_is_named(launches):
    launch = launches.begin("--num_gpus=2", "child.py", "0:stops=4", "1:ignore", "all:sleep")
    stop_when_both_sleep(launches, launch)
    code, _, err = launches.end(launch)
    assert code == 4 and "rank 0" in err and "rank 1: not ended in time, and killed" in err


def test_who_ignores_sigterm_is_killed(launches):
    code, _, err = launches.run("--num_gpus=2", "child.py", "0:ignore", "0:sleep", "1:wait=pid.0", "1:exit=3")
    assert code == 3 and "rank 0: not ended in time, and killed" in err and gone(launches.pid("0"))


def test_a_second_signal_is_passed_on_and_a_third_kills(launches):
    launch = launches.begin("--num_gpus=2", "child.py", "all:ignore", "all:sleep")
    stop_when_both_sleep(launches, launch)
    assert not within(lambda: launch.poll() is not None, 1.5)  # a training may take its time
    for _ in range(2):
        launch.send_signal(signal.SIGTERM)
        within(lambda: launch.poll() is not None, 0.1)
    assert launches.end(launch)[0] == 137 and gone(launches.pid("0")) and gone(launches.pid("1"))


def test_a_launcher_that_is_killed_takes_its_processes_with_it(launches):
    launch = launches.begin("--num_gpus=2", "child.py", "all:ignore", "all:sleep")
    stop_when_both_sleep(launches, launch, signal.SIGKILL)
    assert within(lambda: gone(launches.pid("0")) and gone(launches.pid("1")), 5)


def test_a_terminals_sigint_comes_once(launches):
    launch = launches.begin("--num_gpus=2", "child.py", "all:stops", "all:sleep")
    for rank in "01":
        assert os.getpgid(launches.pid(rank)) != os.getpgid(launch.pid)
    os.killpg(launch.pid, signal.SIGINT)
    assert launches.end(launch) == (75, ["0 stops", "1 stops"], "")


def test_processes_of_torch_meet(launches):
    """At another port than the usual one, which is in use."""
    (launches.folder / "sum.py").write_text("import os, torch, torch.distributed as d; d.init_process_group('gloo')\n"
                                            "x = torch.ones(1) + d.get_rank(); d.all_reduce(x)\n"
                                            "os.write(1, b'%d\\n' % int(x)); d.destroy_process_group()\n")
    with socket.socket() as taken:
        taken.bind(("", launches.port))
        taken.listen(1)
        code, out, err = launches.run("--no_local_rank", "--num_gpus=2", "sum.py")
    assert (code, out) == (0, ["3", "3"]), err
    assert err.startswith(f"penstock launch: port {launches.port} is in use: rank 0 listens at")


@pytest.mark.parametrize("words, said", [
    ("absent.py", "absent.py: there is no such script"), ("--module absent.part", "Python finds no absent"),
    ("--no_python ./child.py", "not executable"),
    ("--include=other:0 child.py", "'other' is none of the hosts localhost"),
    ("--include=localhost:4096 child.py", "localhost has no slot 4096"), ("--num_nodes=2 child.py", "there is 1 host"),
    ("--hostfile=absent child.py", "--hostfile absent: No such file"),
    ("--num_gpus=0 child.py", "--num_gpus 0 starts nothing"),
    ("--num_gpus=4096 --bind_cores_to_rank child.py", "4096 processes and"),
    ("--num_gpus=2 --enable_each_rank_log=child.py child.py", "--enable_each_rank_log child.py"),
    ("--no_ssh --node_rank=1 child.py", "--node_rank 1: there are 1 hosts")])
def test_what_cannot_be_is_named_and_starts_nothing(launches, words, said):
    code, out, err = launches.run(*words.split(), "all:env=RANK")
    assert (code, out) == (2, []) and said in err and len(err.splitlines()) == 1


def test_the_program_is_started_by_itself_as_one_process(launches):
    launches.program("penstock", "#!/bin/sh\necho $WORLD_SIZE \"$@\"\n")
    own = {"PENSTOCK_PROGRAM": f"{launches.folder}/bin/penstock"}
    assert launches.run("train", "c.json", "--set", "x", **own)[:2] == (0, ["1 train c.json --set x"])


def test_several_of_the_program_are_started_by_mpirun(launches):
    launches.program("penstock", "#!/bin/sh\n")
    launches.program("mpirun", '#!/bin/sh\necho mpirun "$@"\n')
    own = {"PENSTOCK_PROGRAM": f"{launches.folder}/bin/penstock", "PATH": f"{launches.folder}/bin:{os.environ['PATH']}"}
    code, out, _ = launches.run("--num_gpus=2", "--enable_each_rank_log=logs", "train", "c.json", **own)
    assert code == 0 and out[0].startswith("mpirun -n 2 --hostfile ")
    assert out[0].endswith(f"{own['PENSTOCK_PROGRAM']} train c.json --rank-logs logs")
    code, out, err = launches.run("--num_gpus=2", "--no_ssh", "--node_rank=0", "train", "c.json", **own)
    assert (code, out) == (2, []) and "mpirun starts the processes of all hosts; leave out --no_ssh" in err


def test_a_launch_imports_no_torch(launches):
    told = subprocess.run([sys.executable, "-X", "importtime", "-m", "penstock", "launch", "child.py", "0:exit=0"],
                          text=True, cwd=launches.folder, capture_output=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(PACKAGE)})
    assert "penstock.launch.children" in told.stderr and " torch" not in told.stderr
