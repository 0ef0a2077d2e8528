"""What can be asked of Penstock: verbs of the package, and those of the C++ program.

Exit codes are the program's: 0 ok, 1 internal error, 2 usage or configuration, 3 does not fit, 4 storage error, 7
another process of the run was lost, 75 stopped by a signal after a committed step; and 127 where a verb needs the program
and there is none.
"""
from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

from .command import config_show, deepspeed_name, doctor, export, launch, plan, program, ranks
from .errors import FitError, PeerError, PenstockError, StorageError
from .machine.program import VERBS
from .version import version

CODES = {FitError: 3, StorageError: 4, PeerError: 7}


def main(arguments: list[str] | None = None) -> int:
    """Runs one verb; its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0].startswith("--local_rank="):  # what DeepSpeed's way of starting puts first
        given = given[1:]
    called = "python -m penstock" if Path(sys.argv[0]).name == "__main__.py" else "penstock"
    parser = parser_of_all(called)
    if given and (given[0] in VERBS or given[0] == "plan" and plan.is_of_the_program(given[1:])):
        return program.run(given, called)
    if given and given[0] not in verbs_of(parser) and not given[0].startswith("-"):
        near = difflib.get_close_matches(given[0], verbs_of(parser), 1)
        print(f"{called}: error: there is no verb '{given[0]}'; " + (
            f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(verbs_of(parser))}"), file=sys.stderr)
        return 2
    try:
        chosen = parser.parse_args(given)
        return int(chosen.run(chosen))
    except PenstockError as error:
        print(error, file=sys.stderr)
        return next((code for kind, code in CODES.items() if isinstance(error, kind)), 2)


def parser_of_all(called: str) -> argparse.ArgumentParser:
    """Of all verbs, whoever does them."""
    described, codes = (__doc__ or "").split("\n\n", 1)
    parser = argparse.ArgumentParser(prog=called, description=described, epilog=codes, formatter_class=_OneLineEach)
    parser.add_argument("--version", action="version", version=f"penstock {version()}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for each in (doctor, plan, program, launch, ranks, export, config_show, deepspeed_name):
        each.add(verbs)
    return parser


class _OneLineEach(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=16, width=110)
        self._action_max_length = 14  # argparse counts verbs without their indent


def verbs_of(parser: argparse.ArgumentParser) -> list[str]:
    """In the order of the help."""
    action = next(each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    return [*action.choices]


if __name__ == "__main__":
    sys.exit(main())
