"""The least program that still ends as another one does: features are left out one by one."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from .program import Program, UnitPlan

SIMPLEST = Program()


def shrunk(program: Program, still: Callable[[Program], bool]) -> Program:
    """`still`: whether a program ends so. Whatever is left, is needed."""
    while True:
        smaller = next((each for each in _smaller(program) if still(each)), None)
        if smaller is None:
            return program
        program = smaller


def _smaller(program: Program) -> Iterator[Program]:
    """Each with one thing less."""
    for at in range(len(program.units)):
        if len(program.units) > 1:
            yield _without_unit(program, at)
    for at in range(len(program.outside)):
        yield replace(program, outside=(*program.outside[:at], *program.outside[at + 1:]))
    for name in ("backward", "takes", "stem", "loop", "optimizer", "order", "cut"):
        simple = getattr(SIMPLEST, name)
        if getattr(program, name) != simple:
            yield replace(program, **{name: simple})
    if program.route != tuple(range(len(program.units))):
        yield replace(program, route=tuple(range(len(program.units))))
    for at, unit in enumerate(program.units):
        for smaller in _smaller_units(unit):
            yield replace(program, units=(*program.units[:at], smaller, *program.units[at + 1:]))
    if program.steps > 1:
        yield replace(program, steps=program.steps - 1)


def _without_unit(program: Program, at: int) -> Program:
    route = tuple(each - (each > at) for each in program.route if each != at)
    return replace(program, units=(*program.units[:at], *program.units[at + 1:]), route=route)


def _smaller_units(unit: UnitPlan) -> Iterator[UnitPlan]:
    simple = UnitPlan()
    if len(unit.parts) > 1:
        for at in range(len(unit.parts)):
            yield replace(unit, parts=(*unit.parts[:at], *unit.parts[at + 1:]))
    if unit.gives != simple.gives:
        yield replace(unit, gives=simple.gives)
    if unit.call != simple.call:
        yield replace(unit, call=simple.call)
    for at, part in enumerate(unit.parts):
        if part != "linear":
            yield replace(unit, parts=(*unit.parts[:at], "linear", *unit.parts[at + 1:]))
