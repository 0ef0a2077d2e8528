"""The C++ program `penstock`: its verbs, and where it is."""
from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..version import PACKAGE, checkout

VERBS = {"train": "train a model of the program's own, or resume its training",
         "prepare": "turn text files into a token file",
         "ckpt": "list, show, verify, mend and keep what a training has committed",
         "bench": "measure this machine and Penstock on it",
         "keys": "print the reference of all configuration keys"}
# What the wheel's lacks and refuses with what has it (trainer/engine_verbs_none.cpp, bench/absent_verbs.cpp).
NOT_IN_THE_WHEEL = (("train",), ("plan",), ("bench", "step"))
NAME, VARIABLE = "penstock", "PENSTOCK_PROGRAM"
OWN_COMMAND = b"penstock.__main__"  # in the script that installers write for the command `penstock`


def remedy() -> str:
    """How to get it."""
    root = checkout()
    if root is not None:
        return f"build it ({root}/run build), or name one in {VARIABLE}"
    return f"say ./run build in a checkout of Penstock, and name its build/release/{NAME} in {VARIABLE}"


def find(words: Sequence[str] = ()) -> str | None:
    """Named by PENSTOCK_PROGRAM; else the wheel's; built in the checkout that this package lies in; or in PATH, where
    the command `penstock` of any Python is passed over: it would look for the program again. The wheel's comes last for
    words that it lacks."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    last = any(tuple(words[:len(lacked)]) == lacked for lacked in NOT_IN_THE_WHEEL)
    of_the_wheel = PACKAGE / "bin" / NAME
    places = [*_other_places(), of_the_wheel] if last else [of_the_wheel, *_other_places()]
    return next((str(path) for path in places if os.path.isfile(path) and os.access(path, os.X_OK)
                 and not _is_own_command(path)), None)


def _other_places() -> Iterator[Path]:
    root = checkout()
    if root is not None:
        yield root / "build/release" / NAME
    for folder in os.get_exec_path():
        yield Path(folder) / NAME


def _is_own_command(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return OWN_COMMAND in file.read(4096)
    except OSError:
        return False  # it may be run all the same
