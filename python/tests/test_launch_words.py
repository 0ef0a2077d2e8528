"""What is said to penstock launch: hostfiles, filters, lists of cores, files of variables. tests/peers/launcher.py
compares with DeepSpeed's own."""
from __future__ import annotations

import argparse

import pytest

from penstock.errors import UsageError
from penstock.launch import arguments, cores, environment, filters, gpus, mpi, rank, slots, slurm, start
from penstock.launch.hostfile import hosts_of
from penstock.launch.job import Job, variables_of

TWO = hosts_of("worker-1 slots=4\nworker-2 slots=2\n", "hosts")


def options(*words):
    parser = argparse.ArgumentParser()
    arguments.add_arguments(parser)
    return parser.parse_args([*words, "train.py"])


def said(hosts):
    return filters.said_of(hosts)


def test_a_hostfile_has_comments_and_words_of_open_mpi():
    text = "# all\n\nworker-1\t slots=4 # four\n 10.0.0.2 slots=1 max_slots=2\n"
    assert said(hosts_of(text, "hosts")) == "worker-1:0,1,2,3@10.0.0.2:0"
    assert said(hosts_of("a slots=1 # \f x slots=1\u2028y slots=1\r\nb slots=1\r\n", "hosts")) == "a:0@b:0"


@pytest.mark.parametrize("line, why", [
    ("b", "is not HOST slots=NUMBER"), ("b slots=x", "is not HOST"), ("b slots = 2", "is not HOST"),
    ("b slots=2x", "is not HOST"), ("b c slots=2", "is not HOST"), ("slots=2", "is not HOST"), 
    ("b slots=2 and more", "is not HOST"), ("b slots=-1", "is not HOST"), ("b slots=0", "has no slots"),
    ("a slots=1", "a has a line already")])
def test_a_wrong_line_is_named_with_number_and_text(line, why):
    with pytest.raises(UsageError) as told:
        hosts_of(f"# hosts\na slots=2\n{line}\n", "my/hosts")
    assert str(told.value).startswith(f"my/hosts, line 3: '{line}'") and why in str(told.value)


def test_a_hostfile_without_a_host_is_named():
    with pytest.raises(UsageError, match="hosts names no host"):
        hosts_of("# none\n", "hosts")


@pytest.mark.parametrize("filtered, text, left", [
    (filters.included, "worker-2:0,1", "worker-2:0,1"),
    (filters.included, "worker-2@worker-1:0,2", "worker-1:0,2@worker-2:0,1"),
    (filters.included, "worker-1:3,0,0@worker-1:2", "worker-1:0,2,3"),
    (filters.included, "worker-1: 1 , 0", "worker-1:0,1"),
    (filters.included, "worker-2@worker-2", "worker-2:0,1"), (filters.excluded, "worker-2@worker-2", "worker-1:0,1,2,3"),
    (filters.excluded, "worker-2", "worker-1:0,1,2,3"),
    (filters.excluded, "worker-2:0@worker-1:0,1", "worker-1:2,3@worker-2:1"),
    (filters.excluded, "worker-2:0,1", "worker-1:0,1,2,3")])
def test_filters_take_hosts_and_slots_in_the_hosts_order(filtered, text, left):
    assert said(filtered(TWO, text)) == left


@pytest.mark.parametrize("filtered, text, why", [
    (filters.included, "worker-3", "'worker-3' is none of the hosts worker-1, worker-2"),
    (filters.excluded, "worker-2:0@worker-3:0,1", "'worker-3' is none"),
    (filters.included, "worker-2:2", "has no slot 2; it has 0 to 1"),
    (filters.included, "worker-2:", "'' is no list of slots"), (filters.included, "worker-2:0:1", "'0:1' is no list"),
    (filters.included, "worker-2:-1", "'-1' is no list"), (filters.included, "worker-2:+1", "'+1' is no list"),
    (filters.included, "worker-1:0@worker-1:1@worker-1", "names worker-1 twice"),
    (filters.included, "worker-1@worker-1:2", "names worker-1 twice"),
    (filters.included, "worker-1:2@worker-1", "names worker-1 twice"), (filters.included, "worker-1@", "'' is none"),
    (filters.excluded, "worker-1@worker-2", "leaves no slot")])
def test_a_filter_that_names_nothing_is_named(filtered, text, why):
    with pytest.raises(UsageError) as told:
        filtered(TWO, text)
    assert f"clude {text}" in str(told.value) and why in str(told.value)


def test_the_first_hosts_and_slots_are_counted():
    assert said(filters.first(TWO, 1, 2)) == "worker-1:0,1" and filters.first(TWO, None, None) == TWO
    assert said(filters.first(TWO, None, 1)) == "worker-1:0@worker-2:0"
    for words, why in (((3, None), "there are 2 hosts"), ((None, 3), "worker-2 has 2"),
                       ((0, None), "--num_nodes 0 starts nothing")):
        with pytest.raises(UsageError, match=why):
            filters.first(TWO, *words)
    assert filters.hosts_said(said(TWO)) == TWO


@pytest.mark.parametrize("words, why", [
    ("--include=a --exclude=b", "--include a and --exclude b: say one"),
    ("--include=a --num_gpus=0", "--include a and --num_gpus 0"),
    ("--module --no_python", "run by Python"), ("--bind_core_list=0", "--bind_cores_to_rank"), ("--no_ssh", "say both"),
    ("--node_rank=1", "say both"), ("--launcher=impi", "--launcher impi: there are ssh, openmpi, slurm"),
    ("--launcher_args=\"x", "No closing quotation"), ("--master_port=70000", "is no port")])
def test_words_that_do_not_go_together_are_named(words, why):
    with pytest.raises(UsageError) as told:
        arguments.check(options(*words.split()))
    assert why in str(told.value)


@pytest.mark.parametrize("word, instead", [("--autotuning=tune", "penstock plan"),
                                           ("--elastic_training", "torchrun --nnodes MIN:MAX"),
                                           ("--max_elastic_nodes=4", "torchrun"),
                                           ("--slurm_comment=x", "--launcher_args")])
def test_words_of_what_is_elsewhere_say_where(word, instead, capsys):
    with pytest.raises(SystemExit) as ended:
        options(word)
    assert ended.value.code == 2 and instead in capsys.readouterr().err


def test_deepspeeds_other_words_mean_what_they_meant():
    for words in (["--launcher=pdsh"], ["--launcher=PDSH"], ["--enable_each_rank_log=None"], ["--log_level=error"]):
        chosen = options(*words)
        arguments.check(chosen)
        assert (chosen.launcher, chosen.enable_each_rank_log) == ("ssh", "")
        assert chosen.quiet == (words == ["--log_level=error"])


def taken(*words, gpu_count=0, **variables):
    told = []
    gpus.count.cache_clear()
    chosen = options(*words)
    hosts = slots.taken(chosen, told.append, variables)
    return said(hosts), slots.visible_to(hosts[0], variables, bool(chosen.include or chosen.num_gpus >= 0)), told


def test_slots_of_this_machine_are_its_gpus_or_processes(monkeypatch):
    monkeypatch.setattr(cores, "usable", lambda: (0, 1))
    monkeypatch.setattr(slots, "usable", lambda: (0, 1))
    monkeypatch.setattr(slots.os.path, "isfile", lambda path: False)
    monkeypatch.setattr(gpus, "DRIVERS", ())
    assert taken() == ("localhost:0", {}, [])
    assert taken("--num_gpus=3") == ("localhost:0,1,2", {}, [])
    assert taken("--include=localhost:1") == ("localhost:1", {}, [])
    monkeypatch.setattr(gpus, "DRIVERS", ("/proc",))
    monkeypatch.setattr(gpus, "COUNT", "print(4)")
    assert taken() == ("localhost:0,1,2,3", {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, [])
    assert taken("--include=localhost:2,3") == ("localhost:2,3", {"CUDA_VISIBLE_DEVICES": "2,3"}, [])
    assert taken("--exclude=localhost:0")[0] == "localhost:1,2,3"
    # What the user sees is taken as it is, numbers or names.
    assert taken(CUDA_VISIBLE_DEVICES="GPU-77,MIG-1") == ("localhost:0,1", {}, [])
    found, visible, told = taken("--num_gpus=1", CUDA_VISIBLE_DEVICES="2,3")
    assert (found, visible) == ("localhost:0", {"CUDA_VISIBLE_DEVICES": "0"})
    assert "CUDA_VISIBLE_DEVICES=2,3 does not count" in told[0]
    with pytest.raises(UsageError, match="--num_gpus 5: localhost has 4"):
        taken("--num_gpus=5")
    monkeypatch.setattr(gpus, "COUNT", "raise SystemExit('no driver')")
    with pytest.raises(UsageError, match="torch cannot say how many there are: no driver; say --num_gpus"):
        taken()


def test_ranks_of_uneven_hosts_are_numbered_one_after_the_other():
    job = Job(TWO, "10.0.0.1", 29501)
    ranks = [variables_of(job, node, local)["RANK"] for node, local in ((0, 0), (0, 3), (1, 0), (1, 1))]
    assert ranks == ["0", "3", "4", "5"]
    assert variables_of(job, 1, 1) == {
        "RANK": "5", "WORLD_SIZE": "6", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "LOCAL_SIZE": "2",
        "NODE_RANK": "1", "GROUP_RANK": "1", "CROSS_RANK": "1", "GROUP_WORLD_SIZE": "2", "CROSS_SIZE": "2",
        "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29501"}


def test_lists_and_shares_of_cores(monkeypatch):
    assert cores.listed("0,2-4,6") == (0, 2, 3, 4, 6)
    for wrong in ("", "1,1", "3-2", "2-4,4", "a", "1 ,2", "-1", "0,"):
        with pytest.raises(UsageError, match="--bind_core_list"):
            cores.listed(wrong)
    assert cores.shares((0, 2, 4, 6, 8), 2) == [(0, 2), (4, 6)]
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: {1, 3})
    with pytest.raises(UsageError, match="core 2 is not one that this process may use; those are 1, 3"):
        cores.chosen("1-2")


def test_two_processors_of_one_core_are_one(tmp_path, monkeypatch):
    monkeypatch.setattr(cores, "SIBLINGS", str(tmp_path / "{}"))
    for number, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        (tmp_path / str(number)).write_text(f"{siblings}\n")
    assert cores.one_of_each_core(range(5)) == (0, 1, 4)


def test_a_file_of_variables_is_lines_of_name_and_value():
    text = "# ours\n\nA=1=2\nB = two words \nC=\"quoted  \"\nD='it''s'\nE=\n"
    assert environment.values_of(text, "f") == {"A": "1=2", "B": "two words", "C": "quoted  ", "D": "it''s", "E": ""}
    for wrong in ("export A=1", "A", "1A=2", "=x"):
        with pytest.raises(UsageError) as told:
            environment.values_of(f"A=1\n{wrong}\n", "my_env")
        assert str(told.value) == f"my_env, line 2: '{wrong}' is not NAME=VALUE"


def test_files_of_variables_are_of_home_and_then_of_here(tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DS_ENV_FILE", raising=False)
    monkeypatch.chdir(tmp_path)
    assert environment.of_files() == {}
    (tmp_path / "home/.deepspeed_env").write_text("A=home\nB=home\n")
    (tmp_path / ".deepspeed_env").write_text("A=here\n")
    assert environment.of_files() == {"A": "here", "B": "home"}


def test_other_hosts_get_the_variables_of_libraries():
    own = {"PYTHONPATH": "/x", "NCCL_DEBUG": "INFO", "MLFLOW_URI": "u", "UCX_TLS": "tcp", "HOME": "/h", "XNCCL": "1"}
    assert environment.exported(own, "/here") == {"PYTHONPATH": "/here:/x", "NCCL_DEBUG": "INFO", "MLFLOW_URI": "u",
                                                  "UCX_TLS": "tcp"}
    assert environment.exported({}, "/here") == {"PYTHONPATH": "/here"}


def test_slurms_counts_of_tasks():
    assert slurm.tasks_of("4(x2),3") == [4, 4, 3] and slurm.tasks_of("1") == [1]


def test_the_program_over_ranks_is_started_by_mpi_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_PROGRAM", "/opt/penstock")
    parser = argparse.ArgumentParser()
    arguments.add_arguments(parser)
    chosen = parser.parse_args(["--launcher_args=--mca x 1", "train", "c.json", "--set", "a=b"])
    program = ["/opt/penstock", "train", "c.json", "--set", "a=b"]
    assert mpi.mpirun(Job(TWO), chosen, {"UCX_TLS": "tcp"}, "hosts") == [
        "mpirun", "-n", "6", "--hostfile", "hosts", "--map-by", "slot", "--mca", "btl", "^openib", "--mca", "x", "1",
        "-x",
        "UCX_TLS=tcp", *program]
    chosen.launcher_args = "--mpi=pmi2"
    of_slurm = mpi.srun(Job(filters.first(TWO, None, 2)), chosen, {})
    assert of_slurm[-5:] == program and of_slurm[-7:-5] == ["--mpi=pmix", "--mpi=pmi2"], "the user's counts, as it is later"
    start.choose_mpi(chosen)
    assert chosen.launcher == "openmpi"


def test_a_rank_of_neither_mpi_nor_slurm_is_named():
    with pytest.raises(UsageError, match="neither mpirun nor srun"):
        rank.variables_of({"SLURM_PROCID": "0"})
