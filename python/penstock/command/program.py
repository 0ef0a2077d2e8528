"""The verbs of the C++ program `penstock`: it takes the place of this process, with its arguments as they are."""
from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

VERBS = {"ckpt": "list, show, verify, mend and keep what a training has committed",
         "bench": "measure this machine and Penstock on it"}
NAME, VARIABLE = "penstock", "PENSTOCK_PROGRAM"
NOT_FOUND = 127  # as shells say


def add(verbs: Any) -> None:
    """For --help; their arguments are the program's."""
    for verb, what in VERBS.items():
        verbs.add_parser(verb, help=f"{what} (by the program {NAME})", add_help=False)


def run(arguments: list[str]) -> int:
    """Returns only where there is no program that can be started."""
    path = find()
    problem = ""
    if path is not None:
        sys.stdout.flush()
        try:
            os.execv(path, [NAME, *arguments])
        except OSError as error:
            problem = f"{path} cannot be started: {error.strerror}"
    print(f"python -m penstock {arguments[0]} needs the program {NAME}, "
          f"{'and ' + problem if problem else 'which is neither in PATH nor built in this checkout'}: name it in "
          f"{VARIABLE}, or build it (./run build) and put build/release into PATH", file=sys.stderr)
    return NOT_FOUND


def find() -> str | None:
    """Named by PENSTOCK_PROGRAM; in PATH; or built in the checkout that this package lies in."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    built = Path(__file__).resolve().parents[3] / "build/release" / NAME
    return shutil.which(NAME) or (str(built) if built.is_file() else None)
