"""Values of the keys that the surface answers itself: checked with those of all others, and in their words."""
from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...configuration.config import read_config
from ...native import config as config_library
from .given import section

OFFLOADS = ("offload_param", "offload_optimizer")
FLAGS = ("stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save")
THRESHOLD = "stage3_param_persistence_threshold"
ANSWERED = {"zero_optimization": ("stage", "cpu_offload", "cpu_offload_params", THRESHOLD, *FLAGS),
            "fp16": ("auto_cast",), "run": ("swap_directory",)}
KINDS = {bool: "true or false", int: "an integer", float: "a number with a fraction", str: "text", list: "a list",
         dict: "a section"}
Rule = tuple[Callable[[Any], bool], str]  # what is right, and how that is said
IN_SMALL_LETTERS: Rule = lambda value: not isinstance(value, str) or value.islower(), '"cpu" or "nvme" or "none"'
PATH: Rule = lambda value: isinstance(value, str), "a path"
COUNT: Rule = (lambda value: value == "auto" or type(value) in (int, float) and value >= 0,
               'a number of elements from 0, or "auto"')
FLAG: Rule = lambda value: value == "auto" or type(value) is bool, 'true or false, or "auto"'
# The core looks at no value of a key that it does not read, and at no letters of a word, which DeepSpeed does.
RULES: dict[str, Rule] = {THRESHOLD: COUNT, **dict.fromkeys(FLAGS, FLAG)}
RULES_OF_OFFLOADS: dict[str, Rule] = {"device": IN_SMALL_LETTERS, "nvme_path": PATH}


def resolve(text: str, name: str, known: Mapping[str, Any] | None = None, own: Sequence[str] = (), ranks: int = 1
            ) -> dict[str, Any]:
    """For read_config(resolve=...): what the core makes of the other keys, and what is wrong of all."""
    config = json.loads(text)
    resolved = config_library.resolve(json.dumps(own_keys(config)), name, known, own, ranks)
    # Two sections may name two places here, because there is not one store.
    whole = config_library.resolve(json.dumps(_offloads_without(config, ("nvme_path",))), name, known, own, ranks)
    return {**resolved, "wrong": [*whole["wrong"], *_wrong(section(config, "zero_optimization"))]}


def check_places(config: Mapping[str, Any]) -> None:
    """Of zero_optimization alone: for who looks there before all "auto" is filled in. Raises UsageError."""
    read_config({"zero_optimization": config.get("zero_optimization")}, resolve=resolve)


def own_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is answered here: directories and tiers stand in the Store, parameters that stay by their names."""
    kept = _without(_offloads_without(config, RULES_OF_OFFLOADS), ("zero_allow_untested_optimizer",))
    return {key: _without(each, ANSWERED.get(key, ())) if isinstance(each, Mapping) else each
            for key, each in kept.items()}


def _offloads_without(config: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    zero = config.get("zero_optimization")
    if not isinstance(zero, Mapping):
        return dict(config)
    return {**config, "zero_optimization": {
        key: _without(each, keys) if key in OFFLOADS and isinstance(each, Mapping) else each for key, each in zero.items()}}


def _without(given: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: each for key, each in given.items() if key not in keys}


def _wrong(zero: Mapping[str, Any]) -> list[str]:
    in_sections = [(f"{name}.", section(zero, name), RULES_OF_OFFLOADS) for name in OFFLOADS]
    return [f"key 'zero_optimization.{before}{key}' is {json.dumps(there[key])} ({KINDS[type(there[key])]}); expected {expected}"
            for before, there, rules in (*in_sections, ("", zero, RULES)) for key, (is_right, expected) in rules.items()
            if key in there and not is_right(there[key])]
