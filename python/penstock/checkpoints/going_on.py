"""An opening that goes on with an earlier run: what that run has said, what this script says instead, and one line that
tells of both."""
from __future__ import annotations

import json
import time
from collections.abc import Mapping
from numbers import Number
from reprlib import repr as short
from typing import Any

import torch

from . import client_values, random_states
from ..settings import Settings

Groups = list[dict[str, Any]]
Columns = dict[str, list[Any]]  # a value of each group; one where all have the same
RATES = ("lr", "initial_lr")  # what a scheduler always goes on from, whatever the script says
SIMPLE = (Number, str, type(None))  # numpy's numbers are such, too
UNITS = ((86400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))

DATA = "which batches come next is the script's to say (training_data=... goes on by itself)"


class Script:
    """What a script says of its training: the values of the optimizer's groups as it has given them, and the numbers of
    its step. Committed with each step, with the values that were moved since."""

    def __init__(self, groups: Groups, settings: Settings) -> None:
        self._groups = groups
        self._given = columns(groups)
        self._given_text = client_values.to_text(self._given, "the optimizer's groups")
        self._numbers = {"gradient_accumulation_steps": settings.accumulation, "gradient_clipping": settings.clip,
                         "micro-batch": settings.micro_batch}

    def committed(self) -> dict[str, str]:
        """As the update begins."""
        now = columns(self._groups)
        moved = {key: column for key, column in now.items() if not _equal(column, self._given.get(key))}
        return {"run": json.dumps({"time": int(time.time()), **self._numbers}), "groups": self._given_text,
                "moved": client_values.to_text(moved, "the optimizer's groups", compare=False)}

    def take_moved(self, state: Mapping[str, str]) -> None:
        """What a scheduler has moved is where it was; all else is as this script gives it."""
        given, moved = _read(state, "groups"), _read(state, "moved")
        for key, column in {**{key: given[key] for key in RATES if key in given}, **moved}.items():
            for group, value in zip(self._groups, _spread(column, len(self._groups))):
                if isinstance(group.get(key), torch.Tensor):
                    group[key].fill_(value)
                elif key in group or value is not None:
                    group[key] = value

    def differences(self, state: Mapping[str, str], scheduled: bool) -> list[str]:
        """What this script gives, and the earlier one did not; with a scheduler its rates are those that go on."""
        said, given = json.loads(state.get("run", "{}")), _read(state, "groups")
        out = [f"{key} {value} instead of {said[key]}" for key, value in self._numbers.items()
               if key in said and said[key] != value]
        for key, column in self._given.items():
            if key in given and not _equal(column, given[key]):
                goes_on = scheduled and key in RATES
                out.append(f"{key} {_said(given[key])}, as the scheduler goes on, not {_said(column)}" if goes_on else
                           f"{key} {_said(column)} instead of {_said(given[key])}")
        return out

    def left(self, state: Mapping[str, str]) -> list[str]:
        """What the earlier run had moved by itself, and this one begins with anew: no scheduler was given."""
        return [f"{key} begins at {_said(self._given[key])}, its last step had {_said(column)}"
                for key, column in _read(state, "moved").items()
                if key in self._given and not _equal(column, self._given[key])]


def first_state() -> dict[str, str]:
    """What a new store commits with its first weights."""
    return {"run": json.dumps({"time": int(time.time())}), random_states.KEY: random_states.taken()}


def line(step: int, state: Mapping[str, str], where: str, restored: list[str], others: list[str]) -> str:
    """What is told of an opening that goes on."""
    at = json.loads(state.get("run", "{}")).get("time")
    age = "" if at is None else f", made {_ago(time.time() - at)} ago"
    states = f"random states of {', '.join(restored)} restored" if restored else "random states as the program has them"
    return f"goes on from step {step} of {where}{age}; " + "; ".join([states, *others])


def columns(groups: Groups) -> Columns:
    """What the groups say, without parameters and values that are no numbers."""
    keys = dict.fromkeys(key for group in groups for key in group if key != "params")
    found = {key: [_as_it_is(group.get(key)) for group in groups] for key in keys}
    return {key: column[:1] if _is_one(column) else column for key, column in found.items()
            if all(_is_simple(each) for each in column)}


# Private.
def _as_it_is(value: Any) -> Any:
    """A scheduler changes a rate that is a tensor in place."""
    return value.detach().clone() if type(value) is torch.Tensor else value


def _is_simple(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(isinstance(each, SIMPLE) for each in value)
    return isinstance(value, SIMPLE) or (type(value) is torch.Tensor and value.numel() == 1)


def _is_one(column: list[Any]) -> bool:
    return all(each is column[0] or _same(each, column[0]) for each in column)


def _equal(a: list[Any], b: list[Any] | None) -> bool:
    if b is None:
        return False
    count = max(len(a), len(b))
    a, b = _spread(a, count), _spread(b, count)
    return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b))


def _same(a: Any, b: Any) -> bool:
    """A rate may be a tensor, and so may one of two."""
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _spread(column: list[Any], count: int) -> list[Any]:
    return column * count if len(column) == 1 else column


def _read(state: Mapping[str, str], key: str) -> Columns:
    found: Columns = client_values.from_text(state[key]) if key in state else {}
    return found


def _said(column: list[Any]) -> str:
    return short(column[0] if len(column) == 1 else column)


def _ago(seconds: float) -> str:
    for length, name in UNITS:
        if seconds >= 2 * length or length == 1:
            return f"{max(0, int(seconds // length))} {name}"
    raise AssertionError(seconds)
