"""The configuration, in whichever way it was given, as DeepSpeed reads it."""
from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from ...errors import UsageError

# What DeepSpeed takes where nobody says it, and penstock.initialize(config=...) another value.
UNSAID = {"gradient_clipping": 0.0}
# Keys of zero_optimization that DeepSpeed knows with and without this before them.
STAGE_3 = "stage3_"
SHORTER = frozenset(("prefetch_bucket_size", "param_persistence_threshold", "model_persistence_threshold",
                     "max_live_parameters", "max_reuse_distance", "gather_16bit_weights_on_model_save"))
LION_BETAS = [0.9, 0.999]
# Whose "auto" nobody may guess.
NUMBERS = ("gradient_clipping", "bf16.enabled", "bfloat16.enabled", "fp16.enabled")
PLACES = ("zero_optimization.stage", "zero_optimization.offload_param.device", "zero_optimization.offload_optimizer.device")


def configuration(given: Any) -> dict[str, Any]:
    """As a dictionary: of a mapping, a file, or JSON in base64 as launchers pass it on. Raises UsageError."""
    if given is None:
        raise UsageError("deepspeed.initialize() needs a configuration: config=, or args.deepspeed_config")
    if isinstance(given, Mapping):
        return said(deepcopy(dict(given)))
    if not isinstance(given, (str, os.PathLike)):
        raise UsageError(f"configuration: a dictionary or the path of a file of JSON, not {type(given).__name__}")
    try:
        if os.path.exists(given):
            with open(given, encoding="utf-8") as file:
                read = json.load(file)
        else:
            read = json.loads(base64.urlsafe_b64decode(os.fspath(given)))
    except OSError as problem:
        raise UsageError(f"configuration {os.fspath(given)}: {problem.strerror}") from problem
    except ValueError as problem:
        text = str(problem) if os.path.exists(given) else "no such file"
        raise UsageError(f"configuration {os.fspath(given)}: {text}") from None
    if not isinstance(read, dict):
        raise UsageError(f"configuration {os.fspath(given)}: an object of JSON, {{...}}, not a {type(read).__name__}")
    return said(read)


def said(config: Mapping[str, Any]) -> dict[str, Any]:
    """Accelerate writes null for what it does not say; a warm-up of 0 steps, which older transformers fill in,
    DeepSpeed takes for 2. Keys of stage 3 have their longer names."""
    kept = {key: said(each) if isinstance(each, Mapping) else os.fspath(each) if isinstance(each, os.PathLike) else each
            for key, each in config.items() if each is not None}
    if kept.get("warmup_num_steps") == 0:
        kept["warmup_num_steps"] = 2
    return {STAGE_3 + key if key in SHORTER and STAGE_3 + key not in kept else key: each for key, each in kept.items()}


def with_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """With DeepSpeed's own, where they decide numbers and nobody says them. Raises UsageError for an "auto" of such."""
    left = unfilled(config)
    if left:
        raise UsageError(f"configuration: \"auto\" is no value, and nobody has filled in {', '.join(left)}: write it "
                         "there; transformers and Accelerate fill it in for scripts of theirs")
    full = {**UNSAID, **config}
    params = section(full, "optimizer", "params")
    if str(section(full, "optimizer").get("type")).lower() == "lion" and "betas" not in params:
        full["optimizer"] = {**full["optimizer"], "params": {**params, "betas": LION_BETAS}}
    return full


def unfilled(config: Mapping[str, Any]) -> list[str]:
    """Keys that decide numbers or places, and are "auto" still."""
    paths = {key: key.split(".") for key in (*NUMBERS, *PLACES)}
    return [key for key, path in paths.items() if section(config, *path[:-1]).get(path[-1]) == "auto"]


def section(config: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Empty where it is not there. So is what should be one and is not: the core says that."""
    for name in names:
        there = config.get(name)
        config = there if isinstance(there, Mapping) else {}
    return config
