"""A guard that is removed, and the test that must fail without it."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    test: str
    native: bool = False  # the test is of the core on NVMe
