"""python -m penstock deepspeed install, remove, check; and the commands."""
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import penstock
from penstock.deepspeed import install, launcher, registered


@pytest.fixture
def environment(tmp_path):
    made = install.Environment(tmp_path / "packages", tmp_path / "bin")
    made.packages.mkdir()
    made.commands.mkdir()
    return made


def test_what_is_installed_goes_again(environment):
    assert install.state(environment).startswith("none, unless its first line")
    first = install.install(environment)
    assert install.install(environment) == first and all(each.exists() for each in first)
    assert install.state(environment) == f"Penstock's, version {registered.VERSION}, in {environment.packages}"
    (environment.commands / "deepspeed").unlink()
    assert "in part" in install.state(environment)
    install.remove(environment)
    assert list(environment.packages.iterdir()) == list(environment.commands.iterdir()) == []
    assert install.remove(environment) == []


def test_another_deepspeed_and_anothers_command_are_left_alone(environment):
    package = environment.packages / "deepspeed"
    package.mkdir()
    (package / "__init__.py").write_text("")
    with pytest.raises(penstock.UsageError, match="DeepSpeed itself is installed"):
        install.install(environment)
    assert install.state(environment) == f"DeepSpeed itself, {package / '__init__.py'}"
    (package / "__init__.py").unlink()
    (environment.commands / "deepspeed").write_text("#!/bin/sh\n")
    with pytest.raises(penstock.UsageError, match="another's command"):
        install.install(environment)
    assert install.remove(environment) == [] and (environment.commands / "deepspeed").exists()
    assert not environment.distribution.exists()


def test_in_an_environment_children_and_pip_find_it(tmp_path):
    venv.create(tmp_path, symlinks=True)
    python = tmp_path / "bin/python"
    packages = next((tmp_path / "lib").glob("python*")) / "site-packages"
    here = [str(Path(penstock.__file__).parents[1]), str(Path(pytest.__file__).parents[1])]
    (packages / "zz_others.pth").write_text("\n".join(here))  # later than what install writes

    def run(*command):
        done = subprocess.run([str(each) for each in command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout
    assert "written" in run(python, "-m", "penstock", "deepspeed", "install")
    assert "Penstock's, version" in run(python, "-m", "penstock", "deepspeed", "check")
    script = tmp_path / "train.py"
    script.write_text("import deepspeed, importlib.metadata as m, os, sys\n"
                      "print(m.version('deepspeed'), deepspeed.DeepSpeedEngine.__module__, os.environ['WORLD_SIZE'], sys.argv[1:])")
    out = run(tmp_path / "bin/deepspeed", "--master_port", "29500", "--num_gpus=1", script, "--deepspeed", "ds_config.json")
    assert out.split("\n")[0] == (f"{registered.VERSION} penstock.deepspeed.engine 1 "
                                  "['--local_rank=0', '--deepspeed', 'ds_config.json']")
    assert registered.VERSION in run(tmp_path / "bin/ds_report")
    assert "removed" in run(python, "-m", "penstock", "deepspeed", "remove")
    assert "ModuleNotFoundError" in subprocess.run([python, "-c", "import deepspeed"], capture_output=True, text=True,
                                                   check=False).stderr


@pytest.mark.parametrize("words, text", [
    (["--num_nodes=2", "train.py"], "--num_nodes 2: there is 1 host"),
    (["--include=worker-2:0,1", "train.py"], "'worker-2' is none of the hosts localhost"),
    (["--hostfile=HOSTS", "--num_gpus=8", "train.py"], "worker-1 has 4"),
    (["--include=a", "--exclude=b", "train.py"], "say one"), (["--num_gpus=2", "absent.py"], "absent.py: there is no such script")])
def test_what_cannot_be_started_is_named(words, text, tmp_path, capsys):
    (tmp_path / "hosts").write_text("worker-1 slots=4\n# none\nworker-2 slots=4\n")
    assert launcher.main([each.replace("HOSTS", str(tmp_path / "hosts")) for each in words]) == 2
    assert text in capsys.readouterr().err


def test_a_host_file_that_is_none_is_named_by_its_line(tmp_path, capsys):
    for bad in ("worker-1 slots=many", "worker-1", "a slots=1\na slots=1"):
        (tmp_path / "hosts").write_text(bad)
        assert launcher.main([f"--hostfile={tmp_path / 'hosts'}", "train.py"]) == 2
        assert f"{tmp_path / 'hosts'}, line" in capsys.readouterr().err
    assert launcher.main(["--hostfile=/nothing", "train.py"]) == 2


def test_the_environments_file_is_read(tmp_path):
    (tmp_path / ".deepspeed_env").write_text("OWN=1=2\n\nOTHER=x\n")
    (tmp_path / "train.py").write_text("import os; print(os.environ['OWN'], os.environ['OTHER'], os.environ['LOCAL_WORLD_SIZE'])")
    done = subprocess.run([sys.executable, "-c", "from penstock.deepspeed.launcher import main; main()", "train.py"], cwd=tmp_path,
                          capture_output=True, text=True, check=False)
    assert done.stdout == "1=2 x 1\n", done.stderr


def test_a_script_that_is_not_there_and_a_line_that_is_none_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert launcher.main(["absent.py"]) == 2
    assert "deepspeed: absent.py: there is no such script" in capsys.readouterr().err
    (tmp_path / ".deepspeed_env").write_text("OWN\n")
    (tmp_path / "train.py").touch()
    assert launcher.main(["train.py"]) == 2
    assert "line 1: 'OWN' is not NAME=VALUE" in capsys.readouterr().err


def test_a_module_is_started_as_python_does(tmp_path):
    (tmp_path / "own_module.py").write_text("import sys; print(__name__, sys.argv[1:])")
    done = subprocess.run([sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv.pop(1)); "
                           "from penstock.deepspeed.launcher import main; main()", str(tmp_path), "--module",
                           "--no_local_rank", "own_module", "x"], capture_output=True, text=True, check=False)
    assert done.stdout == "__main__ ['x']\n", done.stderr
