"""A program by plain torch and managed, compared."""
from __future__ import annotations

import contextlib
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch.utils.checkpoint

import penstock

from . import backwards, calls, parts_graph
from .managed import Managed, Mode
from .notes import rendered
from .nouns import NOUNS  # noqa: F401
from .part import RAN
from .program import Program
from .script import Script
from .world import World

SECONDS = 60  # a program takes a tenth of one
LARGEST = 1e4  # a weight
# refused: an error by name. fails: another error, where plain torch has none. repeats: a forward ran more often.
Kind = Literal["same", "refused", "numbers differ", "observations differ", "fails", "hangs", "repeats", "crashes",
               "discarded"]
WRONG: tuple[Kind, ...] = ("numbers differ", "observations differ", "fails", "hangs", "repeats", "crashes")


class Hung(BaseException):
    """Raised into a program that takes too long."""


@dataclass
class Run:
    lines: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    ran: Counter[str] = field(default_factory=Counter)
    error: BaseException | None = None


@dataclass(frozen=True)
class Verdict:
    """`told`: the first difference, or the error; `cause`: the same without names and numbers, to count by."""

    kind: Kind
    told: str = ""

    @property
    def cause(self) -> str:
        return re.sub(r"\b[0-9a-f]{12}\b|-?\d+(\.\d+)?(e-?\d+)?|'[^']*'", "_", self.told)[:160]


def run(make: Callable[[], World], program: Program) -> Run:
    """What its script raises is its error; what its making raises is the generator's fault."""
    out, world = Run(), make()
    script = Script(program, world)
    try:
        with _limited():
            script.run()
            out.ran = Counter(RAN)
            out.lines = world.end()
    except (Exception, Hung) as error:
        out.error = error.with_traceback(None)
    with contextlib.suppress(Exception):
        world.close()
    try:
        out.seen = [rendered(each) for each in world.seen]
    except RuntimeError as error:  # memory that was lent
        out.error = out.error or error.with_traceback(None)
    return out


def plain_run(program: Program) -> Run | None:
    """None: it does not count, because plain torch raises, its numbers are no numbers or grow without bounds (to where a
    clip that clips nothing does), or torch's own checkpoint changes them: what it runs again is then another forward, of
    which torch says nothing."""
    world = World(program)
    one = run(lambda: world, program)
    if one.error is not None or any(each in line for line in one.lines for each in ("'nan'", "'inf'", "'-inf'")):
        return None
    if any(float(each.detach().abs().max()) > LARGEST for each in world.model.parameters() if each.numel()):
        return None
    other = run(lambda: World(program), program)
    if one != other:
        raise AssertionError(f"plain torch is not deterministic: {_difference(one.lines, other.lines)}; {program}")
    if "checkpoint" in repr(program):
        with _no_checkpoints():
            if run(lambda: World(program), program).lines != one.lines:
                return None
    return one


@contextlib.contextmanager
def _no_checkpoints() -> Iterator[None]:
    """What is to run within one runs as it is."""
    def call(function: Callable[..., Any], *args: Any, **_: Any) -> Any:
        return function(*args)
    places = (backwards, calls, parts_graph)
    try:
        for each in places:
            each.checkpoint = call  # type: ignore[attr-defined, assignment]
        yield
    finally:
        for each in places:
            each.checkpoint = torch.utils.checkpoint.checkpoint  # type: ignore[attr-defined]


def verdict_of(program: Program, mode: Mode, plain: Run) -> Verdict:
    return compared(plain, run(lambda: Managed(program, mode), program), may_repeat=mode != "auto")


def compared(plain: Run, managed: Run, may_repeat: bool) -> Verdict:
    """Where forwards may run again, a hook's list outside of the model has their runs, too."""
    error = managed.error  # NonFiniteError is wrong by itself: plain torch's numbers are numbers
    if isinstance(error, Hung):
        return Verdict("hangs")
    by_torch = type(error) is RuntimeError and str(error).startswith("penstock: ")  # of memory that is not to be read
    if by_torch or isinstance(error, penstock.PenstockError) and not isinstance(error, penstock.NonFiniteError):
        return Verdict("refused", f"{type(error).__name__}: {error}")
    if error is not None:
        return Verdict("fails", f"{type(error).__name__}: {error}")
    if plain.lines != managed.lines:
        return Verdict("numbers differ", _difference(plain.lines, managed.lines))
    more = {name: count for name, count in managed.ran.items() if count > plain.ran[name]}
    if more and not may_repeat:
        name = next(iter(more))
        return Verdict("repeats", f"the forward of {name} ran {more[name]} times, not {plain.ran[name]}")
    if plain.seen != managed.seen and not more:
        return Verdict("observations differ", _difference(plain.seen, managed.seen))
    return Verdict("same")


def verdicts(program: Program, modes: tuple[Mode, ...]) -> dict[Mode, Verdict]:
    plain = plain_run(program)
    if plain is None:
        return {mode: Verdict("discarded") for mode in modes}
    return {mode: verdict_of(program, mode, plain) for mode in modes}


def _difference(plain: list[str], managed: list[str]) -> str:
    for at, (one, other) in enumerate(zip(plain, managed)):
        if one != other:
            return f"{one[:150]} became {other[:150]} (line {at})"
    return f"{len(plain)} lines became {len(managed)}"


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def end(*_: Any) -> None:
        raise Hung(f"after {SECONDS} s")
    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
