"""Programs by seed, from a command line: see __init__.py."""
from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

# As conftest.py does: torch reads it at its import.
if os.environ.get("PENSTOCK_TEST_CORE") == "native":
    os.environ["ATEN_CPU_CAPABILITY"] = "default"
sys.path.append(str(Path(__file__).resolve().parent.parent.parent))
import torch  # noqa: E402

from cores import NATIVE, round_each_operation  # noqa: E402
from programs.crowd import run_many  # noqa: E402
from programs.draw import draw_program  # noqa: E402
from programs.managed import MODES  # noqa: E402
from programs.nouns import NOUNS  # noqa: E402
from programs.program import Program, UnitPlan, words  # noqa: E402
from programs.runner import SECONDS, plain_run, verdict_of, verdicts  # noqa: E402
from programs.shrink import shrunk  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m programs", description=__doc__)
    parser.add_argument("programs", nargs="*", help="seeds, or texts: Program(...)")
    parser.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--shrink", action="store_true", help="the least program that ends as this one does")
    parser.add_argument("--count", type=int, default=0, help="so many programs, from --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable()
    if NATIVE:
        round_each_operation()
    if given.worker:
        return work(given)
    if given.count:
        print(run_many(range(given.first, given.first + given.count), given.mode, given.jobs).table())
    for text in given.programs:
        show(program_of(text), given)
    return 0


def program_of(text: str) -> Program:
    if text.isdecimal():
        return draw_program(int(text))
    return eval(text, {"Program": Program, "UnitPlan": UnitPlan})  # type: ignore[no-any-return]


def work(given: Any) -> int:
    for seed in given.programs:
        faulthandler.dump_traceback_later(8 * SECONDS, exit=True)  # where no signal ends it
        for mode, verdict in verdicts(program_of(seed), tuple(given.mode)).items():
            said = {"seed": int(seed), "mode": mode, "kind": verdict.kind, "told": verdict.told[:400]}
            print(json.dumps(said), flush=True)
    faulthandler.cancel_dump_traceback_later()
    return 0


def show(program: Program, given: Any) -> None:
    print(f"{words(program, NOUNS)}\n{program}")
    for mode, verdict in verdicts(program, tuple(given.mode)).items():
        print(f"{mode}: {verdict.kind} {verdict.told}")
        if given.shrink and verdict.told:
            least = shrunk(program, lambda each: ends_so(each, mode, verdict))
            print(f"  the least that ends so:\n{words(least, NOUNS)}\n{least}")


def ends_so(program: Any, mode: Any, verdict: Any) -> bool:
    plain = plain_run(program)
    if plain is None:
        return False
    found = verdict_of(program, mode, plain)
    return found.kind == verdict.kind and (verdict.kind == "numbers differ" or found.cause == verdict.cause)


if __name__ == "__main__":
    sys.exit(main())
