"""Numbers of bytes, as they are told."""
from __future__ import annotations


def size(count: float) -> str:
    """Of bytes, for a reader."""
    for unit, shift in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << shift:
            return f"{count / (1 << shift):{'.3g' if count < 1000 << shift else '.0f'}} {unit}"
    return f"{count:.0f} bytes"
