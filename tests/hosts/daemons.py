"""Processes in a folder, which are ended with all that they have started."""
from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

TOLD: list[str] = []
_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class Daemons:
    """The folder's name is in the environment or the command line of each, by which those are found that were left."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-real-"))
        self.folder.chmod(0o755)  # munged wants everybody to reach its socket

    def __enter__(self) -> Daemons:
        return self

    def __exit__(self, *_) -> None:
        end_all(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)


def start(folder: Path, name: str, *words: str, **changed) -> subprocess.Popen:
    """Its output goes to NAME.log; the kernel kills it when this process ends."""
    with open(folder / f"{name}.log", "ab") as log:
        return subprocess.Popen([str(each) for each in words], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                preexec_fn=lambda: _libc.prctl(_PDEATHSIG, signal.SIGKILL),
                                **{"env": environment(folder), **changed})


def environment(folder: Path, **changed: str) -> dict[str, str]:
    """Of this process, without what schedulers and launchers have said to it."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("SLURM", "OMPI_", "PMI", "DS_", "MUNGE", "SSH_"))}
    return {**kept, "PENSTOCK_HOSTS_FOLDER": str(folder), **changed}


def bearing(mark: Path | str) -> dict[int, str]:
    """Command lines, by process, of those that have the mark in their environment or command line."""
    found = {}
    for each in Path("/proc").iterdir():
        if not each.name.isdecimal() or int(each.name) == os.getpid():
            continue
        try:
            words, variables = (each / "cmdline").read_bytes(), (each / "environ").read_bytes()
            ended = (each / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            continue
        if str(mark).encode() in words + b"\0" + variables and not ended:
            found[int(each.name)] = words.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def end_all(mark: Path | str) -> None:
    """SIGTERM, and SIGKILL after five seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in bearing(mark):
            try:
                os.kill(process, number)
            except ProcessLookupError:
                pass
        if within(lambda: not bearing(mark), 5):
            return


def within(holds, seconds: float) -> bool:
    """Whether it comes to hold."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def tell(text: str) -> None:
    """What the section of tests/RESULTS.md gets."""
    TOLD.append(text)
    print(text)


def missing(*names: str) -> str:
    """Those that are not in PATH, nor where Debian has what root uses."""
    places = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    return ", ".join(name for name in names if shutil.which(name, path=places) is None)
