"""Runs the real program and understands what it prints. Knows nothing of its sources: only of its lines."""
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

STEP = re.compile(r"^penstock: step (\d+)/(\d+) .*?(?:committed (\d+)|scratch)$")
RESUMED = re.compile(r"^penstock: resumed at step (\d+) of (\d+)")
FINISHED = re.compile(r"^penstock: finished: the run in .* has its (\d+) steps")
BEGUN = re.compile(r"^penstock: a new run: ")
KEPT = re.compile(r"^penstock: kept (\S+) ")
REMOVED = re.compile(r"^penstock: removed (\S+): ")
ERROR = re.compile(r"^penstock: error: ", re.MULTILINE)
BAR = re.compile(r"\[[#.]+\].*")
NUMBER = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d[\d.,:eTZ+-]*")


@dataclass
class Life:
    """One process from its start to its end, and what it printed."""

    command: list
    code: int | None = None  # exit code; negative: the signal; None: it was still there at its deadline
    output: str = ""
    errors: str = ""
    seconds: float = 0
    killed: bool = False  # by us, on purpose

    def lines(self):
        # A line that the kill cut off says nothing.
        whole = self.errors[: self.errors.rfind("\n") + 1]
        return whole.splitlines()

    def matches(self, pattern):
        return [found for line in self.lines() if (found := pattern.match(line))]

    def start_step(self):
        """The step from which it went on; 0 for a new run; None when it never came so far."""
        for pattern in (RESUMED, FINISHED):
            if found := self.matches(pattern):
                return int(found[0].group(1))
        steps = self.steps()
        return steps[0] - 1 if steps else (0 if self.matches(BEGUN) else None)

    def resumed(self):
        return bool(self.matches(RESUMED) or self.matches(FINISHED))

    def steps(self):
        return [int(found.group(1)) for found in self.matches(STEP)]

    def committed(self):
        """The highest step that was reported as committed, or 0."""
        return max((int(found.group(3)) for found in self.matches(STEP) if found.group(3)), default=0)

    def kept(self):
        return [found.group(1) for found in self.matches(KEPT)]

    def removed(self):
        return [found.group(1) for found in self.matches(REMOVED)]

    def error(self):
        """The text of its refusal."""
        found = ERROR.search(self.errors)
        return self.errors[found.end() :].strip() if found else ""

    def said(self, ordinary):
        """The lines that a run on an undisturbed store does not print."""
        lines = [line for line in self.lines() if not STEP.match(line) and not BAR.search(line)]
        return [line for line in lines if shape(line) not in ordinary]

    def message(self):
        """All that it tells its user to do: a refusal, and a result that is no good."""
        return "\n".join(part for part in (self.error(), self.output.strip()) if part)


def shape(line):
    """A line without its numbers: two runs that differ in nothing else print lines of one shape."""
    return NUMBER.sub("#", line)


@dataclass
class Program:
    path: str
    deadline_s: float = 60
    prefix: list = field(default_factory=list)  # e.g. setpriv, to run as another user

    def command(self, arguments):
        return [*self.prefix, self.path, *arguments]

    def start(self, directory, arguments, output_directory=None):
        return Running(self, directory, arguments, output_directory or directory)

    def run(self, directory, arguments):
        return self.start(directory, arguments).wait()


class Running:
    """A process that is under way; its standard error is a file that can be looked at meanwhile."""

    def __init__(self, program, directory, arguments, output_directory):
        self.life = Life(command=program.command(arguments))
        self.deadline_s = program.deadline_s
        self.errors_path = Path(output_directory) / ".stderr"
        self.output_path = Path(output_directory) / ".stdout"
        self.began = time.monotonic()
        with open(self.output_path, "wb") as output, open(self.errors_path, "wb") as errors:
            self.process = subprocess.Popen(
                self.life.command,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )

    @property
    def pid(self):
        return self.process.pid

    def ended(self):
        return self.process.poll() is not None

    def text(self):
        return self.errors_path.read_text(errors="replace")

    def age(self):
        return time.monotonic() - self.began

    def kill(self):
        """SIGKILL; the life counts as killed when it was there to be killed."""
        if self.ended():
            return
        self.life.killed = True
        os.kill(self.pid, signal.SIGKILL)

    def wait(self):
        left = max(self.deadline_s - self.age(), 0.1)
        hung = False
        try:
            self.process.wait(left)
        except subprocess.TimeoutExpired:
            hung = True
            os.kill(self.pid, signal.SIGKILL)
            self.process.wait()
        self.life.code = None if hung else self.process.returncode
        self.life.seconds = self.age()
        self.life.output = self.output_path.read_text(errors="replace")
        self.life.errors = self.text()
        if self.life.killed and self.life.code != -signal.SIGKILL:
            self.life.killed = False  # it had ended by itself
        return self.life


def is_abort(life):
    """An end that no user should see: exit code 1, or a signal that nobody sent."""
    return life.code is not None and not life.killed and (life.code == 1 or life.code < 0 or life.code > 128)
