"""Connections of a library's that can be cut from outside, where it has no way to end a call that is under way."""
from __future__ import annotations

import contextlib
import os
import socket


class Connections:
    """Those that are made within `with`. gloo's abort() does nothing, so a call that waits for a stopped process lasts as long
    as the group's deadline. When they are cut it fails at once, as does the other side's, and touches no memory any more."""

    def __enter__(self) -> Connections:
        self._made = _sockets()
        return self

    def __exit__(self, *_: object) -> None:
        before = self._made
        self._made = {number: name for number, name in _sockets().items() if before.get(number) != name}

    def cut(self) -> None:
        """Any thread, any number of times."""
        there = _sockets()
        for number, name in self._made.items():
            if there.get(number) == name:  # or it was closed, and the number is somebody else's
                with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
                    connection.getpeername()  # not of who listens
                    connection.shutdown(socket.SHUT_RDWR)


def _sockets() -> dict[int, str]:
    """By their numbers: a name that no other one has at any time."""
    found = {}
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the list's own
            name = os.readlink(f"/proc/self/fd/{each}")
            if name.startswith("socket:"):
                found[int(each)] = name
    return found
