"""What a caller has said of an object's fields, and what was left to its default: two things, also where both have the
same value."""
from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ..errors import UsageError
from .argument_names import check_names, names_of


@dataclass(frozen=True)
class Said:
    """Base of frozen dataclasses. `said` has the names of the fields that the caller gave: not to be given by hand.
    dataclasses.replace() keeps it and adds the fields that become another value than their default; a default that it
    gives to a field of which nothing was said leaves that so."""

    said: frozenset[str] | None = field(default=None, repr=False, compare=False, kw_only=True)

    def __new__(cls, *values: Any, **named: Any) -> Any:
        made = super().__new__(cls)
        check_names(f"penstock.{cls.__name__}", named.keys() - {"said"}, names_of(cls))
        in_order = [each.name for each in fields(cls) if each.init and not each.kw_only]
        made.__dict__["_given"] = frozenset(in_order[:len(values)]) | named.keys()
        return made

    def __post_init__(self) -> None:
        given: frozenset[str] = self.__dict__.pop("_given")
        if self.said is not None:  # replace() gives all of them
            given = self.said | {each.name for each in fields(self) if getattr(self, each.name) != each.default}
        object.__setattr__(self, "said", given - {"said"})
        kind: Any = type(self)
        for name, words in _words_of(kind).items():
            value = getattr(self, name)
            if value not in words:
                *first, last = map(repr, words)
                raise UsageError(f"{kind.__name__}({name}={value!r}): there are {', '.join(first)} and {last}")

    def says(self, name: str) -> bool:
        """The caller gave it."""
        return name in (self.said or ())


@cache
def _words_of(kind: type[Said]) -> dict[str, tuple[Any, ...]]:
    """By field, of those whose type is a Literal, or that or None."""
    found = {}
    for name, hint in get_type_hints(kind).items():
        parts = (hint,) if get_origin(hint) is Literal else get_args(hint)
        if parts and all(get_origin(each) is Literal or each is type(None) for each in parts):
            found[name] = tuple(word for each in parts for word in get_args(each) or (None,))
    return found
