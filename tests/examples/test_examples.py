"""Each example runs, and prints what it says at its top; each is short."""
import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ALL = sorted(EXAMPLES.glob("*.py"))


def promised(text):
    """The lines behind "prints", as patterns: "..." stands for the rest of a number."""
    lines = ast.get_docstring(ast.parse(text)).split("prints", 1)[1].split("\n    ")[1:]
    lines = [line.split("\n")[0].rstrip() for line in lines]
    return [re.escape(line).replace(r"\.\.\.", r".*") for line in lines if line]


def own_environment():
    """Without what launchers set: other tests of this process have begun process groups and DeepSpeed's plugins."""
    launchers = ("RANK", "LOCAL_", "WORLD_SIZE", "MASTER_", "ACCELERATE_", "DS_")
    return {name: value for name, value in os.environ.items() if not name.startswith(launchers)}


def run(example, place):
    done = subprocess.run([sys.executable, str(example), str(place)], capture_output=True, text=True, check=False,
                          env={**own_environment(), "CUDA_VISIBLE_DEVICES": ""}, cwd=place.parent)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("example", ALL, ids=lambda each: each.name)
def test_it_prints_what_it_says(example, tmp_path):
    place = tmp_path / "place"
    printed, wanted = run(example, place), promised(example.read_text())
    assert wanted
    for line in wanted:
        assert re.search(f"^{line.replace('/nvme/loop', str(place))}$", printed, re.MULTILINE), (line, printed)


def test_a_loop_goes_on(tmp_path):
    for number in range(2):
        assert f"{5 * number} steps so far" in run(EXAMPLES / "torch_loop.py", tmp_path / "place")


def test_each_is_short_and_listed():
    page = (EXAMPLES / "README.md").read_text()
    for example in ALL:
        assert f"({example.name})" in page and len(example.read_text().splitlines()) <= 60, example.name
