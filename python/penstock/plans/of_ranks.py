"""What a plan says of several ranks: of each, of those of one machine, and of all."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from ..native.described import Described

UNMEASURED = "its time is not forecast: how long ranks wait for each other's weights and gradients is not known here " \
             "(`penstock ranks` measures how fast they come)"


@dataclass(frozen=True)
class OfRanks:
    """Bytes; what a rank receives over the wire it sends, too. Ranks are alike: all take so many times as much."""

    ranks: int
    ranks_per_node: int  # the most on one machine
    gathered_bytes: int  # of weights, in a step, that come to a rank
    exchanged_bytes: int  # of gradients
    first_gathered_bytes: int  # of weights, as a training begins
    node_pool_bytes: int  # of the pools of a machine's ranks together
    node_store_bytes: int  # of their stores
    zero_bytes: tuple[float, ...]  # what ZeRO's authors count of a rank's device, by stage: 16 bits, K = 12
    text: str


def checked(ranks: int, ranks_per_node: int | None) -> None:
    for name, number in {"ranks": ranks, "ranks_per_node": ranks_per_node}.items():
        if number is not None and not 1 <= number < 1 << 32:
            raise UsageError(f"penstock.plan({name}={number}): a number of processes, 1 or more")
    if ranks_per_node is not None and ranks_per_node > ranks:
        raise UsageError(f"penstock.plan(ranks={ranks}, ranks_per_node={ranks_per_node}): more on one machine than there are")


def asked(described: Described, ranks: int, ranks_per_node: int | None, passes: int) -> tuple[Any, OfRanks | None]:
    """What a core takes, and what several of them do."""
    if ranks == 1:
        return described.plan(), None
    plan, told = described.plan_of_ranks(ranks, ranks_per_node or 0, passes)
    of_node = told.ranks_of_node
    return plan, OfRanks(ranks, of_node, told.gathered_bytes, told.exchanged_bytes, told.first_gathered_bytes,
                         of_node * plan.pool_bytes, of_node * plan.store_bytes, tuple(told.zero_bytes), told.text.decode())
