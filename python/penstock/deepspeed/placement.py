"""Where DeepSpeed's configuration puts a model, as a Store and the parameters that stay readable."""
from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..configuration.config import Config
from ..errors import UsageError
from ..store import Store, Tier
from .accelerator import get_accelerator
from .configuration.given import section
from .configuration.values import OFFLOADS, THRESHOLD

PERSISTENCE = 100_000  # elements: DeepSpeed's default of stage3_param_persistence_threshold


@dataclass(frozen=True)
class Placement:
    store: Store
    readable: float  # parameters of so many elements at most stay in memory

    def resident(self, model: nn.Module) -> list[str]:
        """Their names, as patterns."""
        return [name.replace("[", "[[]") for name, each in model.named_parameters() if each.numel() <= self.readable]


def placement_of(config: Mapping[str, Any], read: Config | None = None, ranks: int = 1) -> Placement:
    """`run.swap_directory` is Penstock's own key, of a store that is kept. DeepSpeed's nvme_path is a place for files
    of one run. `read` has what else the store is told; None: places alone are asked for. Of several processes each has
    all weights in memory, as in stage 2."""
    zero = section(config, "zero_optimization")
    weights, states = (device_of(zero, each) for each in OFFLOADS)
    if ranks > 1:
        weights = "none"
    kept = section(config, "run").get("swap_directory")
    named = nvme_paths(zero)
    if "nvme" in (weights, states) and not (named or kept):
        raise UsageError("zero_optimization: offload_param or offload_optimizer says nvme, and neither where: add "
                         "\"nvme_path\", a directory on the drive")
    store = Store(_paths(kept) if kept else named or [tempfile.gettempdir()], keep=bool(kept), weights=_tier(weights),
                  states=_tier(states), device=get_accelerator().device_name())
    if read is not None:
        store = read.store_at(store)  # type: ignore[assignment]
    return Placement(store, math.inf if ranks > 1 else _readable(zero, weights))


def taken_otherwise(config: Mapping[str, Any], ranks: int) -> str | None:
    """What of it several processes do not do, in a line; None: nothing."""
    zero = section(config, "zero_optimization")
    said = [text for text, is_said in {"stage 3": int(zero.get("stage") or 0) >= 3,
                                       "offload_param": device_of(zero, "offload_param") != "none"}.items() if is_said]
    if ranks == 1 or not said:
        return None
    return (f"zero_optimization: {' and '.join(said)} with {ranks} processes {'is' if len(said) == 1 else 'are'} run as stage 2 so "
            "far: each process has all weights that compute reads in memory, and its part of the optimizer's states; one "
            "process fetches them for each layer")


def device_of(zero: Mapping[str, Any], name: str) -> str:
    """"none", "cpu" or "nvme"; as older configurations say it, too."""
    said = section(zero, name)
    older = "cpu_offload" if name == "offload_optimizer" else "cpu_offload_params"
    if not said and zero.get(older) is True:
        return "cpu"
    return said.get("device") or "none"


def nvme_paths(zero: Mapping[str, Any]) -> list[str]:
    """Each once."""
    named = [section(zero, each).get("nvme_path") for each in OFFLOADS if device_of(zero, each) == "nvme"]
    return list(dict.fromkeys(each for each in named if each))


def _paths(kept: Any) -> list[str]:
    """A place may have its drive's bandwidth beside it."""
    return [each["path"] if isinstance(each, Mapping) else each for each in ([kept] if isinstance(kept, (str, Mapping)) else kept)]


def _tier(device: str) -> Tier:
    return "nvme" if device == "nvme" else "cpu"


def _readable(zero: Mapping[str, Any], weights: str) -> float:
    """Below stage 3 weights are there between steps; in stage 3 those that are small."""
    if int(zero.get("stage") or 0) < 3 and weights == "none":
        return math.inf
    said = zero.get(THRESHOLD)
    return float(PERSISTENCE if said in (None, "auto") else said)
