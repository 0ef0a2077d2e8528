"""Which hosts and slots are taken: --include, --exclude, --num_nodes, --num_gpus."""
from __future__ import annotations

from .hostfile import Host, Hosts
from ..errors import UsageError


def included(hosts: Hosts, said: str) -> Hosts:
    """Those that NAME[:SLOT[,SLOT…]]@… names, in the hosts' order. Raises UsageError."""
    named = _named(hosts, "--include", said)
    return tuple(Host(each.name, named[each.name]) for each in hosts if each.name in named)


def excluded(hosts: Hosts, said: str) -> Hosts:
    """All others. Raises UsageError, also where none is left."""
    named = _named(hosts, "--exclude", said)
    left = ((each.name, tuple(slot for slot in each.slots if slot not in named.get(each.name, ()))) for each in hosts)
    found = tuple(Host(name, slots) for name, slots in left if slots)
    if not found:
        raise UsageError(f"--exclude {said} leaves no slot of {said_of(hosts)}")
    return found


def first(hosts: Hosts, nodes: int | None, slots: int | None) -> Hosts:
    """So many hosts, so many slots of each; None: all. Raises UsageError where there are fewer."""
    for name, count in (("num_nodes", nodes), ("num_gpus", slots)):
        if count == 0:
            raise UsageError(f"--{name} 0 starts nothing; without it all are taken")
    if nodes is not None:
        if not 0 < nodes <= len(hosts):
            counted = "is 1 host" if len(hosts) == 1 else f"are {len(hosts)} hosts"
            raise UsageError(f"--num_nodes {nodes}: there {counted}, {said_of(hosts)}; --hostfile names more")
        hosts = hosts[:nodes]
    if slots is not None:
        for each in hosts:
            if not 0 < slots <= len(each.slots):
                raise UsageError(f"--num_gpus {slots}: {each.name} has {len(each.slots)}")
        hosts = tuple(Host(each.name, each.slots[:slots]) for each in hosts)
    return hosts


def said_of(hosts: Hosts) -> str:
    """As --include would name them."""
    return "@".join(f"{each.name}:{','.join(map(str, each.slots))}" for each in hosts)


def hosts_said(said: str) -> Hosts:
    """Of what said_of() has said."""
    split = (each.rpartition(":") for each in said.split("@"))
    return tuple(Host(name, tuple(map(int, slots.split(",")))) for name, _, slots in split)


def _named(hosts: Hosts, option: str, said: str) -> dict[str, tuple[int, ...]]:
    """Slots by host: all, of one that is named without; of one that is named twice, both lists."""
    there = {each.name: each.slots for each in hosts}
    whole: set[str] = set()
    listed: dict[str, set[int]] = {}
    for part in said.split("@"):
        name, colon, slots = part.partition(":")
        if name not in there:
            raise UsageError(f"{option} {said}: '{name}' is none of the hosts {', '.join(there)}")
        numbers = _slots(slots, f"{option} {said}") if colon else there[name]
        if name in listed and (name in whole) == bool(colon):
            raise UsageError(f"{option} {said} names {name} twice, once as a whole; say which is meant")
        absent = [each for each in numbers if each not in there[name]]
        if absent:
            raise UsageError(f"{option} {said}: {name} has no slot {absent[0]}; it has {_ranges(there[name])}")
        listed.setdefault(name, set()).update(numbers)
        if not colon:
            whole.add(name)
    return {name: tuple(sorted(slots)) for name, slots in listed.items()}


def _slots(text: str, where: str) -> tuple[int, ...]:
    parts = [each.strip() for each in text.split(",")]
    if not all(each.isascii() and each.isdecimal() for each in parts):
        raise UsageError(f"{where}: '{text}' is no list of slots; a host's part is NAME or NAME:SLOT,SLOT")
    return tuple(map(int, parts))


def _ranges(slots: tuple[int, ...]) -> str:
    return f"{slots[0]} to {slots[-1]}" if len(slots) > 1 and slots == tuple(range(slots[0], slots[-1] + 1)) else (
        ", ".join(map(str, slots)))
