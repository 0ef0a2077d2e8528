"""What of a model runs now: the pass, and the calls of its units that are under way."""
from __future__ import annotations

from collections.abc import Iterable

from ..core import PassKind, Visit


class Call:
    """One call of a unit. `parent` is the call within which it was made."""

    def __init__(self, name: str, reads: Visit, parent: Call | None = None) -> None:
        self.name, self.reads, self.parent = name, reads, parent
        self.saved_without_hooks = False

    def save_without_hooks(self) -> None:
        """Some of its graph, as torch.func does."""
        self.saved_without_hooks = True

    def never(self, why: str) -> None:
        """Its graph is not given up, if it has one that could be."""

    def ancestors(self) -> Iterable[Call]:
        each = self.parent
        while each is not None:
            yield each
            each = each.parent


class Running:
    """Kept by step/visits.py, and read by all who must know whether compute has weights."""

    def __init__(self) -> None:
        self.kind: PassKind | None = None
        self.open: list[Call] = []

    @property
    def between_passes(self) -> bool:
        return self.kind is None

    def begin_pass(self, kind: PassKind) -> None:
        self.kind = kind

    def end_pass(self) -> None:
        self.kind = None

    def gradient_came(self) -> None:
        """To a weight. Within a forward it would come a second time when that runs again."""
        for each in self.open:
            each.never("a backward runs within it")
