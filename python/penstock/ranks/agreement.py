"""What ranks must have alike before one of them makes anything, as the program's zero_infinity/ranks/agreement.h has it."""
from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..errors import UsageError
from ..settings import Settings
from ..store import Store
from ..version import version

ABSENT = "nothing"  # as the value of a name that a rank does not have


class Said(NamedTuple):
    """By one rank."""

    host: str
    values: Mapping[str, str]


def values_of(store: Store, settings: Settings, of_loader: Mapping[str, str]) -> dict[str, str]:
    """Of this rank. A place for one run is each host's own, and so may be spelled otherwise."""
    told = {"torch": str(torch.__version__), "penstock": version(), "micro-batches a step": str(settings.accumulation),
            **of_loader}
    for number, path in enumerate(store.paths() if store.keep else []):
        told["the directory of the store" + (f" (number {number})" if number else "")] = os.path.abspath(path)
    return told


def agree(gathered: Callable[[Any], list[Any]], own: Mapping[str, str]) -> None:
    """All ranks call it at once: a gather. Raises UsageError with the same words on all of them."""
    told: list[Said] = gathered(Said(socket.gethostname(), own))
    if any(each.values != told[0].values for each in told):
        raise UsageError(f"the processes do not train the same: {disagreement(told)}")


def disagreement(told: Sequence[Said]) -> str:
    """"rank 3 (worker-2) differs: torch 2.8.0, the others have 2.11.0". Those are named whose value fewer have."""
    differing: dict[tuple[int, ...], list[str]] = {}
    for name in dict.fromkeys(name for each in told for name in each.values):
        (most, having), *others = _parties([each.values.get(name, ABSENT) for each in told])
        have = "most others have" if len(others) > 1 else "the others have" if len(having) > 1 else "the other has"
        for value, ranks in others:
            differing.setdefault(ranks, []).append(f"{name} {value}, {have} {most}")
    return ". ".join(f"{_people(ranks, told)}: {'; '.join(what)}" for ranks, what in sorted(differing.items()))


def _parties(values: Sequence[str]) -> list[tuple[str, tuple[int, ...]]]:
    """Ranks by what they have, the most frequent first; of as many, by rank."""
    found: dict[str, tuple[int, ...]] = {}
    for rank, value in enumerate(values):
        found[value] = (*found.get(value, ()), rank)
    return sorted(found.items(), key=lambda party: -len(party[1]))


def _people(ranks: Sequence[int], told: Sequence[Said]) -> str:
    named = ", ".join(f"{rank} ({told[rank].host})" for rank in ranks)
    return f"ranks {named} differ" if len(ranks) > 1 else f"rank {named} differs"
