"""Slurm on this machine alone: munged, slurmctld and slurmd of a folder, with key, socket and ports of their own."""
from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from pathlib import Path

import daemons

NEEDED = ("munged", "slurmctld", "slurmd", "srun", "salloc", "scancel", "sinfo", "squeue")  # slurm-wlm, munge
CONFIGURATION = """
ClusterName=penstock
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={ctld}
SlurmdPort={slurmd}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def absent() -> str:
    """Why it cannot be, or nothing."""
    if lacks := daemons.missing(*NEEDED):
        return f"Debian's slurm-wlm and munge are not there: {lacks}"
    if len(os.sched_getaffinity(0)) < 2:
        return "Slurm gives a core to each task, and there is one"
    return ""


class Slurm:
    """As the user that runs the tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = socket.gethostname().partition(".")[0]
        for each in ("state", "spool"):
            (folder / each).mkdir()
        (folder / "slurm.conf").write_text(CONFIGURATION.format(
            host=self.host, user=pwd.getpwuid(os.geteuid()).pw_name, folder=folder, ctld=_free_port(),
            slurmd=_free_port(), cores=os.cpu_count()))
        self.variables = {"SLURM_CONF": str(folder / "slurm.conf")}
        self._start_munged()
        environment = daemons.environment(folder, **self.variables)
        for name in ("slurmctld", "slurmd"):
            daemons.start(folder, name, shutil.which(name, path="/usr/sbin:/usr/bin:" + os.environ["PATH"]), "-D",
                          env=environment)
        if not daemons.within(lambda: "idle" in self.says("sinfo", "-h", "-o", "%T"), 60):
            raise AssertionError(f"Slurm's node is not idle: {self.logs()}")

    def _start_munged(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        daemons.start(self.folder, "munged", shutil.which("munged", path="/usr/sbin:" + os.environ["PATH"]),
                      "--foreground", f"--key-file={key}", f"--socket={self.folder}/munge.socket",
                      f"--pid-file={self.folder}/munge.pid", f"--log-file={self.folder}/munge.log",
                      f"--seed-file={self.folder}/munge.seed")
        if not daemons.within(lambda: (self.folder / "munge.socket").exists(), 20):
            raise AssertionError(f"munged has not begun: {self.logs()}")

    def says(self, *words: str) -> str:
        return subprocess.run(words, env=daemons.environment(self.folder, **self.variables), text=True, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout

    def logs(self) -> str:
        return "\n".join(f"{each.name}: {each.read_text(errors='replace')[-1500:]}"
                         for each in sorted(self.folder.glob("*.log")))

    def job(self) -> str:
        """The number of the one that runs."""
        assert daemons.within(lambda: self.says("squeue", "-h", "-o", "%i", "-t", "R").strip(), 60), self.logs()
        numbers = self.says("squeue", "-h", "-o", "%i", "-t", "R").split()
        assert len(numbers) == 1, numbers
        return numbers[0]

    def is_empty(self) -> bool:
        return not self.says("squeue", "-h").strip()

    def close(self) -> None:
        """Jobs first, which would outlive slurmd."""
        self.says("scancel", "--user", str(pwd.getpwuid(os.geteuid()).pw_name))
        daemons.within(self.is_empty, 15)
        daemons.within(lambda: not any("slurmstepd" in each for each in daemons.bearing(self.folder).values()), 10)
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])
