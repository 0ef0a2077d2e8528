"""Files that are whole or as before, whenever a process or a machine stops."""
from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def sync(path: Path) -> None:
    """A file's bytes, or a directory's names."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """`write` makes the file under another name, beside it. Raises OSError and what that raises."""
    new = path.with_name(path.name + ".new")
    write(new)
    sync(new)
    os.replace(new, path)
    sync(path.parent)


def replace_text(path: Path, text: str) -> None:
    replace(path, lambda new: new.write_text(text, encoding="utf-8"))
