"""python -m penstock: what can be asked without a training.

Exit codes are the program's: 0 ok, 1 internal error, 2 usage or configuration, 3 does not fit, 4 storage error; and 127
where a verb needs the program `penstock` and there is none.
"""
from __future__ import annotations

import argparse
import sys

from .command import config_show, deepspeed_name, export, plan, program
from .errors import FitError, PenstockError, StorageError


def main(arguments: list[str] | None = None) -> int:
    """Runs one verb; its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    described, codes = (__doc__ or "").split("\n\n", 1)
    parser = argparse.ArgumentParser(prog="python -m penstock", description=described, epilog=codes)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    config_show.add(verbs)
    deepspeed_name.add(verbs)
    export.add(verbs)
    plan.add(verbs)
    program.add(verbs)
    try:
        if given and given[0] in program.VERBS:
            return program.run(given)
        chosen = parser.parse_args(given)
        return int(chosen.run(chosen))
    except PenstockError as error:
        print(error, file=sys.stderr)
        return 3 if isinstance(error, FitError) else 4 if isinstance(error, StorageError) else 2


if __name__ == "__main__":
    sys.exit(main())
