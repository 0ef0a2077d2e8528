"""Each example runs, and runs again where it has been, and prints what it says at its top; each is short."""
import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ALL = sorted(EXAMPLES.glob("*.py"))
COMPILED = ("tensors.c", "tensors.cpp", "engine.cpp")  # run by tests/install and tests/zero_infinity/engine


def promised(text):
    """The lines behind "prints", and those behind "run again" (where there are none, the same): patterns, "..." stands
    for the rest of a number."""
    first, _, again = ast.get_docstring(ast.parse(text)).split("prints", 1)[1].partition("run again")
    lines = [[re.escape(line.strip()).replace(r"\.\.\.", r".*") for line in part.split("\n") if line.startswith("    ")]
             for part in (first, again)]
    return lines[0], lines[1] or lines[0]


def own_environment():
    """Without what launchers set: other tests of this process have begun process groups and DeepSpeed's plugins. And with the
    loops of torch's choice: told to take the plainest ones it cannot attend in bfloat16 where a processor has AMX."""
    others = ("RANK", "LOCAL_", "WORLD_SIZE", "MASTER_", "ACCELERATE_", "DS_", "ATEN_CPU_CAPABILITY")
    return {name: value for name, value in os.environ.items() if not name.startswith(others)}


def run(example, place):
    done = subprocess.run([sys.executable, str(example), str(place)], capture_output=True, text=True, check=False,
                          env={**own_environment(), "CUDA_VISIBLE_DEVICES": ""}, cwd=place.parent)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("example", ALL, ids=lambda each: each.name)
def test_it_prints_what_it_says_and_goes_on(example, tmp_path):
    place = tmp_path / "place"
    for wanted in promised(example.read_text()):
        printed = run(example, place)
        assert wanted
        for line in wanted:
            line = re.sub("/nvme/[a-z]+", str(place), line)
            assert re.search(f"^{line}$", printed, re.MULTILINE), (line, printed)


def test_each_is_short_and_listed():
    page = (EXAMPLES / "README.md").read_text()
    for example in (*ALL, *(EXAMPLES / name for name in COMPILED)):
        lines = example.read_text().splitlines()
        assert f"({example.name})" in page and len(lines) <= 60, example.name
        assert max(map(len, lines)) <= 120, example.name
