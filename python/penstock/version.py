"""Which version of the package this is."""
from __future__ import annotations

import importlib.metadata
import os
import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def version() -> str:
    """Of the checkout that the package lies in, else of the distribution; "unknown": it was copied here."""
    try:
        told = re.search(r'^version = "([^"]+)"', (PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"), re.M)
        if told is not None:
            return told[1]
    except OSError:
        pass
    try:
        return importlib.metadata.version("penstock")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def checkout() -> Path | None:
    """Its root, where the package lies in one."""
    root = PACKAGE.parent.parent
    return root if os.path.isfile(root / "run") and os.path.isfile(root / "CMakeLists.txt") else None
