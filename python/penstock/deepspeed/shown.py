"""What deepspeed.initialize() makes of a configuration: for `penstock config show --as deepspeed`."""
from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from ..config import read_config
from .given import configuration, said, unfilled, with_defaults
from .placement import Placement, placement_of
from .start import ELSE
from .values import resolve

PLACES = {"nvme": "on NVMe", "cpu": "in host memory"}


@dataclass(frozen=True)
class Shown:
    """`resolved`: of the keys that are not answered by the surface itself. `unsaid`: DeepSpeed's defaults, where nobody
    says them. `place`: None where something is wrong or missing."""

    resolved: dict[str, Any]
    unsaid: Mapping[str, Any]
    place: Placement | None
    stage: int

    def answers(self) -> Iterator[str]:
        """By the surface, a line for each."""
        if self.place is None:
            return
        store = self.place.store
        yield f"weights (stage {self.stage}, offload_param): {PLACES[store.weights]}"
        yield f"masters and moments (offload_optimizer): {PLACES[store.states]}"
        if "nvme" in (store.weights, store.states):
            kept = "a store that is kept (run.swap_directory)" if store.keep else "files that go with the run (nvme_path)"
            yield f"directory: {', '.join(store.paths())}, for {kept}"
        yield "parameters between steps: " + (
            "all are readable in memory" if math.isinf(self.place.readable) else
            f"those of at most {self.place.readable:,.0f} elements stay in memory (stage3_param_persistence_threshold)")


def shown(file: str, known: Mapping[str, Any]) -> Shown:
    """`known` fills in what the file leaves to "auto", as transformers and Accelerate do. Raises UsageError."""
    given = configuration(file)
    for key, value in known.items():
        given = _filled(given, key.split("."), value)
    left = unfilled(given)
    for key in left:
        given = said(_filled(given, key.split("."), None))
    full = {key: each for key, each in with_defaults(given).items() if key not in left}
    resolved = resolve(json.dumps(full), file, known)
    resolved["missing"] = [*left, *resolved["missing"]]
    whole = not resolved["wrong"] and not resolved["missing"]
    zero = full.get("zero_optimization") or {}
    place = placement_of(given, read_config(full, known, resolve, else_=ELSE)) if whole else None
    unsaid = {key: each for key, each in full.items() if key not in given}
    return Shown(resolved, unsaid, place, int(zero.get("stage") or 0))


def _filled(config: Mapping[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    name, *further = path
    there = config.get(name)
    if further:
        return {**config, name: _filled(there, further, value)} if isinstance(there, Mapping) else dict(config)
    return {**deepcopy(dict(config)), name: value} if there == "auto" else dict(config)
