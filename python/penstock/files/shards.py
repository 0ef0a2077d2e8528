"""A model's tensors divided over files, and the index that says which of them has what, as Hugging Face has it."""
from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def divided(items: Iterable[T], bytes_of: Callable[[T], int], most_bytes: float) -> list[list[T]]:
    """One at least, filled in order; what is larger than a shard has one of its own."""
    shards: list[list[T]] = [[]]
    taken = 0
    for each in items:
        count = bytes_of(each)
        if shards[-1] and taken + count > most_bytes:
            shards.append([])
            taken = 0
        shards[-1].append(each)
        taken += count
    return shards


def name_of(single: str, number: int, count: int) -> str:
    """Of shard `number`, from 1, of so many; `single`: of a model in one file."""
    stem, dot, kind = single.rpartition(".")
    return single if count == 1 else f"{stem}-{number:05d}-of-{count:05d}{dot}{kind}"


def write_index(path: Path, metadata: Mapping[str, int], weight_map: Mapping[str, str]) -> None:
    text = json.dumps({"metadata": metadata, "weight_map": weight_map}, indent=2, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")
