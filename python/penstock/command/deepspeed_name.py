"""python -m penstock deepspeed install, remove, check."""
from __future__ import annotations

import argparse
from typing import Any


def add(verbs: Any) -> None:
    """To the parser of all verbs."""
    own = verbs.add_parser("deepspeed", help="the name deepspeed in this environment: install, remove, check",
                           description="Makes `import deepspeed`, the distribution and the command of that name Penstock's, "
                                       "for programs that start processes (accelerate launch, deepspeed, torchrun).")
    own.add_argument("what", choices=["install", "remove", "check"])
    own.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints what it did; the exit code."""
    from ..deepspeed import install  # registers the name, which check must not see

    environment = install.Environment.of_this_python()
    if options.what == "check":
        print(f"a program of {environment.packages} gets: {install.state(environment)}")
        return 0
    done = install.install(environment) if options.what == "install" else install.remove(environment)
    for path in done:
        print(f"{'written' if options.what == 'install' else 'removed'}: {path}")
    if not done:
        print("there was nothing to remove")
    return 0
