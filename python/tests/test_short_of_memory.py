"""A machine that is too small: where a program's graphs do not fit, it goes on with some of them recomputed, and says so."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cores import NATIVE

pytestmark = pytest.mark.skipif(not NATIVE, reason="the room is the machine's")

SCRIPTS = Path(__file__).resolve().parent / "scripts"
PYTHON_PATH = os.pathsep.join((str(SCRIPTS.parent), str(SCRIPTS.parents[1])))
ROOTS = {Path("/sys/fs/cgroup/memory"): "memory.limit_in_bytes", Path("/sys/fs/cgroup"): "memory.max"}


class Group:
    """A control group of this test's own, whose processes may take so much memory."""

    def __init__(self, limit_bytes: int) -> None:
        root, name = next((root, name) for root, name in ROOTS.items() if root.is_dir())
        self.folder = root / f"penstock-test-{os.getpid()}"
        self.folder.mkdir()
        try:
            (self.folder / name).write_text(str(limit_bytes))
            if (self.folder / "memory.swap.max").exists():
                (self.folder / "memory.swap.max").write_text("0")
        except OSError:
            self.folder.rmdir()
            raise

    def enter(self) -> None:
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))


@pytest.fixture
def groups() -> Iterator[list[Group]]:
    made: list[Group] = []
    yield made
    for each in made:
        each.folder.rmdir()


def run(word: str, folder: Path, group: Group | None = None) -> tuple[int, dict, str]:
    done = subprocess.run([sys.executable, str(SCRIPTS / "hungry.py"), word, str(folder), "2"], capture_output=True,
                          text=True, preexec_fn=None if group is None else group.enter,
                          env={**os.environ, "PYTHONPATH": PYTHON_PATH, "MALLOC_ARENA_MAX": "1"})
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def test_in_half_of_what_it_wants_a_program_trains_on_and_says_what_is_recomputed(tmp_path, groups):
    code, wanted, said = run("auto", tmp_path / "whole")
    assert code == 0 and wanted["given_up"] == 0, said
    try:
        groups.append(Group(wanted["peak_bytes"] // 2))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    if run("torch", tmp_path / "torch", groups[0])[0] != -9:  # killed without a word
        pytest.skip("a control group does not limit a process here")
    code, found, said = run("auto", tmp_path / "half", groups[0])
    assert code == 0, said
    assert found["given_up"] > 0 and found["losses"] == wanted["losses"] and found["weights"] == wanted["weights"]
    assert "memory is short: graphs of" in said and "recomputed in backward" in said
