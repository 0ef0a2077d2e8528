"""What a caller has said of an object's fields, and what was left to its default: two things, also where both have the
same value."""
from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

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

    def says(self, name: str) -> bool:
        return name in (self.said or ())
