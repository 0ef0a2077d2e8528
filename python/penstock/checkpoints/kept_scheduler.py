"""A scheduler of learning rates that is stepped after each update and whose state is committed with it.

Its turn comes behind the update, and the commit is the update's: what is committed is its state before that turn, and
what the turn is given. An opening that goes on loads the one and then makes the other.
"""
from __future__ import annotations

import inspect
import json
from collections import Counter
from collections.abc import Mapping
from reprlib import repr as short
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from . import client_values
from ..errors import UsageError

CALLS = ("step", "state_dict", "load_state_dict")
CODE = (FunctionType, MethodType, BuiltinFunctionType)
STEP_IT = "or step the scheduler yourself, behind engine.step(), instead of giving it to penstock.initialize()"
Groups = list[dict[str, Any]]


def is_scheduler(given: Any) -> bool:
    """One of torch's, or whatever else has its calls."""
    return not isinstance(given, type) and all(callable(getattr(given, each, None)) for each in CALLS)


def check_given(given: Any, groups: Groups) -> None:
    """Before anything is opened. Raises UsageError unless it is a scheduler whose state comes back, or a function."""
    if is_scheduler(given):
        KeptScheduler(given, groups).check()
    elif hasattr(given, "step") and not isinstance(given, type):
        missing = next(each for each in CALLS if not callable(getattr(given, each, None)))
        raise UsageError(f"lr_scheduler: a {type(given).__name__} has no {missing}(), so that no step can commit it; "
                         f"add state_dict() and load_state_dict(), {STEP_IT}")
    elif not callable(given):
        raise UsageError("lr_scheduler: a scheduler of torch, another object with step(), state_dict() and "
                         f"load_state_dict(), or a function that makes one, not {type(given).__name__}")


def adopt(given: Any, optimizer: torch.optim.Optimizer) -> Any:
    """A scheduler that was made for the user's own optimizer goes on with ours, and so do those that it is made of: the
    groups are the same objects. A function makes one of ours. REQUIRES: check_given()."""
    if is_scheduler(given):
        _point_at(given, optimizer)
        return given
    made = given(optimizer)
    if not is_scheduler(made):
        raise UsageError(f"lr_scheduler: the function gave a {type(made).__name__}, not a scheduler with step(), "
                         "state_dict() and load_state_dict()")
    return made


def state_of(scheduler: Any) -> dict[str, Any]:
    """What torch's own state_dict() has of functions is left out: its constructor makes them."""
    state = scheduler.state_dict()
    plain = getattr(type(scheduler), "state_dict", None) is LRScheduler.state_dict and \
        type(scheduler).load_state_dict is LRScheduler.load_state_dict
    return {key: each for key, each in state.items() if not isinstance(each, CODE)} if plain else state


class KeptScheduler:
    """Of one engine. `groups` are the optimizer's, as the script has made them."""

    def __init__(self, scheduler: Any, groups: Groups) -> None:
        self.scheduler, self._groups = scheduler, groups
        self._usual: dict[str, Any] | None = None if _wants_more(scheduler) else {}
        self._turn = self._usual  # what the next one is given; None: the program makes it
        self._compared = False

    def check(self) -> None:
        """Raises UsageError unless its state comes back: from a text, and into the scheduler."""
        name = type(self.scheduler).__name__
        before = self._text()
        try:
            self.scheduler.load_state_dict(client_values.from_text(before))
        except Exception as problem:
            raise UsageError(f"the load_state_dict() of {name} does not take what its state_dict() gave: {problem}; "
                             f"mend it, {STEP_IT}") from problem
        self._check_loaded(before)

    def expect_turn(self, given: Mapping[str, Any] | None) -> None:
        """Of the update that follows: what engine.step(lr_kwargs=...) was given."""
        if given is None:
            self._turn = self._usual
            return
        self._turn = {key: each.detach() if isinstance(each, torch.Tensor) else each for key, each in given.items()}
        client_values.encode(self._turn, "engine.step(lr_kwargs=...)")

    def take_turn(self) -> None:
        """It is updated."""
        if self._turn is not None:
            self.scheduler.step(**self._turn)
        self._turn = self._usual

    def committed(self) -> dict[str, str]:
        """As the update begins."""
        return {"lr_scheduler": self._text(),
                "turn": client_values.to_text(self._turn, "engine.step(lr_kwargs=...)", compare=False)}

    def go_on(self, state: Mapping[str, str]) -> None:
        """From what was committed: its state, and its turn."""
        if "lr_scheduler" not in state:
            self._go_on_from_json(state)
            return
        self.load(client_values.from_text(state["lr_scheduler"]))
        self._turn = client_values.from_text(state["turn"])
        self.take_turn()

    def load(self, values: dict[str, Any]) -> None:
        """Raises UsageError where that is not its state then."""
        text = client_values.to_text(values, "the scheduler's state", compare=False)
        self.scheduler.load_state_dict(values)
        self._check_loaded(text)

    def state(self) -> dict[str, Any]:
        """As it is now, for a checkpoint."""
        return state_of(self.scheduler)

    # Private.
    def _text(self) -> str:
        place = f"the state_dict() of {type(self.scheduler).__name__}"
        try:
            text = client_values.to_text(state_of(self.scheduler), place, compare=not self._compared)
        except UsageError as problem:
            raise UsageError(f"{problem}. A step commits it: {STEP_IT.removeprefix('or ')}") from problem
        self._compared = True
        return text

    def _check_loaded(self, text: str) -> None:
        expected, found = client_values.from_text(text), state_of(self.scheduler)
        differing = [key for key in {**expected, **found}
                     if key not in expected or key not in found or not client_values.same(expected[key], found[key])]
        if differing:
            raise UsageError(f"the state of {type(self.scheduler).__name__} does not come back: after load_state_dict "
                             f"its '{differing[0]}' is {short(found.get(differing[0]))}, in what was loaded "
                             f"{short(expected.get(differing[0]))}; mend load_state_dict(), {STEP_IT}")

    def _go_on_from_json(self, state: Mapping[str, str]) -> None:
        """As versions before 0.2 have committed it: numbers that were keys are texts there."""
        if "scheduler" not in state:
            return
        values = json.loads(state["scheduler"])
        if isinstance(getattr(self.scheduler, "milestones", None), Counter):
            values["milestones"] = Counter({int(key): count for key, count in values["milestones"].items()})
        self.scheduler.load_state_dict(values)
        for group, rate in zip(self._groups, self.scheduler.get_last_lr()):
            group["lr"] = rate
        self.scheduler.step()


def _point_at(scheduler: Any, optimizer: torch.optim.Optimizer) -> None:
    if isinstance(getattr(scheduler, "optimizer", None), torch.optim.Optimizer):
        scheduler.optimizer = optimizer
    for each in getattr(scheduler, "_schedulers", ()):
        _point_at(each, optimizer)


def _wants_more(scheduler: Any) -> bool:
    """Whether step() is nothing without an argument, as ReduceLROnPlateau's."""
    try:
        parameters = inspect.signature(scheduler.step).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD,
                                                            each.KEYWORD_ONLY) for each in parameters)
