#!/usr/bin/env python3
"""Reads ctest's reports (--output-junit), for tools/test.sh.

    tools/test_report.py count REPORT STATUS    prints three numbers: passed, failed, skipped
    tools/test_report.py tell REPORT...         prints what was skipped, by reason; then the last lines of what failed

STATUS is the exit status of ctest. A report that is not there has no cases.
"""
from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

FAILED_LINES = 30  # of the output of a failed case
# GoogleTest says "file.cpp:7: Skipped", the reason, and then this; a summary repeats the name without a time.
SKIPPED = re.compile(r"\[  SKIPPED \] (.*) \(\d+ ms\)")
RESTRICTED = re.compile(r"restricted:[^:]*:[^:]*:")  # a program as a whole, on a machine that allows less


class Case(NamedTuple):
    name: str
    status: str  # run, fail, notrun or disabled
    lines: list[str]  # of its output


class Skipped(NamedTuple):
    reason: str
    name: str


def cases_of(report: Path) -> list[Case]:
    if not report.exists():
        return []
    try:
        found = ElementTree.parse(report).iter("testcase")
        return [Case(each.attrib["name"], each.attrib["status"], (each.findtext("system-out") or "").split("\n"))
                for each in found]
    except ElementTree.ParseError as error:
        raise SystemExit(f"test_report: {report} cannot be read: {error}") from error


def count(cases: list[Case], status: int) -> tuple[int, int, int]:
    """Passed, failed and skipped. A failure of ctest that no case shows is one; what a test that ran left out counts
    beside the test."""
    failed = sum(each.status == "fail" for each in cases)
    left = sum(each.status in ("notrun", "disabled") for each in cases)
    told = sum(1 for each in cases for _ in skipped_in(each))
    return len(cases) - failed - left, failed or int(status != 0), max(left, told)


def skipped_in(case: Case) -> Iterator[Skipped]:
    """The cases of the test's program that were skipped; of a test that did not run and names none, the test."""
    layer = case.name if case.name.startswith("restricted:") else case.name.partition(":")[0]
    reason, told, reason_follows = "", False, False
    for line in filter(None, case.lines):
        if named := SKIPPED.fullmatch(line):
            yield Skipped(reason or "no reason was given", f"{layer}:{named[1]}")
            reason, told, reason_follows = "", True, False
        elif line.endswith(": Skipped"):
            reason, reason_follows = "", True
        elif reason_follows:
            reason, reason_follows = line, False
    if case.status == "notrun" and not told:
        last = next(filter(None, reversed(case.lines)), "")
        yield Skipped(reason or last or "no reason was given", case.name)


def skipped_by_reason(skipped: Iterable[Skipped]) -> Iterator[str]:
    """Of a restricted program a number and an example: what the machine lacks, many of its cases want."""
    in_order = sorted(set(skipped))
    if in_order:
        yield "skipped, by reason:"
    for reason, group in groupby(in_order, key=lambda each: each.reason):
        yield f"  {reason}"
        for program, cases in groupby((each.name for each in group), key=_program):
            first, *others = cases
            example = f" {1 + len(others)} cases, e.g. {first.removeprefix(program)}"
            yield f"    {program}{example}" if others else f"    {first}"
    if in_order:
        yield ""


def _program(name: str) -> str:
    restricted = RESTRICTED.match(name)
    return restricted[0] if restricted else name


def failed_in(preset: str, cases: list[Case]) -> Iterator[str]:
    for case in cases:
        if case.status == "fail":
            yield f"FAILED in {preset}: {case.name}"
            yield from (f"    {line}" for line in list(filter(None, case.lines))[-FAILED_LINES:])
            yield ""


def tell(reports: list[Path]) -> Iterator[str]:
    """A report is build/PRESET/junit.xml."""
    presets = [(report.parent.name, cases_of(report)) for report in reports]
    yield from skipped_by_reason(each for _, cases in presets for case in cases for each in skipped_in(case))
    for preset, cases in presets:
        yield from failed_in(preset, cases)


def main(verb: str, *arguments: str) -> None:
    if verb == "count":
        report, status = arguments
        print(*count(cases_of(Path(report)), int(status)))
    else:
        told = "".join(f"{line}\n" for line in tell([Path(each) for each in arguments]))
        sys.stdout.buffer.write(told.encode())  # whatever the locale is


if __name__ == "__main__":
    main(*sys.argv[1:])
