"""Checkpoints: a snapshot of the store and what the engine knows beside it; and the part of it that every step commits.

A checkpoint DIR/TAG has the snapshot `store`, and `engine.pt`, which is written last. DIR/latest names the newest tag.
"""
from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from . import buffers
from .errors import StorageError, UsageError

if TYPE_CHECKING:
    from .engine import Engine


def save(engine: Engine, directory: Path, tag: str | None, client_state: dict[str, Any]) -> str:
    tag = tag or f"global_step{engine.global_steps}"
    if Path(tag).name != tag:
        raise UsageError(f"'{tag}' is no tag: it names a directory in {directory}, without a path")
    place = directory / tag
    if (place / "engine.pt").exists():
        raise StorageError(f"{place}: a checkpoint is there already; give another tag, or remove it")
    place.mkdir(parents=True, exist_ok=True)
    engine.visits.end()
    engine.core.begin_snapshot(str(place / "store"))
    scheduler = engine.lr_scheduler.state_dict() if engine.lr_scheduler is not None else None
    state = {"client_state": client_state, "micro_steps": engine.micro_steps, "scheduler": scheduler,
             "loss_scale": engine.optimizer.loss_scale.encode() if engine.optimizer.loss_scale else "",
             "optimizer": engine.optimizer.groups_state(), "buffers": buffers.persistent(engine.module)}
    engine.core.finish_snapshot()
    _replace(place / "engine.pt", lambda path: torch.save(state, path))
    _replace(directory / "latest", lambda path: path.write_text(tag))
    return str(place)


def load(engine: Engine, directory: Path, tag: str | None) -> tuple[str | None, dict[str, Any]]:
    if tag is None:
        latest = directory / "latest"
        if not latest.exists():
            return None, {}
        tag = latest.read_text().strip()
    place = directory / tag
    try:
        state = torch.load(place / "engine.pt", weights_only=True)
    except FileNotFoundError as error:
        there = sorted(each.parent.name for each in directory.glob("*/engine.pt"))
        raise StorageError(f"{place}: no checkpoint is there; {directory} has {', '.join(there) or 'none'}") from error
    groups = state["optimizer"]["param_groups"]
    if [len(group["params"]) for group in groups] != [len(group["params"]) for group in engine.optimizer.param_groups]:
        raise UsageError(f"{place}: the checkpoint's optimizer has other groups of parameters than this one")
    engine.visits.end()
    engine.binding.go_back(str(place / "store"))
    engine.optimizer.updates = int(state["optimizer"]["penstock"]["updates"])
    engine.optimizer.load_state_dict(state["optimizer"])
    engine.micro_steps = state["micro_steps"]
    if engine.lr_scheduler is not None and state["scheduler"] is not None:
        engine.lr_scheduler.load_state_dict(state["scheduler"])
    if state["loss_scale"] and engine.optimizer.loss_scale is not None:
        engine.optimizer.loss_scale.take(state["loss_scale"])
    buffers.take(engine.module, state["buffers"])
    engine.binding.fed.clear()
    return str(place), state["client_state"]


def committed_state(engine: Engine) -> dict[str, str]:
    """What a step commits beside the weights, as the step begins its update."""
    state = {"micro_steps": str(engine.micro_steps)}
    if engine.optimizer.loss_scale is not None:
        state["loss_scale"] = engine.optimizer.loss_scale.encode()
    if engine.lr_scheduler is not None:
        state["scheduler"] = json.dumps(engine.lr_scheduler.state_dict(), default=_not_kept)
    return state


def take_committed_state(engine: Engine, state: Mapping[str, str]) -> None:
    """The engine goes on from a step that was committed."""
    engine.optimizer.updates = int(state.get("updates", 0))
    engine.micro_steps = int(state.get("micro_steps", 0))
    if "loss_scale" in state and engine.optimizer.loss_scale is not None:
        engine.optimizer.loss_scale.take(state["loss_scale"])
        engine.optimizer.loss_scale.after(overflow=False)  # what was committed was a step
    if engine.has_buffers:
        buffers.unpack(engine.module, engine.core.extra())


def take_committed_scheduler(engine: Engine, state: Mapping[str, str]) -> None:
    """Its state was committed before its turn, which comes after the update."""
    if "scheduler" not in state:
        return
    engine.lr_scheduler.load_state_dict(json.loads(state["scheduler"]))
    for group, rate in zip(engine.optimizer.param_groups, engine.lr_scheduler.get_last_lr()):
        group["lr"] = rate
    engine.optimizer._opt_called = True
    engine.lr_scheduler.step()


def _not_kept(value: Any) -> Any:
    raise UsageError(f"the scheduler's state has a {type(value).__name__}, which a step cannot commit; step the "
                     "scheduler yourself instead of giving it to penstock.initialize()")


def _replace(path: Path, write: Any) -> None:
    """The file is whole or as before."""
    new = path.with_name(path.name + ".new")
    write(new)
    with open(new, "rb") as file:
        os.fsync(file.fileno())
    os.replace(new, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
