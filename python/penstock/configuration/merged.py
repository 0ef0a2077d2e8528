"""A configuration and what the program gives beside it, as one: what both say must be the same."""
from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from ..errors import UsageError
from ..given.said import Said
from ..settings import Settings
from ..store import STORE_KEYS, Store

TOTAL, MICRO, ACCUMULATION = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
SETTINGS_KEYS = {
    "clip": "gradient_clipping", "drop_last": "dataloader_drop_last", "steps_per_print": "steps_per_print",
    "wall_clock_breakdown": "wall_clock_breakdown",
    "activations": "memory.activations", "graph_budget_bytes": "memory.graph_budget"}


def merged_store(given: Store, read: Store, said: Set[str], name: str) -> Store:
    """`read` is what the configuration `name` has; `said` are its keys that somebody gave. Of what nobody says, the
    defaults of Store hold."""
    keys = {field: key for field, key in STORE_KEYS.items() if key in said}
    _check(given, read, keys, name)
    return replace(given, **{field: getattr(read, field) for field in keys if not given.says(field)})


def merged_settings(given: Settings, read: Settings, said: Set[str], name: str) -> Settings:
    """The same; of what nobody says, the configuration's defaults hold, which would hold without `given`."""
    _check(given, read, _settings_keys(said), name)
    own: dict[str, Any] = {field: getattr(given, field) for field in given.said or ()}
    if isinstance(given.activations, Mapping):  # of single units: the configuration says it of the others
        own["activations"] = {"*": read.activations_of_all, **given.activations}
    merged = replace(read, **own)
    if TOTAL in said and read.micro_batch is not None:  # of one rank, as the configuration shares it out
        rows = read.micro_batch * read.accumulation
        if merged.micro_batch is None or merged.micro_batch * merged.accumulation != rows:
            raise UsageError(f"{name}: {TOTAL} {rows} is not Settings(micro_batch={merged.micro_batch}) times "
                             f"Settings(accumulation={merged.accumulation}); leave one of the three out")
    return merged


def _settings_keys(said: Set[str]) -> Mapping[str, str]:
    keys = {field: key for field, key in SETTINGS_KEYS.items() if key in said}
    if ACCUMULATION in said or {TOTAL, MICRO} <= said:
        keys["accumulation"] = ACCUMULATION
    if MICRO in said:
        keys["micro_batch"] = MICRO
    for key in ("fp16.enabled", "bf16.enabled"):
        if key in said:
            keys["dtype"] = key
    scale = sorted(key for key in said if key.startswith("fp16."))
    return keys | ({"loss_scale": scale[0]} if scale else {})


def _check(given: Said, read: Said, keys: Mapping[str, str], name: str) -> None:
    wrong = []
    for field, key in keys.items():
        own, other = getattr(given, field), getattr(read, field)
        if given.says(field) and not _agree(field, own, other):
            wrong.append(f"{type(given).__name__}({field}={own!r}) is not what {key} says, {other!r}")
    if wrong:
        raise UsageError(f"{name}: {'; '.join(wrong)}: leave one of the two out")


def _agree(field: str, own: Any, other: Any) -> bool:
    """A configuration says of a codec no more than whether it is exact, and nothing of single units."""
    if field == "activations" and isinstance(own, Mapping):
        return bool(own.get("*", other) == other)
    return bool(own == other) or field == "codec" and "compact" not in (own, other)
