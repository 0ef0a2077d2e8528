"""Torch's activations are small pieces of the C library's heap, which keeps their pages when they are freed; the
gradient of a large embedding is a piece of its own that comes on top. Before it comes, free pages go back."""
from __future__ import annotations

import ctypes

LARGE_BYTES = 64 << 20  # of a unit: above what glibc takes from its heap (M_MMAP_THRESHOLD is 32 MiB at most)

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's


def give_back_free_pages() -> None:
    """Takes some milliseconds."""
    if _trim is not None:
        _trim(0)
