"""python -m penstock.launch.answer PORT: what a host says of itself before anything is started there."""
from __future__ import annotations

import json
import socket
import subprocess
import sys

from . import ports


def address() -> str:
    """Its first, as DeepSpeed takes it; else what its name leads to."""
    try:
        told = subprocess.run(["hostname", "-I"], capture_output=True, text=True, timeout=10, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError):
        told = []
    try:
        return told[0] if told else socket.gethostbyname(socket.gethostname())
    except OSError:
        return ""


if __name__ == "__main__":
    print(json.dumps({"address": address(), "port_is_free": ports.is_free(int(sys.argv[1]))}))
