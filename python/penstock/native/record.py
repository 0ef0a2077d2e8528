"""What a store says of the model that it was made for, with each commit: as much as is needed to open it for forwards
alone, by who knows the model and not how it was trained."""
from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from ..core import OptimizerKind
from ..errors import StorageError

KEY = "model"  # of the value that is committed


@dataclass(frozen=True)
class Record:
    """`runs`: how many parameters, in the order of the units, are trainable, then how many are frozen, and so on in
    turn. None are, and `given` is True, of weights that were given to be kept as they are."""

    codec: str
    optimizer: OptimizerKind
    momentum: float
    tile_elements: int
    runs: tuple[int, ...]
    given: bool = False

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def decode(text: str, path: str) -> Record:
        try:
            said = json.loads(text)
            return Record(**{**said, "runs": tuple(int(each) for each in said["runs"])})
        except (ValueError, TypeError, KeyError) as error:
            raise StorageError(f"{path}: what the store says of its model is not what penstock writes ({error}); open "
                               "it with the version that made it") from error

    def trainable(self) -> Iterator[bool]:
        """Of each parameter."""
        for trains, count in zip(itertools.cycle((True, False)), self.runs):
            yield from itertools.repeat(trains, count)


def runs_of(trainable: Iterator[bool]) -> tuple[int, ...]:
    counts = [(trains, len(list(group))) for trains, group in itertools.groupby(trainable)]
    first = (0,) if counts and not counts[0][0] else ()
    return (*first, *(count for _, count in counts))
