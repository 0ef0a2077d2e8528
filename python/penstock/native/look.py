"""What a directory holds, seen without opening it."""
from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, field
from typing import Any, Literal

from . import structs as c
from .session import functions, made

Content = Literal["nothing", "store", "snapshot"]
CONTENTS: tuple[Content, ...] = ("nothing", "store", "snapshot")


@dataclass(frozen=True)
class Look:
    """`values` were committed with its newest generation; `in_use`: by somebody who may write."""

    content: Content
    in_use: bool
    values: dict[str, str] = field(default_factory=dict)


def look(directory: str | os.PathLike[str]) -> Look:
    """Raises StorageError where a store is there of which nothing is whole."""
    values: dict[str, str] = {}

    def take(value: Any, _: Any) -> None:
        data = ctypes.string_at(value.contents.data, value.contents.bytes) if value.contents.bytes else b""
        values[value.contents.key.decode()] = data.decode(errors="replace")
    found = made(c.Look)
    functions()["look"](os.fsencode(directory), ctypes.byref(found), c.TakeValue(take), None)
    return Look(CONTENTS[found.content], bool(found.in_use), values)
