"""What a program is: words that say everything of it. `repr` is Python that makes it again."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .named import Named


@dataclass(frozen=True)
class UnitPlan:
    parts: tuple[str, ...] = ("linear",)
    gives: str = "alone"
    call: str = "called"


@dataclass(frozen=True)
class Program:
    """`route`: units in the order in which the model calls them. `outside`: what the script does beside its steps;
    `backward`: what a step's forwards and backwards are; `loop`: "engine" has engine.backward and engine.step, "torch"
    loss.backward and optimizer.step; `cut`: what is a unit of the managed model, "units" of the list, "parts" of each,
    or "resident": units, of which the first stays in memory; `seed`: of weights and data."""

    seed: int = 0
    stem: str = "linear"
    units: tuple[UnitPlan, ...] = (UnitPlan(),)
    route: tuple[int, ...] = (0,)
    takes: str = "one_tensor"
    outside: tuple[str, ...] = ()
    backward: str = "one_backward"
    loop: str = "torch"
    optimizer: str = "sgd"
    steps: int = 3
    order: str = "after_backward"
    cut: str = "units"


def words(program: Program, nouns: dict[str, Named[Any]]) -> str:
    """What it is, a line for each of its features."""
    lines = [f"{program.optimizer}, {program.steps} steps, loop of {program.loop}, order {program.order}, stem "
             f"{program.stem}, cut by {program.cut}, units are called in the order {program.route}",
             f"takes {program.takes}: {nouns['takes'].words(program.takes)}"]
    for at, unit in enumerate(program.units):
        lines.append(f"unit {at}")
        lines += [f"  {each}: {nouns['parts'].words(each)}" for each in unit.parts]
        lines += [f"  gives {unit.gives}: {nouns['gives'].words(unit.gives)}",
                  f"  call {unit.call}: {nouns['calls'].words(unit.call)}"]
    lines.append(f"a step is {program.backward}: {nouns['backwards'].words(program.backward)}")
    lines += [f"outside {each}: {nouns['outside'].words(each)}" for each in program.outside]
    return "\n".join(lines)
