"""Many programs, in processes of their own, so that one that ends its process is found, too."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import forked

from .managed import Mode
from .runner import WRONG, Verdict

TESTS = Path(__file__).resolve().parent.parent
CHUNK = 50  # programs of one process


@dataclass
class Crowd:
    """Verdicts by mode and seed."""

    verdicts: dict[Mode, dict[int, Verdict]] = field(default_factory=dict)

    def add(self, mode: Mode, seed: int, verdict: Verdict) -> None:
        self.verdicts.setdefault(mode, {})[seed] = verdict

    def wrong(self) -> list[str]:
        return [f"program {seed}, {mode}: {each.kind}: {each.told}" for mode, found in self.verdicts.items()
                for seed, each in found.items() if each.kind in WRONG]

    def share(self, kind: str) -> float:
        """Of all runs."""
        runs = [each for found in self.verdicts.values() for each in found.values()]
        return sum(each.kind == kind for each in runs) / max(1, len(runs))

    def table(self) -> str:
        lines = []
        for mode, found in self.verdicts.items():
            kinds = Counter(each.kind for each in found.values())
            lines.append(f"{mode}: {len(found)} programs, " + ", ".join(f"{count} {kind}" for kind, count in
                                                                        kinds.most_common()))
            causes = Counter((each.kind, each.cause) for each in found.values() if each.told)
            for (kind, cause), count in causes.most_common():
                seeds = [seed for seed, each in found.items() if (each.kind, each.cause) == (kind, cause)]
                lines.append(f"  {count} {kind}: {cause}  (programs {', '.join(map(str, seeds[:6]))})")
        return "\n".join(lines)


def run_many(seeds: Sequence[int], modes: Sequence[Mode], jobs: int = 1) -> Crowd:
    crowd, chunks = Crowd(), [list(seeds[at:at + CHUNK]) for at in range(0, len(seeds), CHUNK)]
    workers: list[Worker] = []
    while chunks or workers:
        while chunks and len(workers) < jobs:
            workers.append(Worker(chunks.pop(0), modes))
        worker = workers.pop(0)
        left = list(worker.seeds)
        for seed, mode, verdict in worker.results():
            crowd.add(mode, seed, verdict)
            if mode == modes[-1]:
                left.remove(seed)
        if left:  # the first of them has ended the process
            mode = next(each for each in modes if left[0] not in crowd.verdicts.get(each, {}))
            for each in modes[modes.index(mode):]:
                crowd.add(each, left[0], Verdict("crashes", worker.end()))
            chunks[:0] = [left[1:]] if left[1:] else []
    return crowd


class Worker:
    """A process that runs programs and says how each ends."""

    def __init__(self, seeds: list[int], modes: Sequence[Mode]) -> None:
        self.seeds, self._said, self._errors = seeds, 0, tempfile.TemporaryFile("w+")
        package = os.environ.get("PENSTOCK_PACKAGE_AT", str(TESTS.parent))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([package, str(TESTS)])}
        self._process = forked.Popen(
            [sys.executable, "-m", "programs", "--worker", *map(str, seeds), "--mode", *modes],
            stdout=subprocess.PIPE, stderr=self._errors, text=True, env=environment,
            cwd=TESTS)  # not where a package lies that is not asked for

    def results(self) -> Iterator[tuple[int, Mode, Verdict]]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                said = json.loads(line)
                self._said += 1
                yield said["seed"], said["mode"], Verdict(said["kind"], said["told"])
        self._process.wait()

    def end(self) -> str:
        """Of a process that has ended too early. One that was none from the beginning is no program's fault."""
        self._errors.seek(0)
        text = f"the process ended with {self._process.returncode}: {self._errors.read()[-600:]}"
        if not self._said and self._process.returncode == 1:
            raise RuntimeError(text)
        return text
