"""A configuration that was written for DeepSpeed. What its keys mean is decided in C++ (trainer/config/key_table.h);
here its values become what penstock.initialize() needs."""
from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from ..errors import UsageError
from ..loss_scale import LossScale
from ..monitors import Monitors
from ..native import config as config_library
from ..optimizer_kinds import KINDS
from ..settings import Settings
from ..store import Store, store_of
from .merged import merged_settings, merged_store
from .schedules import SCHEDULES

Given = Mapping[str, Any] | str | os.PathLike[str]
Directories = Store | str | os.PathLike[str] | None


NEVER = 10**12  # steps, the most that the key takes
BY_CALLER = "the value that the caller knows"  # the rule of an "auto" that somebody knew
TUNING = ("aio.", "zero_optimization.")  # what has no effect of these sections would tune DeepSpeed's own machinery
BUT = ("leaf_module",)  # says something of the model
UNSAID = ("gradient_clipping",)  # whose default changes numbers and is not DeepSpeed's


class Resolve(Protocol):
    """See trainer/capi/penstock_config.h for what comes out."""

    def __call__(self, text: str, name: str, known: Mapping[str, Any] | None = None, own: Sequence[str] = (), ranks: int = 1
                 ) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Config:
    settings: Settings
    optimizer: Callable[[Any], torch.optim.Optimizer] | None
    scheduler: Callable[[torch.optim.Optimizer], Any] | None
    store: Store | None  # None: the configuration names no directory
    resolved: Mapping[str, Any]  # each key: penstock_config.h

    @property
    def without_effect(self) -> tuple[str, ...]:
        return tuple(each["key"] for each in self.resolved["without_effect"])

    @property
    def said(self) -> frozenset[str]:
        """The keys that somebody gave, in the text or as known."""
        return frozenset(each["key"] for each in self.resolved["obeyed"] if each["from"] in ("file", "caller"))

    def _without_effect_in_short(self) -> list[str]:
        """What somebody would miss by its name, the others by their number."""
        tuning = [key for key in self.without_effect if key.startswith(TUNING) and not key.endswith(BUT)]
        sections = " and ".join(sorted({key.partition(".")[0] for key in tuning}))
        return [*(key for key in self.without_effect if key not in tuning),
                *([f"{len(tuning)} of {sections} that would tune DeepSpeed itself"] if tuning else [])]

    def monitors(self) -> Monitors:
        """New ones, not yet open."""
        return Monitors.of(self.resolved["values"])

    def store_at(self, given: Directories) -> Directories:
        """A directory of the caller's is kept as the configuration says; a Store is merged with it (merged.py)."""
        if given is None:
            return self.store and self._summed_by_stage(self.store)
        read = store_of(self.resolved["values"], ".")
        if isinstance(given, Store):
            return self._summed_by_stage(merged_store(given, read, self.said, self.resolved["name"]))
        return self._summed_by_stage(replace(read, directories=given))

    def _summed_by_stage(self, store: Store) -> Store:
        """From stage 2 on a process keeps no gradients of its own between micro-batches, as with DeepSpeed."""
        if store.sum_order is not None or (self.resolved["values"]["zero_optimization.stage"] or 0) < 2:
            return store
        return replace(store, sum_order="ranks_first")

    def settings_with(self, given: Settings | None) -> Settings:
        """The same of the settings."""
        if given is None:
            return self.settings
        return merged_settings(given, self.settings, self.said, self.resolved["name"])

    def note(self, directories: Directories = None) -> str | None:
        """What of it is not as it is written, in one line; None where all is. `directories`: the caller's."""
        values = self.resolved["values"]
        ruled = [f"{each['key']} = {json.dumps(each['became'])}" for each in self.resolved["auto"]
                 if each["rule"] != BY_CALLER]
        ruled += [f"{key} = {json.dumps(values[key])}" for key in UNSAID
                  if any(each["key"] == key and each["from"] == "default" for each in self.resolved["obeyed"])]
        elsewhere = ["run.swap_directory"] if directories is not None and self.store is not None else []
        parts = {"nobody says": ruled,
                 "read as something else": [f"{each['key']} ({each['became']})"
                                            for each in self.resolved["translated"]],
                 "without effect": [*self._without_effect_in_short(), *elsewhere]}
        told = "; ".join(f"{what}: {', '.join(keys)}" for what, keys in parts.items() if keys)
        if not told:
            return None
        return (f"{self.resolved['name']}: {told}. `python -m penstock config show FILE --all` says why of each key, of a program of "
                "DeepSpeed's with --as deepspeed")


def read_config(given: Given, known: Mapping[str, Any] | None = None, resolve: Resolve = config_library.resolve,
                own: Sequence[str] = (), else_: str = "say penstock.initialize(known={{{}}})", ranks: int = 1) -> Config:
    """A dictionary or a file of JSON. `known`: values for keys that it leaves to "auto"; `own`: sections ("optimizer",
    "scheduler") that the caller brings itself. All that is wrong is one UsageError, and so is an "auto" of what decides
    numbers that nobody knows; `else_`: what to do but write them. `ranks`: processes that train one model."""
    text, name = _text(given)
    resolved = resolve(text, name, known, own) if ranks == 1 else resolve(text, name, known, own, ranks)
    wrong = [*resolved["wrong"], *_unknown(resolved["missing"], else_)]
    if wrong:
        lines = wrong if len(wrong) == 1 else [f"{len(wrong)} things are wrong:", *wrong]
        raise UsageError(f"{name}: " + "\n  ".join(lines))
    values, given_keys = resolved["values"], {each["key"]: each["from"] for each in resolved["obeyed"]}
    directories = values["run.swap_directory"]
    return Config(_settings(values), _optimizer(values, given_keys), _scheduler(values, given_keys),
                  store_of(values, directories) if directories else None, resolved)


def _unknown(missing: Sequence[str], else_: str) -> list[str]:
    if not missing:
        return []
    example = ", ".join(f'"{key}": ...' for key in missing)
    return [f"\"auto\" is no number, and nobody knows one for {', '.join(missing)}: write it there, or "
            f"{else_.format(example)}"]


def _text(given: Given) -> tuple[str, str]:
    if isinstance(given, Mapping):
        try:
            return json.dumps(_finite(given), allow_nan=False), "configuration"
        except (TypeError, ValueError) as error:
            raise UsageError(f"configuration: {error}") from error
    try:
        return Path(given).read_text(encoding="utf-8"), f"configuration {os.fspath(given)}"
    except (OSError, ValueError) as error:
        text = "no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise UsageError(f"configuration {os.fspath(given)}: {text}") from error


def _finite(given: Mapping[str, Any]) -> dict[str, Any]:
    """Accelerate says "never" with an infinity, which is no JSON."""
    never = given.get("steps_per_print") == math.inf
    return {**given, "steps_per_print": NEVER} if never else dict(given)


def _settings(values: Mapping[str, Any]) -> Settings:
    dtype, scale = None, None
    if values["bf16.enabled"]:
        dtype = torch.bfloat16
    elif values["fp16.enabled"]:
        dtype, scale = torch.float16, _loss_scale({key[5:]: value for key, value in values.items()
                                                   if key.startswith("fp16.")})
    return Settings(values["gradient_accumulation_steps"], values["gradient_clipping"],
                    values["train_micro_batch_size_per_gpu"], values["dataloader_drop_last"], dtype, scale,
                    values["steps_per_print"], values["memory.activations"], values["memory.graph_budget"],
                    wall_clock_breakdown=values["wall_clock_breakdown"])


def _loss_scale(fp16: Mapping[str, Any]) -> LossScale:
    if fp16["loss_scale"]:
        return LossScale(fp16["loss_scale"], fixed=True)
    return LossScale.dynamic(fp16["initial_scale_power"], fp16["loss_scale_window"], fp16["hysteresis"],
                             fp16["min_loss_scale"], fp16["consecutive_hysteresis"])


def _optimizer(values: Mapping[str, Any], given: Mapping[str, str]) -> Callable[[Any], torch.optim.Optimizer] | None:
    if all(source in ("default", "other keys") for key, source in given.items() if key.startswith("optimizer.")):
        return None
    kind = KINDS[values["optimizer.type"].lower()]
    options = {name: values[f"optimizer.params.{name}"] for name in kind.reads + kind.opens_with}
    if "betas" in options:
        options["betas"] = tuple(options["betas"])
    made = KINDS["adamw"].of if kind.name == "adam" and values["optimizer.params.adam_w_mode"] else kind.of
    return lambda parameters: made(parameters, **options)


def _scheduler(values: Mapping[str, Any], given: Mapping[str, str]) -> Callable[[torch.optim.Optimizer], Any] | None:
    kind = values["scheduler.type"]
    if kind == "none":
        return None
    prefix = "scheduler.params."
    options = {key[len(prefix):]: value for key, value in values.items() if key.startswith(prefix)}
    source = given.get(prefix + "warmup_max_lr")
    if source in ("auto", "other keys"):  # the optimizer may be the caller's, with another rate
        options["warmup_max_lr"] = 1e-3 if kind == "WarmupDecayLR" and source == "other keys" else None
    return lambda optimizer: SCHEDULES[kind](optimizer, **options)
