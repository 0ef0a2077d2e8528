"""What checkpoints of several processes have: values that all of them gather, and each writes a part of. They are loaded
one by one, by any number of processes; so are those of one process's snapshot."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from ..core import What
from ..errors import EndedError, PeerError, StorageError, UsageError
from ..files.parts import EXTRA, FILE, Part, key_of
from ..files.safetensors_file import TensorInfo
from ..files.stored_weights import StoredWeights
from ..optimizer import Optimizer
from ..ranks.group import Group
from ..step.visits import Visits
from ..weights.binding import Binding
from . import weights_alone

Answer = TypeVar("Answer")


def together(group: Group, call: Callable[[], Answer]) -> list[Answer]:
    """What it gives on each rank. Where it raises on one, all raise: that one its error, the others its words."""
    value: Any = None
    problem: Exception | None = None
    try:
        value = call()
    except Exception as error:
        problem = error
    own = value, None if problem is None else f"{type(problem).__name__}: {problem}"
    told = group.gathered(own, "what each rank has done of a checkpoint")
    if problem is not None:
        raise problem
    for rank, (_, words) in enumerate(told):
        if words is not None:
            raise PeerError(f"rank {rank} could not go on: {words}")
    return [each for each, _ in told]


def by_first(group: Group, call: Callable[[], Answer]) -> Answer:
    """What it gives on rank 0, which alone calls it, for all."""
    answer: Answer = together(group, lambda: call() if group.rank == 0 else None)[0]  # type: ignore[assignment]
    return answer


def write(binding: Binding, optimizer: Optimizer, group: Group, directory: Path, extra: torch.Tensor | None) -> None:
    """All values, each by one rank, into a directory that is there. All ranks call it."""
    check_counted(optimizer, group)
    values = [(each, what) for each in binding.names for what in whats(binding, optimizer, each)]
    infos = {key_of(binding.places[each], what): _info(each, what)
             for each, what in values[group.rank::group.ranks]}
    if extra is not None and group.rank == 0:
        infos[EXTRA] = TensorInfo(tuple(extra.shape), extra.dtype)
    part: list[Part] = []  # once it is begun
    together(group, lambda: part.append(Part(directory, group.rank, infos)))
    problem: StorageError | None = None
    try:
        for parameter, what in values:
            value = binding.read(parameter, what)  # by all, whoever writes it
            problem = problem or _attempt(part[0], key_of(binding.places[parameter], what), value)
        if extra is not None:
            problem = problem or _attempt(part[0], EXTRA, extra)
        together(group, lambda: _ended(part[0], problem))
        by_first(group, lambda: _check_seen(directory, group))
    finally:
        part[0].abandon()


def take(binding: Binding, optimizer: Optimizer, visits: Visits, checkpoint: Path, strict: bool) -> None:
    """A checkpoint's weights and moments into an engine, of any number of processes. Durable with the next commit. Of
    another model or optimizer: an error, and nothing has happened."""
    with StoredWeights(checkpoint) as stored:
        if strict:
            weights_alone.check_names(binding, stored, checkpoint)
        named = {name: each for name, each in binding.named.items() if name in stored.description.tensors}
        weights_alone.check_shapes(binding, stored, list(named), checkpoint)
        if stored.skipped_steps or optimizer.state.skipped():
            raise UsageError(f"{checkpoint}: some parameters have skipped steps, which are counted in one process's store alone: "
                             "load_optimizer_states=False takes the checkpoint's weights")
        trained = [name for name, each in named.items() if binding.learns(each)]
        for what in optimizer.state.moments.values() if trained else ():
            stored.state(trained[0], what)  # or there is none
        try:
            for name, parameter in named.items():
                visits.end()
                for what in whats(binding, optimizer, parameter):
                    binding.write(parameter, stored.state(name, what).to(_info(parameter, what).dtype), what)
        except StorageError as error:
            raise EndedError(f"{error}; some values are the checkpoint's by now and others are not: close the engine, and "
                             "open it anew") from error


def whats(binding: Binding, optimizer: Optimizer, parameter: nn.Parameter) -> tuple[What, ...]:
    """What there is of it: the weight of a trained one is a rounding of its master."""
    return ("master", *optimizer.state.moments.values()) if binding.learns(parameter) else ("weight",)


def check_counted(optimizer: Optimizer, group: Group) -> None:
    """Raises UsageError, of all ranks, where a parameter has no gradient on any rank in some step: how many it was updated
    in is in the stores alone."""
    skipped: list[Mapping[Any, int]] = group.gathered(dict(optimizer.state.skips), "engine.save_checkpoint(), skipped steps")
    if set.intersection(*(set(each) for each in skipped)):
        raise UsageError("save_checkpoint() of several processes: some parameters have skipped steps, in which no gradient came "
                         "to them on any rank, and how many is in the stores alone: freeze them, or let the store be kept "
                         "(run.swap_directory), from which the same command goes on")


# Private.
def _info(parameter: nn.Parameter, what: What) -> TensorInfo:
    return TensorInfo(tuple(parameter.shape), parameter.dtype if what == "weight" else torch.float32)


def _attempt(part: Part, key: str, values: torch.Tensor) -> StorageError | None:
    """The others read on, so nothing is raised in between."""
    try:
        part.write(key, values)
    except StorageError as problem:
        return problem
    return None


def _check_seen(directory: Path, group: Group) -> None:
    missing = [rank for rank in range(group.ranks) if not (directory / FILE.format(rank)).exists()]
    if missing:
        raise StorageError(f"{directory}: what rank {missing[0]} has written is not there: name a directory that all hosts see")


def _ended(part: Part, problem: StorageError | None) -> None:
    if problem is not None:
        raise problem
    part.close()
