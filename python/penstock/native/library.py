"""Finds and loads libpenstock_python.so."""
from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path

from ..errors import UsageError

NAME = "libpenstock_python.so"


def library_of(header: str, version: str, own: int) -> ctypes.CDLL:
    """The library, whose function `version` must say of that header what this package was written for."""
    loaded = library()
    there = getattr(loaded, version)()
    if there != own:
        raise UsageError(f"{loaded._name} speaks version {there} of {header} and this package version {own}: install "
                         "both from one wheel, or build the checkout again")
    return loaded


@functools.cache
def library() -> ctypes.CDLL:
    """Beside the package, as the wheel has it; named by PENSTOCK_LIBRARY; or built in a checkout."""
    package = Path(__file__).resolve().parents[1]
    named = os.environ.get("PENSTOCK_LIBRARY")
    places = [Path(named)] if named else [package / NAME, *(package.parent.parent / "build").glob(f"*/python/{NAME}")]
    for place in places:
        if place.is_file():
            try:
                return ctypes.CDLL(str(place))
            except OSError as error:
                raise UsageError(f"{place} cannot be loaded: {error}") from error
    raise UsageError(f"{NAME} is not at {', '.join(map(str, places))}: install the wheel, build the checkout "
                     "(./run build), or name the file in PENSTOCK_LIBRARY")
