"""What was found about one thing."""
from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(str, Enum):
    OK = "ok"
    WORTH_KNOWING = "worth knowing"  # all works; something is slower or smaller than it could be
    IN_THE_WAY = "in the way"  # a training cannot begin


@dataclass(frozen=True)
class Finding:
    """`remedy`: a command or a setting; nothing where it is ok. `code`: the program's exit code, of what is in the
    way."""

    name: str
    state: State
    seen: str
    remedy: str = ""
    code: int = 0


def ok(name: str, seen: str) -> Finding:
    """Nothing to do."""
    return Finding(name, State.OK, seen)


def worth_knowing(name: str, seen: str, remedy: str) -> Finding:
    """Works all the same."""
    return Finding(name, State.WORTH_KNOWING, seen, remedy)


def in_the_way(name: str, seen: str, remedy: str, code: int = 2) -> Finding:
    """`code`: 2 of what is installed or set, 3 of memory and room, 4 of storage."""
    return Finding(name, State.IN_THE_WAY, seen, remedy, code)
