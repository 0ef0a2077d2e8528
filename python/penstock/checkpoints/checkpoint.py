"""Checkpoints: a snapshot of the store and what the engine knows beside it; and the part of it that every step commits.

A checkpoint DIR/TAG has a snapshot, `store`, and `engine.pt`, which is written last and names the snapshot. One that is
replaced has its old snapshot until the new engine.pt is there; the new snapshot is `store.2`, or a later number.
DIR/latest names the newest tag, and DIR/zero_to_fp32.py takes the weights out.
"""
from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from . import client_values, going_on, of_ranks, random_states, weights_alone
from ..core import Core
from ..errors import StorageError, UsageError, some
from ..files.description import Description
from ..files.durable import replace, replace_text
from ..files.parts import are_parts
from ..native.look import look
from ..optimizer import Optimizer
from ..ranks.group import Group
from ..run.loader import Loader
from ..run.progress import Progress
from ..run.saving import Saving
from ..step.visits import Visits
from ..weights import buffers
from ..weights.binding import Binding
from .going_on import Script
from .kept_scheduler import KeptScheduler

MOST_BYTES = 262144  # of all that is committed beside the model, 8 and its key for each (swap/FORMAT.md)
LATEST = "latest"
ZERO_TO_FP32 = "zero_to_fp32.py"  # which DeepSpeed's users run by habit
SCRIPT = '''#!/usr/bin/env python3
"""The weights of a checkpoint here, in fp32: python zero_to_fp32.py . OUT"""
import sys

from penstock.command.zero_to_fp32 import main

sys.exit(main())
'''
SNAPSHOT = re.compile(r"store(\.\d+)?")


@dataclass(frozen=True)
class Wanted:
    """Of a checkpoint that is loaded."""

    strict: bool = True
    states: bool = True  # of the optimizer
    scheduler: bool = True
    random: bool = False


class Training(Protocol):
    """What a checkpoint takes of an engine, and puts back."""

    core: Core
    module: nn.Module
    binding: Binding
    visits: Visits
    optimizer: Optimizer
    scheduler: KeptScheduler | None
    group: Group | None  # of several processes
    newest: Mapping[str, str]  # what the newest step committed beside the weights
    script: Script
    loader: Loader | None
    kept_buffers: buffers.Buffers
    progress: Progress
    saving: Saving
    micro_steps: int
    counted_from: int

    @property
    def global_steps(self) -> int: ...

    @property
    def description(self) -> Description: ...

    def count_from(self, micro_steps: int) -> None: ...


def save(engine: Training, directory: Path, tag: str | int | None, client_state: dict[str, Any], latest: bool = True,
         overwrite: bool = True, wait: bool = True) -> str:
    engine.saving.finish()
    if engine.group is not None:
        return _save_together(engine, engine.group, directory, tag, client_state, latest, overwrite)
    place, values = _begun(engine, directory, tag, client_state, overwrite)
    engine.visits.end()
    copied = engine.saving.copy_in(place)  # Trainer saves a step twice in a row
    name = copied or _free_name(place)
    written = {"snapshot": name, "model": engine.description.encode(), "values": values}

    def make_whole() -> None:
        _name_it(place, written, latest)
    if copied is not None:
        make_whole()
    else:
        engine.saving.begin(str(place / name), make_whole)
    if wait:
        engine.saving.finish()
    return str(place)


def load(engine: Training, directory: Path, tag: str | int | None, wanted: Wanted) -> tuple[str | None, dict[str, Any]]:
    engine.saving.finish()
    if tag is None:
        newest = directory / LATEST
        if not newest.exists():
            return None, {}
        tag = newest.read_text().strip()
    place = directory / _tag(tag, directory)
    state, snapshot = _read(place, directory)
    if not wanted.states:
        weights_alone.load(engine.binding, engine.visits, place, wanted.strict)
        if wanted.scheduler:
            _load_scheduler(engine, state)
        return str(place), state["client_state"]
    groups = state["optimizer"]["param_groups"]
    if [len(group["params"]) for group in groups] != [len(group["params"]) for group in engine.optimizer.param_groups]:
        raise UsageError(f"{place}: the checkpoint's optimizer has other groups of parameters than this one")
    if wanted.strict:
        buffers.check(engine.module, state["buffers"])
    engine.visits.end()
    committed = _go_back(engine, place, snapshot, wanted)
    engine.optimizer.gone_back(int(state["optimizer"]["penstock"]["updates"]))
    engine.optimizer.load_state_dict(state["optimizer"])
    engine.count_from(state["micro_steps"])
    engine.optimizer.go_on(engine.optimizer.updates, state.get("skipped_steps", 0))  # an older version counted none
    if wanted.scheduler:
        _load_scheduler(engine, state)
    if state["loss_scale"] and engine.optimizer.loss_scale is not None:
        engine.optimizer.loss_scale.take(state["loss_scale"])
    if engine.loader is not None and "loader" in committed:
        engine.loader.go_to(committed["loader"])
    buffers.take(engine.module, state["buffers"])
    if wanted.random and random_states.KEY in committed:
        random_states.put(committed[random_states.KEY])
    return str(place), state["client_state"]


def take_states(engine: Training, there: Path, described: Path, strict: bool = True) -> Mapping[str, Any] | None:
    """Weights and states are those of a snapshot, or of what several processes have written; `described`: the directory
    that tells its names. What a snapshot has committed with them; None where values were taken one by one."""
    if engine.group is None and not are_parts(there):
        return engine.binding.go_back(str(there))
    engine.optimizer.zero_grad()
    of_ranks.take(engine.binding, engine.optimizer, engine.visits, described, strict)
    return None


def committed_state(engine: Training) -> dict[str, str]:
    """What a step commits beside the weights, as the step begins its update."""
    state = {"micro_steps": str(engine.micro_steps), random_states.KEY: random_states.taken(),
             **engine.script.committed()}
    if engine.optimizer.loss_scale is not None:
        state.update(loss_scale=engine.optimizer.loss_scale.encode(), skipped_steps=str(engine.optimizer.skipped))
    if engine.loader is not None:
        state["loader"] = engine.loader.position()
    if engine.scheduler is not None:
        state.update(engine.scheduler.committed())
    _check_room({**engine.core.user_state, **state})
    return state


def take_committed_state(engine: Training, state: Mapping[str, str]) -> None:
    """The engine goes on from a step that was committed."""
    engine.optimizer.go_on(int(state.get("updates", 0)), int(state.get("skipped_steps", 0)))
    engine.count_from(int(state.get("micro_steps", 0)))
    if "loss_scale" in state and engine.optimizer.loss_scale is not None:
        engine.optimizer.loss_scale.take(state["loss_scale"])
        engine.optimizer.loss_scale.after(overflow=False)  # what was committed was a step
    if engine.kept_buffers.count_bytes:
        engine.kept_buffers.unpack(engine.core.extra())


def go_on(engine: Training, state: Mapping[str, str], restore_random: bool, where: str) -> tuple[str, bool]:
    """So do the random states and the scheduler, whose turn comes after the update that was committed. What to tell of
    it, and whether this script says other things than the one before."""
    script = engine.script
    others = script.differences(state, engine.scheduler is not None)
    data: list[str] = []
    if engine.loader is None:
        (others if "loader" in state else data).append(going_on.DATA)
    text = str(state.get(random_states.KEY, ""))
    restored = random_states.put(text) if restore_random and text else []
    left: list[str] = []
    if engine.scheduler is None:
        left = script.left(state)
    else:
        script.take_moved(state)
        engine.optimizer.tell_schedulers()
        engine.scheduler.go_on(state)
    return going_on.line(engine.global_steps, state, where, restored, [*others, *left, *data]), bool(others)


# Private.
def _begun(engine: Training, directory: Path, tag: str | int | None, client_state: dict[str, Any], overwrite: bool
           ) -> tuple[Path, dict[str, Any]]:
    """The checkpoint's directory, and what is kept beside the snapshot."""
    place = directory / _tag(f"global_step{engine.global_steps}" if tag is None else tag, directory)
    if (place / "engine.pt").exists() and not overwrite:
        raise StorageError(f"{place}: a checkpoint is there already; give another tag, or overwrite=True")
    values = {"client_state": client_values.encode(client_state, "client_state"),
              "engine": client_values.encode(_state(engine), "the engine's state")}
    place.mkdir(parents=True, exist_ok=True)
    return place, values


def _name_it(place: Path, written: dict[str, Any], latest: bool) -> None:
    """A checkpoint whose values are there becomes one."""
    directory = place.parent
    replace(place / "engine.pt", lambda path: torch.save(written, path))
    _remove_snapshots(place, but=written["snapshot"])
    if latest:
        replace_text(directory / LATEST, place.name)
    if not (directory / ZERO_TO_FP32).exists():
        replace(directory / ZERO_TO_FP32, _write_script)


def _save_together(engine: Training, group: Group, directory: Path, tag: str | int | None, client_state: dict[str, Any],
                   latest: bool, overwrite: bool) -> str:
    """Of several processes: rank 0's tag, client state and engine. All ranks see one directory."""
    def begin() -> tuple[str, str, dict[str, Any]]:
        place, values = _begun(engine, directory, tag, client_state, overwrite)
        name = _free_name(place)
        (place / name).mkdir()
        return str(place), name, values

    def end() -> None:
        _name_it(place, {"snapshot": name, "model": engine.description.encode(), "values": values, "committed": committed}, latest)

    tags = group.gathered(None if tag is None else str(tag), "engine.save_checkpoint()")
    if group.rank == 0 and any(each != tags[0] for each in tags):
        engine.progress.warn(f"save_checkpoint(): ranks gave different tags, {some(tags)}; rank 0's is taken")
    told, name, values = of_ranks.by_first(group, begin)
    place = Path(told)
    engine.visits.end()
    of_ranks.write(engine.binding, engine.optimizer, group, place / name, engine.kept_buffers.packed())
    random = group.gathered(engine.newest.get(random_states.KEY, ""), "engine.save_checkpoint(), random states")
    committed = {**engine.newest, random_states.KEY: random}
    of_ranks.by_first(group, end)
    return str(place)


def _go_back(engine: Training, place: Path, snapshot: str, wanted: Wanted) -> Mapping[str, Any]:
    """Weights and states are the checkpoint's; what was committed with them."""
    group, there = engine.group, place / snapshot
    own = take_states(engine, there, place, wanted.strict)
    if own is not None:
        return own
    if not are_parts(there):
        return {key: each for key, each in look(there).values.items() if key != random_states.KEY}
    committed: dict[str, Any] = dict(torch.load(place / "engine.pt", weights_only=True)["committed"])
    random = committed.pop(random_states.KEY)
    if len(random) == (1 if group is None else group.ranks):
        committed[random_states.KEY] = random[0 if group is None else group.rank]
    return committed


def _tag(given: Any, directory: Path) -> str:
    """Numbers may be tags, as DeepSpeed takes them."""
    tag = str(given)
    if Path(tag).name != tag or tag in ("", "..", LATEST, LATEST + ".new"):
        raise UsageError(f"'{tag}' is no tag: it names a directory in {directory}, without a path, and is not 'latest'")
    return tag


def _state(engine: Training) -> dict[str, Any]:
    """As it was at the last update: micro-batches since then are none of the snapshot's."""
    return {"micro_steps": engine.counted_from, "skipped_steps": engine.optimizer.skipped,
            "scheduler": engine.scheduler.state() if engine.scheduler is not None else None,
            "loss_scale": engine.optimizer.loss_scale.encode() if engine.optimizer.loss_scale else "",
            "optimizer": engine.optimizer.groups_state(), "buffers": buffers.persistent(engine.module)}


def _read(place: Path, directory: Path) -> tuple[dict[str, Any], str]:
    """The state, and the name of the snapshot."""
    try:
        read = torch.load(place / "engine.pt", weights_only=True)
    except FileNotFoundError as error:
        there = sorted(each.parent.name for each in directory.glob("*/engine.pt"))
        raise StorageError(f"{place}: no checkpoint is there; {directory} has {', '.join(there) or 'none'}") from error
    if "values" not in read:
        return read, "store"  # an older version's
    try:
        values = {key: client_values.decode(each) for key, each in read["values"].items()}
        return {"client_state": values["client_state"], **values["engine"]}, read["snapshot"]
    except client_values.Unreadable as error:
        raise StorageError(f"{place}/engine.pt: {error}") from error


def _load_scheduler(engine: Training, state: Mapping[str, Any]) -> None:
    if engine.scheduler is not None and state["scheduler"] is not None:
        engine.scheduler.load(state["scheduler"])


def _write_script(path: Path) -> None:
    path.write_text(SCRIPT)
    path.chmod(0o755)


def _check_room(state: Mapping[str, str]) -> None:
    """The store's format has a limit, which a scheduler that remembers more and more would come to."""
    lengths = {key: 8 + len(key) + len(text) for key, text in state.items()}
    if sum(lengths.values()) > MOST_BYTES:
        largest = max(lengths, key=lambda key: lengths[key])
        what = {"lr_scheduler": "the scheduler's state_dict()", "groups": "what the optimizer's groups say",
                "moved": "what the optimizer's groups say"}.get(largest, f"'{largest}'")
        raise UsageError(f"a step commits at most {MOST_BYTES} bytes beside the model, and {what} takes "
                         f"{lengths[largest]} of them: let it hold less, as the sum of a history in place of all of it")


def _free_name(place: Path) -> str:
    """For a snapshot; what an interrupted call has left is not the checkpoint's, and goes."""
    engine = place / "engine.pt"
    used = torch.load(engine, weights_only=True).get("snapshot", "store") if engine.exists() else None
    _remove_snapshots(place, but=used)
    if used is None:
        return "store"
    return f"store.{int(used.partition('.')[2] or 1) + 1}"


def _remove_snapshots(place: Path, but: str | None) -> None:
    for each in place.iterdir():
        if SNAPSHOT.fullmatch(each.name) and each.name != but and each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
