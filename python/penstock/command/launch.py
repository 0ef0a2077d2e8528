"""penstock launch: a script as many processes, with the options of DeepSpeed's launcher."""
from __future__ import annotations

import argparse
from typing import Any

from ..launch import arguments, start


def add(verbs: Any) -> None:
    """The verb, with what it takes."""
    verb = verbs.add_parser(
        "launch", help="start a script as many processes, on this machine or several, as DeepSpeed's launcher does",
        usage="penstock launch [OPTIONS] SCRIPT ...", formatter_class=_Wide,
        description="Starts a script once for each slot, and ends all when one ends badly. Each process has RANK, "
                    "LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and others in its environment. docs/launch.md "
                    "tells more.",
        epilog="Exit codes: 0 all have ended well; 2 something said is wrong, and nothing was started; 75 stopped "
               "after a committed step; else that of the first process that ended badly, 128 + signal where a signal "
               "ended it.")
    arguments.add_arguments(verb)
    verb.set_defaults(run=start.run)


class _Wide(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=110)
