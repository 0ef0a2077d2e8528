"""Random small programs (programs/): plain torch's bits, or an error by name; by default no forward runs twice.

A failing one: `cd python/tests && python -m programs SEED --shrink` says what it is, and the least of it.
PENSTOCK_PROGRAMS=2000 tries so many, PENSTOCK_PROGRAM_SEED=17 from program 17 on."""
from __future__ import annotations

import os
import random
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from programs.crowd import Crowd, run_many
from programs.draw import draw_program, features
from programs.managed import MODES
from programs.nouns import NOUNS
from programs.program import Program, UnitPlan, words
from programs.runner import Run, Verdict, compared, plain_run, verdict_of
from programs.shrink import shrunk
from these_programs import REFUSED, REFUSED_WHERE_FORWARDS_RUN_AGAIN, THESE

COUNT = int(os.environ.get("PENSTOCK_PROGRAMS", "80"))
SEED = int(os.environ.get("PENSTOCK_PROGRAM_SEED") or random.SystemRandom().randrange(10_000_000))
MOST_DISCARDED, MOST_REFUSED = 0.05, 0.02  # shares; of a few programs nothing can be said
MANY = 500
PAGE = Path(__file__).resolve().parents[2] / "docs/reference-programs.md"
# Errors that a program may end with: words of the error, and of the page's line that announces it.
ANNOUNCED = ((r"backward\(create_graph=True\)", "`backward(create_graph=True)` to weights"),
             ("a gradient came to .*, whose unit is updated", "a step has one backward"),
             ("is read by .* after its unit was updated", "A weight that is read after its unit was updated is an error"),
             ("was read while step .* is under way, whose units are updated within backward",
              "all of it is an error between a backward and its step"),
             ("is read while its values are in the store", "Functions that torch's subclasses are not told of"),
             ("the memory is read that parameter", "The memory that a parameter had before `initialize()`"),
             ("saved_v must be contiguous", "what was computed of weights before"),
             ("is read by a view of it", "A view of a weight that was taken in its unit's call"),
             ("a view of parameter .* is read that was taken before an update",
              "A view that was read so and is read again after an update"),
             (r"what state_dict\(\) gave of parameter|is read that was assigned to", "and a tensor that was assigned to `.data`"),
             ("is called within a transform of torch.func", "A transform of `torch.func` around a unit"),
             ("run again in backward, is not what it was", "gives other outputs, ends in `ExactnessError`"))


@pytest.fixture(scope="module")
def crowd() -> Crowd:
    jobs = 1 if COUNT < MANY else os.cpu_count() or 1
    return run_many(range(SEED, SEED + COUNT), MODES, jobs)


def test_random_programs_train_to_the_same_bits_or_end_in_an_error_by_name(crowd, capsys):
    table = f"programs from {SEED} on (PENSTOCK_PROGRAM_SEED):\n{crowd.table()}"
    with capsys.disabled():
        print(f"\n{table if COUNT >= MANY else table.splitlines()[0]}", file=sys.stderr)
    assert len(crowd.verdicts) == len(MODES) and all(len(each) == COUNT for each in crowd.verdicts.values())
    assert not crowd.wrong(), "\n".join([table, *crowd.wrong()])


def test_their_errors_are_announced_and_few(crowd):
    page = " ".join(PAGE.read_text().split())
    told = [f"program {seed}, {mode}: {each.told}" for mode, found in crowd.verdicts.items()
            for seed, each in found.items() if each.kind == "refused" and not any(
                re.search(error, each.told) and line in page for error, line in ANNOUNCED)]
    assert not told, "\n".join([f"programs from {SEED} on:", *told])
    if COUNT >= MANY:
        assert crowd.share("refused") <= MOST_REFUSED, crowd.table()
        assert crowd.share("discarded") <= MOST_DISCARDED, crowd.table()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", THESE)
def test_these_programs_train_to_the_same_bits(name, mode):
    program = THESE[name]
    plain = plain_run(program)
    assert plain is not None, "plain torch does not run it"
    verdict = verdict_of(program, mode, plain)
    allowed = {"same"}
    if name in REFUSED or mode != "auto" and name in REFUSED_WHERE_FORWARDS_RUN_AGAIN:
        allowed.add("refused")
    assert verdict.kind in allowed, f"{verdict.kind}: {verdict.told}\n{words(program, NOUNS)}"


# Of the generator itself.
def test_a_seed_is_one_program_and_its_text_makes_it_again():
    for seed in range(200):
        program = draw_program(seed)
        assert program == draw_program(seed)
        assert eval(repr(program), {"Program": Program, "UnitPlan": UnitPlan}) == program
        assert words(program, NOUNS)


def test_each_feature_is_drawn():
    drawn: set[str] = set()
    for seed in range(3000):
        drawn |= features(draw_program(seed))
    assert drawn >= {name for noun in NOUNS.values() for name in noun.makers}


def test_what_differs_is_told():
    plain = Run(["loss 1", "loss 2"], ["a"])
    plain.ran["units.0"] = 2
    assert compared(plain, replace(plain), may_repeat=False).kind == "same"
    assert compared(plain, replace(plain, lines=["loss 1", "loss 3"]), True) == Verdict(
        "numbers differ", "loss 2 became loss 3 (line 1)")
    assert compared(plain, replace(plain, lines=["loss 1"]), True).kind == "numbers differ"
    assert compared(plain, replace(plain, seen=["a", "a"]), False).kind == "observations differ"
    assert compared(plain, replace(plain, error=KeyError("what")), True).kind == "fails"
    again = replace(plain, ran=plain.ran + plain.ran, seen=["a", "a"])
    assert compared(plain, again, may_repeat=True).kind == "same"
    assert compared(plain, again, may_repeat=False).kind == "repeats"


def test_shrinking_leaves_what_is_needed():
    program = draw_program(12)
    unit = UnitPlan(("dropout/1", "counter/3"), "containers/2", "twice/4")
    program = replace(program, units=(*program.units, unit), route=(*program.route, len(program.units)))
    least = shrunk(program, lambda each: {"counter", "twice"} <= features(each))
    assert features(least) == {"counter", "twice", "alone", "called", "one_tensor", "one_backward"} - (
        {"called"} if len(least.units) == 1 else set())
    assert least.steps == 1 and least.outside == () and len(least.units) == 1


def test_a_program_that_ends_its_process_is_told_and_others_are_tried():
    ends: Any = "__import__('os')._exit(3)"
    found = run_many([1, ends, 2], ["recompute"]).verdicts["recompute"]
    assert found[ends].kind == "crashes" and "ended with 3" in found[ends].told
    assert list(found) == [1, ends, 2] and {found[1].kind, found[2].kind}.isdisjoint({"crashes"})


def test_workers_that_cannot_begin_are_an_error(monkeypatch, tmp_path):
    (tmp_path / "penstock.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PENSTOCK_PACKAGE_AT", str(tmp_path))
    with pytest.raises(RuntimeError, match="not here"):
        run_many([1, 2], ["recompute"])
