"""Arguments that a call does not have: the error says which it has, and who else has one of that name."""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, ParamSpec, TypeVar

from ..errors import ArgumentError, some

Given = ParamSpec("Given")
Made = TypeVar("Made")


def check_names(call: str, given: Iterable[str], own: Sequence[str], others: Sequence[type] = ()) -> None:
    """`others`: dataclasses that the call takes. Raises ArgumentError."""
    for name in given:
        if name not in own:
            raise ArgumentError(f"{call}({name}=...): there is no such argument; {_instead(name, own, others)}")


def checks_names(call: str, *others: type) -> Callable[[Callable[Given, Made]], Callable[Given, Made]]:
    """Of a function, whose errors call it `call`."""
    def checked(function: Callable[Given, Made]) -> Callable[Given, Made]:
        own = tuple(inspect.signature(function).parameters)

        @functools.wraps(function)
        def calls(*args: Given.args, **kwargs: Given.kwargs) -> Made:
            check_names(call, kwargs, own, others)
            return function(*args, **kwargs)
        return calls
    return checked


def names_of(kind: Any) -> list[str]:
    """Of a dataclass that is Said."""
    return [each.name for each in fields(kind) if each.name != "said"]


# Private.
def _instead(name: str, own: Sequence[str], others: Sequence[type]) -> str:
    for kind in (each.__name__ for each in others if name in names_of(each)):
        return f"it is one of penstock.{kind}: {kind.lower()}=penstock.{kind}({name}=...)"
    near = _nearest(name, own)
    if near is not None:
        return f"did you mean '{near}'?"
    for other in others:
        near = _nearest(name, names_of(other))
        if near is not None:
            return f"did you mean '{near}' of penstock.{other.__name__}?"
    return f"there are {some(own, most=len(own))}"


def _nearest(name: str, names: Sequence[str]) -> str | None:
    """The same with an end, or letters like these, or the same first word."""
    near = [each for each in names if each.startswith(f"{name}_")] or get_close_matches(name, names, n=1) \
        or [each for each in names if each.split("_")[0] == name.split("_")[0]]
    return near[0] if near else None
