"""penstock doctor: whether this machine can do what Penstock wants."""
from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ..doctor.finding import Finding, State


def add(verbs: Any) -> None:
    """The verb, with what it takes."""
    verb = verbs.add_parser(
        "doctor", help="whether this machine can do what Penstock wants: what was seen, and what helps",
        description="Looks, in seconds, without root, and leaves nothing. Of each thing: ok; worth knowing, all works "
                    "but something could be better; or in the way of a training; with what helps.",
        epilog="Exit codes: 0 nothing is in the way; else the program's, of the first thing that is: 2 what is installed "
               "or set, 3 memory or room, 4 storage.")
    verb.add_argument("--dir", metavar="DIRECTORY",
                      help="where a model is to be kept (the directory of temporary files)")
    verb.add_argument("--json", action="store_true", help="one JSON object")
    verb.set_defaults(run=_doctor)


def _doctor(chosen: argparse.Namespace) -> int:
    from ..doctor.probes import examine

    found = examine(chosen.dir or _temporary())
    if chosen.json:
        print(json.dumps({"findings": [{**asdict(each), "state": each.state.value} for each in found]}, indent=1))
    else:
        for line in lines_of(found, shutil.get_terminal_size((110, 24)).columns):
            print(line)
    return code_of(found)


def _temporary() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:  # none can be written to
        return "/tmp"


def code_of(found: list[Finding]) -> int:
    """Of the first that is in the way."""
    return next((each.code for each in found if each.state == State.IN_THE_WAY), 0)


def lines_of(found: list[Finding], columns: int) -> Iterator[str]:
    """A table, and a line of what it comes to."""
    for each in found:
        first = f"{each.name:<13}{each.state.value:<15}"
        yield from textwrap.wrap(each.seen, max(columns, 60), initial_indent=first, subsequent_indent=" " * len(first),
                                 break_long_words=False, break_on_hyphens=False) or [first]
        if each.remedy:
            yield f"{'':<28}-> {each.remedy}"  # in one piece, to be copied
    counts = {state: sum(each.state == state for each in found) for state in State}
    yield ""
    yield (f"{counts[State.IN_THE_WAY]} in the way, {counts[State.WORTH_KNOWING]} worth knowing, {counts[State.OK]} ok"
           if counts[State.IN_THE_WAY] else f"nothing is in the way; {counts[State.WORTH_KNOWING]} worth knowing")
