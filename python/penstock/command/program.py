"""The verbs of the C++ program `penstock`: it takes the place of this process, with its arguments as they are."""
from __future__ import annotations

import os
import sys
from typing import Any

from ..machine.program import NAME, VERBS, find, remedy
from ..version import checkout

NOT_FOUND = 127  # as shells say


def add(verbs: Any) -> None:
    """For --help; their arguments are the program's."""
    for verb, what in VERBS.items():
        verbs.add_parser(verb, help=f"{what} (by the program)", add_help=False)


def run(arguments: list[str], called: str = NAME) -> int:
    """Returns only where there is no program that can be started."""
    path = find(arguments)
    problem = f"which is neither in the wheel nor in PATH{' nor built in this checkout' if checkout() else ''}"
    if path is not None:
        sys.stdout.flush()
        try:
            os.execv(path, [NAME, *arguments])
        except OSError as error:
            problem = f"and {path} cannot be started: {error.strerror}"
    print(f"{called} {arguments[0]} needs the program {NAME}, {problem}: {remedy()}", file=sys.stderr)
    return NOT_FOUND
