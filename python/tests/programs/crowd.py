"""Many programs, in processes of their own, so that one that ends its process is found, too."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
    running: list[tuple[list[int], subprocess.Popen[str]]] = []
    while chunks or running:
        while chunks and len(running) < jobs:
            chunk = chunks.pop(0)
            running.append((chunk, _begin(chunk, modes)))
        chunk, process = running.pop(0)
        left = list(chunk)
        for seed, mode, verdict in _results(process):
            crowd.add(mode, seed, verdict)
            if seed in left and mode == modes[-1]:
                left.remove(seed)
        if left:  # the first of them has ended the process
            for mode in modes:
                if left[0] not in crowd.verdicts.get(mode, {}):
                    crowd.add(mode, left[0], Verdict("crashes", f"the process ended with {process.returncode}"))
                    break
            if left[1:]:
                chunks.insert(0, left[1:])
    return crowd


def _begin(seeds: Sequence[int], modes: Sequence[Mode]) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([os.environ.get("PENSTOCK_PACKAGE_AT", str(TESTS.parent)), str(TESTS)])
    return subprocess.Popen([sys.executable, "-m", "programs", "--worker", *map(str, seeds), "--mode", *modes],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)


def _results(process: subprocess.Popen[str]) -> Iterator[tuple[int, Mode, Verdict]]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            said = json.loads(line)
            yield said["seed"], said["mode"], Verdict(said["kind"], said["told"])
    process.wait()
