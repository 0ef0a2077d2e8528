"""What deepspeed.initialize() makes of a configuration: for `penstock config show --as deepspeed`."""
from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from ..configuration.config import read_config
from .configuration.given import configuration, said, section, unfilled, with_defaults
from .configuration.values import THRESHOLD, resolve
from .placement import Placement, placement_of

WHERE = {"nvme": "on NVMe", "cpu": "in host memory"}
# The core's defaults, which do not hold here.
NOT_BY_DEFAULT = ("zero_optimization.offload_param.device", "zero_optimization.offload_optimizer.device", "memory.device")
LEFT = "\"auto\", Trainer's or Accelerate's to fill in"


@dataclass(frozen=True)
class Shown:
    """`resolved`: of the keys that are not answered by the surface itself. `unsaid`: DeepSpeed's defaults, where nobody
    says them. `place`: None where something is wrong. `zero`: the section. `left`: keys that are "auto" still."""

    resolved: dict[str, Any]
    unsaid: Mapping[str, Any]
    place: Placement | None
    zero: Mapping[str, Any]
    left: Collection[str] = ()

    def answers(self) -> Iterator[str]:
        """By the surface, a line for each."""
        if self.place is None:
            return
        store = self.place.store
        yield (f"weights (stage {self.zero.get('stage', 0)}, offload_param): "
               f"{self._unless_left('offload_param.device', WHERE[store.weights])}")
        yield f"masters and moments (offload_optimizer): {self._unless_left('offload_optimizer.device', WHERE[store.states])}"
        if "nvme" in (store.weights, store.states):
            kept = "a store that is kept (run.swap_directory)" if store.keep else "files that go with the run (nvme_path)"
            yield f"directory: {', '.join(store.paths())}, for {kept}"
        yield f"parameters between steps: {self._unless_left('stage', self._between_steps(self.place.readable))}"

    def _between_steps(self, elements: float) -> str:
        if math.isinf(elements):
            return "all are readable in memory"
        if self.zero.get(THRESHOLD) == "auto":
            return f"small ones stay in memory; how small, {THRESHOLD}, is {LEFT}"
        return f"those of at most {elements:,.0f} elements stay in memory ({THRESHOLD})"

    def _unless_left(self, key: str, text: str) -> str:
        return LEFT if f"zero_optimization.{key}" in self.left else text


def shown(file: str, known: Mapping[str, Any]) -> Shown:
    """`known` fills in what the file leaves to "auto", as transformers and Accelerate do. Raises UsageError."""
    given = configuration(file)
    for key, value in known.items():
        given = _filled(given, key.split("."), value)
    asked, left = given, unfilled(given)
    for key in left:
        given = said(_filled(given, key.split("."), None))
    full = {key: each for key, each in with_defaults(given).items() if key not in left}
    resolved = resolve(json.dumps(full), file, known)
    resolved["missing"] = [*left, *resolved["missing"]]
    resolved["obeyed"] = [each for each in resolved["obeyed"]
                          if each["from"] != "default" or each["key"] not in (*NOT_BY_DEFAULT, *left)]
    read = None if resolved["wrong"] or resolved["missing"] else read_config(full, known, resolve)
    place = None if resolved["wrong"] else placement_of(given, read)
    unsaid = {key: each for key, each in full.items() if key not in given}
    return Shown(resolved, unsaid, place, section(asked, "zero_optimization"), left)


def _filled(config: Mapping[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    name, *further = path
    there = config.get(name)
    if further:
        return {**config, name: _filled(there, further, value)} if isinstance(there, Mapping) else dict(config)
    return {**deepcopy(dict(config)), name: value} if there == "auto" else dict(config)
