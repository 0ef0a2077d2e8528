"""Torch's activations are small pieces of the C library's heap, which keeps their pages when they are freed; the
gradient of a large embedding is a piece of its own that comes on top. Before it comes, free pages go back: less memory
at the peak, for the time in which the next pass gets them again. Who tells glibc to keep free memory gets that time
instead."""
from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

LARGE_BYTES = 64 << 20  # of a unit: above what glibc takes from its heap (M_MMAP_THRESHOLD is 32 MiB at most)

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's


def is_to_be_kept(environment: Mapping[str, str]) -> bool:
    """Free memory: by either of the two words in which glibc is told when its heap shrinks."""
    tunables = environment.get("GLIBC_TUNABLES", "").split(":")
    return "MALLOC_TRIM_THRESHOLD_" in environment or any(
        each.startswith("glibc.malloc.trim_threshold=") for each in tunables)


_is_kept = is_to_be_kept(os.environ)  # glibc reads it as the process begins


def give_back_free_pages() -> None:
    """Takes some milliseconds, and as much again for each page that is wanted back."""
    if not _is_kept:
        trim()


def trim() -> None:
    """The same, whatever glibc was told: memory is short."""
    if _trim is not None:
        _trim(0)
