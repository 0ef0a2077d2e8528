"""Hosts with their slots, and the file that lists them."""
from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import UsageError

DEFAULT = "/job/hostfile"  # as in DeepSpeed
# Open MPI has max_slots=, too.
_LINE = re.compile(r"(?P<host>\S+)\s+slots=(?P<count>\d+)(?:\s+\w+=\S+)*\s*(?:#.*)?", re.ASCII)


@dataclass(frozen=True)
class Host:
    """Its slots are numbers of its GPUs, or of its processes where it has none."""

    name: str
    slots: tuple[int, ...]


Hosts = tuple[Host, ...]


def read_hostfile(path: str) -> Hosts:
    """In the order of its lines. Raises UsageError with line and text."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, ValueError) as problem:
        raise UsageError(f"--hostfile {path}: {getattr(problem, 'strerror', None) or problem}") from problem
    return hosts_of(text, path)


def hosts_of(text: str, path: str) -> Hosts:
    """Of a hostfile's text."""
    found: dict[str, Host] = {}
    for number, line in enumerate((each.strip() for each in text.split("\n")), 1):  # no other sign begins a line
        if not line or line.startswith("#"):
            continue
        where = f"{path}, line {number}: '{line}'"
        read = _LINE.fullmatch(line)
        if read is None:
            raise UsageError(f"{where} is not HOST slots=NUMBER")
        name, count = read["host"], int(read["count"])
        if name in found:
            raise UsageError(f"{where}: {name} has a line already; give it one, with all its slots")
        if count == 0:
            raise UsageError(f"{where} has no slots; put a # before it, and the host is left out")
        found[name] = Host(name, tuple(range(count)))
    if not found:
        raise UsageError(f"{path} names no host; a line is HOST slots=NUMBER")
    return tuple(found.values())
