"""What may hang or crash is looked at by processes of its own, with a deadline: a disk that does not answer, a library
that ends its process, an import of torch. Who is late is ended, and not waited for."""
from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from typing import Any

from . import core_library, disk, machine, software, torch_and_gpu
from .finding import Finding, State, in_the_way

LOOKS: dict[str, Any] = {"disk": disk.look, "library": core_library.look, "torch": torch_and_gpu.look,
                         "software": software.look}
SECONDS = {"disk": 20.0, "library": 20.0, "torch": 60.0, "software": 30.0}
CODES = {"disk": 4, "library": 2, "torch": 2, "software": 2}
REMEDIES = {
    "disk": "dmesg says what the device has; another one: --dir DIRECTORY",
    "library": "install the wheel again (pip install --force-reinstall --no-deps), or build the checkout: ./run build",
    "torch": 'pip install --force-reinstall torch; python -X importtime -c "import torch" says where it waits',
    "software": "python -X importtime -m penstock deepspeed check says where it waits"}
# The child sees what this process sees, whatever lies in the current directory.
CHILD = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from penstock.doctor.probes import child; child()"


def examine(directory: str, seconds: dict[str, float] = SECONDS) -> list[Finding]:
    """In the order in which they are told. The disk is measured while nothing else is under way."""
    found = Probe("disk", [directory]).found(seconds["disk"])
    place = os.path.join(directory, f"penstock-doctor-{secrets.token_hex(4)}")
    writable = found[0].state != State.IN_THE_WAY
    others = [Probe("library", [place] if writable else [], place), Probe("torch", []), Probe("software", [])]
    found += machine.look()
    for each in others:
        found += each.found(seconds[each.name])
    return found


class Probe:
    """Begins at once. `place`: what it may leave where it is ended."""

    def __init__(self, name: str, arguments: list[str], place: str = "") -> None:
        self.name, self._place, self._began = name, place, time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD, json.dumps(sys.path), name, *arguments], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def found(self, seconds: float) -> list[Finding]:
        """So many seconds after it began, at the latest."""
        try:
            out, err = self._process.communicate(timeout=max(0.1, self._began + seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # one that a device holds ends when that answers
                self._process.wait(1)
                if self._place:
                    shutil.rmtree(self._place, ignore_errors=True)
            return [self._failed(f"no answer within {seconds:g} s")]
        except BaseException:
            self._process.kill()
            raise
        for line in reversed(out.splitlines()):
            with contextlib.suppress(ValueError, TypeError, KeyError):
                return [Finding(**{**each, "state": State(each["state"])}) for each in json.loads(line)]
        return [self._failed(_said(self._process.returncode, err))]

    def _failed(self, seen: str) -> Finding:
        return in_the_way(self.name, seen, REMEDIES[self.name], CODES[self.name])


def _said(code: int, err: str) -> str:
    if code < 0:
        return f"the process that looked was ended by {signal.Signals(-code).name}"
    return (err.strip().splitlines() or [f"the process that looked ended with {code}"])[-1]


def child() -> None:
    """Of a process of its own: prints what it finds as the last line."""
    name, *arguments = sys.argv[2:]
    print("\n" + json.dumps([asdict(each) for each in LOOKS[name](*arguments)]), flush=True)
