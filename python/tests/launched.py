"""Launches for tests: scripts without torch as children, and an ssh that stays on this machine."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import penstock
from penstock.launch import ports

OF_OTHERS = ("SLURM", "OMP", "CUDA_", "DS_", "PENSTOCK_PROGRAM")
PACKAGE = Path(penstock.__file__).resolve().parents[1]
# The command, with short waits.
QUICK = """
import os, sys
from penstock.launch import children, start
from penstock.__main__ import main
children.GRACE, children.COURTESY, children.LAST = 1.0, 1.0, 2.0
start.PORT = int(os.environ["TEST_PORT"])  # 29500 may be in use
sys.argv[0] = "penstock"
sys.exit(main())
"""

# Does by its rank what its arguments say: 1:exit=3 0:sleep. Writes its process id into pid.RANK.
CHILD = """
import os, signal, subprocess, sys, time
rank = os.environ["RANK"]
def says(text):
    os.write(1, (text + "\\n").encode())
def stop(code):
    def handler(*_):
        says(f"{rank} stops"); os._exit(code)
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, handler)
actions = [each.partition(":")[2] for each in sys.argv[1:] if each.partition(":")[0] in (rank, "all")]
for action in actions:
    word, _, value = action.partition("=")
    if word == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif word == "stops":
        stop(int(value or 75))
    elif word == "starts":
        open("pid.grandchild", "w").write(str(subprocess.Popen(["sleep", "100"]).pid))
open(f"pid.{rank}.new", "w").write(str(os.getpid()))
os.rename(f"pid.{rank}.new", f"pid.{rank}")
for action in actions:
    word, _, value = action.partition("=")
    if word == "exit":
        sys.exit(int(value))
    elif word == "after":
        time.sleep(float(value))
    elif word == "wait":  # for a file
        while not os.path.exists(value):
            time.sleep(0.01)
    elif word == "kill":
        os.kill(os.getpid(), int(value))
    elif word == "sleep":
        time.sleep(100)
    elif word == "env":
        says(f"{rank}: {value}={os.environ.get(value)}")
    elif word == "args":
        says(f"{rank}: {sys.argv[1:]}")
    elif word == "cores":
        says(f"{rank}: cores {sorted(os.sched_getaffinity(0))}")
    elif word == "reads":
        says(f"{rank}: read {sys.stdin.readline()!r}")
"""

# As ssh: what it starts is in a session of its own, gets its standard input, and has its host's name.
SSH = """#!{python} -SE
import os, subprocess, sys, threading
folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
words = sys.argv[1:]
open(f"{{folder}}/ssh.log", "a").write(repr(words) + "\\n")
while words[0].startswith("-"):
    words = words[1 if words[0].startswith("-o") else 2:]
host, command = words[0], words[1].replace("-m penstock launch", "-m quick launch")
if host == "gone":
    sys.exit(sys.stderr.write("ssh: connect to host gone port 22: Connection refused\\n") and 255)
if host == "bare":
    command = command.replace("cd ", "cd /absent")
if host == "old":
    command = command.replace("penstock.launch.answer", "penstock.absent")
open(f"{{folder}}/ssh.pid.{{host}}", "w").write(str(os.getpid()))
done = subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, start_new_session=True,
                        env={{**os.environ, "HOSTNAME": host}})
def pass_on():
    while data := os.read(0, 4096):
        done.stdin.write(data)
        done.stdin.flush()
    done.stdin.close()
threading.Thread(target=pass_on, daemon=True).start()
code = done.wait()
os._exit(code if code >= 0 else 255)
"""


class Launches:
    """In a folder, whose files tell of the children."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "child.py").write_text(CHILD)
        (folder / "quick.py").write_text(QUICK)
        (folder / "bin").mkdir()
        self.program("ssh", SSH.format(python=sys.executable))
        self.begun: list[subprocess.Popen] = []
        self.port = ports.another()

    def program(self, name: str, text: str) -> None:
        (self.folder / "bin" / name).write_text(text)
        (self.folder / "bin" / name).chmod(0o755)

    def begin(self, *words: str, **variables: str) -> subprocess.Popen:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(OF_OTHERS)}
        environment = {**inherited, "PYTHONPATH": str(PACKAGE), "PYTHONDONTWRITEBYTECODE": "1",
                       "TEST_PORT": str(self.port), "HOME": str(self.folder),
                       "PATH": f"{self.folder}/bin:{os.environ['PATH']}", **variables}
        self.begun.append(subprocess.Popen([sys.executable, "-m", "quick", "launch", *words], cwd=self.folder,
                                           env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                           stdin=subprocess.PIPE, start_new_session=True))
        return self.begun[-1]

    def run(self, *words: str, **variables: str) -> tuple[int, list[str], str]:
        """Exit code, lines that were printed, sorted, and what was told."""
        return self.end(self.begin(*words, **variables))

    def end(self, launch: subprocess.Popen) -> tuple[int, list[str], str]:
        out, err = launch.communicate(timeout=30)
        return launch.returncode, sorted(out.splitlines()), err

    def pid(self, name: str) -> int:
        """Of a child, once it has begun."""
        path = self.folder / f"pid.{name}"
        assert within(lambda: path.exists() and path.read_text()), f"{name} has not begun"
        return int(path.read_text())

    def close(self) -> None:
        """Ends all, also what a launcher with a fault has left."""
        for each in self.begun:
            each.kill()
        for pid in (int(path.read_text()) for path in self.folder.glob("pid.*") if path.suffix != ".new"):
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)
        for each in self.begun:
            each.communicate()


def within(holds, seconds: float = 20.0) -> bool:
    """Whether it comes to hold."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def gone(pid: int) -> bool:
    """Ended; whoever should wait for it has it to do."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
