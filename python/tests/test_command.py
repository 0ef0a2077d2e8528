"""The command `penstock`, and python -m penstock: verbs of the package, and those of the program."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import penstock.machine.program as of_program
from penstock.__main__ import main, parser_of_all, verbs_of
from penstock.command import plan
from penstock.version import version

PACKAGE = Path(of_program.__file__).resolve().parents[2]
SCRIPT = ("#!{python}\nimport sys\nfrom penstock.__main__ import main\nsys.argv[0] = 'penstock'\n"
          "if __name__ == '__main__':\n    sys.exit(main())\n")  # as installers write it


def run(arguments, cwd, command=("-m", "penstock"), package=PACKAGE, **variables):
    environment = {**os.environ, "PYTHONPATH": str(package), "PENSTOCK_PROGRAM": "", **variables}
    return subprocess.run([sys.executable, *command, *arguments], cwd=cwd, env=environment, text=True,
                          capture_output=True, timeout=60)


def executable(path, text='#!/bin/sh\necho $(basename $0) "$@"\nexit 41\n'):
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_one_list_has_all_verbs_with_a_line_each(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    told = capsys.readouterr().out
    assert ended.value.code == 0 and "127" in told
    verbs = verbs_of(parser_of_all("penstock"))
    assert {"plan", "config", "deepspeed", "train", "prepare", "ckpt", "bench", "keys"} <= {*verbs}
    assert all(len(re.findall(rf"^    {verb} +\w.*$", told, re.M)) == 1 for verb in verbs)
    assert len(re.findall(r"^    ", told, re.M)) == len(verbs)


def test_it_says_its_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"penstock {version()}\n" and re.fullmatch(r"\d+\.\d+\.\d+", version())


def test_a_verb_that_is_not_there_is_named_with_its_neighbour(capsys):
    assert main(["trian"]) == 2
    assert "no verb 'trian'; did you mean 'train'?" in capsys.readouterr().err
    assert main(["quux"]) == 2
    assert "there are: doctor, plan, train" in capsys.readouterr().err


def test_verbs_of_the_program_reach_it_with_their_arguments_and_its_exit_code(tmp_path):
    named = executable(tmp_path / "named")
    for verb in of_program.VERBS:
        done = run([verb, "--help", "-x", "a b"], tmp_path, PENSTOCK_PROGRAM=str(named))
        assert (done.returncode, done.stdout) == (41, f"named {verb} --help -x a b\n")


def test_plan_of_a_configuration_is_the_programs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.conf").touch()
    (tmp_path / "ds.json").touch()
    for words in ("run.conf", "absent.json", "--json run.conf", "--model hidden=64", "--set=run.steps=1 run.conf"):
        assert plan.is_of_the_program(words.split()), words
    for words in (".", "module:make", "module:make --config ds.json", "--config=ds.json .", "--help", "--json ."):
        assert not plan.is_of_the_program(words.split()), words
    done = run(["plan", "run.conf"], tmp_path, PENSTOCK_PROGRAM=str(executable(tmp_path / "named")))
    assert (done.returncode, done.stdout) == (41, "named plan run.conf\n")


def test_the_program_is_the_wheels_then_the_checkouts_then_one_in_the_path(tmp_path):
    root, away = tmp_path / "checkout", tmp_path / "path"
    shutil.copytree(PACKAGE / "penstock", root / "python/penstock", ignore=shutil.ignore_patterns("__pycache__"))
    places = [root / "python/penstock/bin/penstock", root / "build/release/penstock", away / "penstock"]
    for place in reversed(places):
        executable(place, f"#!/bin/sh\necho {place}\n")
    (root / "run").touch()
    (root / "CMakeLists.txt").touch()

    def taken(*words):
        return run(words, tmp_path, package=root / "python", PATH=f"{away}:{os.environ['PATH']}").stdout.strip()
    for place, another in zip(places, [places[1], *places[1:]]):
        assert all(taken(*words) == str(place) for words in (["keys"], ["bench"], ["bench", "io"]))
        # For what the wheel's program lacks another one is taken, where there is one.
        assert all(taken(*words) == str(another) for words in (["train", "x.json"], ["bench", "step"]))
        place.unlink()
    executable(places[0], f"#!/bin/sh\necho {places[0]}\n")
    assert taken("train", "x.json") == str(places[0])


def test_the_command_does_not_find_itself_nor_that_of_another_environment(tmp_path):
    folders = [tmp_path / "one", tmp_path / "other"]
    script = [executable(folder / "penstock", SCRIPT.format(python=sys.executable)) for folder in folders][0]
    shutil.copytree(PACKAGE / "penstock", tmp_path / "away/penstock", ignore=shutil.ignore_patterns("__pycache__"))
    path = os.pathsep.join(["/" + "x" * 300, *map(str, folders)])  # the first cannot be looked into
    done = run(["keys"], tmp_path, [str(script)], tmp_path / "away", PATH=path)
    assert done.returncode == 127 and done.stderr.startswith("penstock keys needs the program"), done.stderr
    executable(tmp_path / "bin/penstock")
    done = run(["keys"], tmp_path, [str(script)], tmp_path / "away", PATH=f"{path}:{tmp_path}/bin:{os.environ['PATH']}")
    assert (done.returncode, done.stdout) == (41, "penstock keys\n")


def test_without_the_program_there_is_one_line_with_the_command_that_gets_it(tmp_path):
    done = run(["bench"], tmp_path, PENSTOCK_PROGRAM=str(tmp_path / "absent"))
    assert done.returncode == 127 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert "absent cannot be started: No such file" in done.stderr and f"{PACKAGE.parent}/run build" in done.stderr
    shutil.copytree(PACKAGE / "penstock", tmp_path / "away/penstock", ignore=shutil.ignore_patterns("__pycache__"))
    done = run(["train", "x.json"], tmp_path, package=tmp_path / "away", PATH="")
    assert done.returncode == 127 and "./run build" in done.stderr and "PENSTOCK_PROGRAM" in done.stderr


def test_commands_run_where_torch_does_not(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so is not there')")
    package = os.pathsep.join([str(tmp_path), str(PACKAGE)])
    assert run(["--help"], tmp_path, package=package).returncode == 0
    done = run(["plan", "module:make"], tmp_path, package=package)
    assert done.returncode == 2 and "needs torch: libcudart.so is not there" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_its_list_has_the_programs_own_verbs(tmp_path):
    program = of_program.find()
    if program is None:
        pytest.skip("there is no program here")
    told = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    listed = re.findall(r"^  (\w+) +", told.partition("Subcommands:")[2].partition("\n\n")[0], re.M)
    assert {*listed} == {*of_program.VERBS, "plan"}
