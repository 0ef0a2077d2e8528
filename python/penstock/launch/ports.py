"""The port at which rank 0 listens."""
from __future__ import annotations

import socket


def is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what a run has left a minute ago is free
        try:
            tried.bind(("", port))
            tried.listen(1)
        except OSError:
            return False
        return True


def another() -> int:
    """One that is free now."""
    with socket.socket() as tried:
        tried.bind(("", 0))
        return int(tried.getsockname()[1])
