"""A model cut into units: which module's parameters are gathered together, and which stay in memory.

The rules, in this order:
1. The items of the outermost ModuleLists that have parameters are units.
2. Of the rest, a module with parameters of its own and no unit beneath it is a unit with all that is beneath it.
3. The parameters of a module with units beneath it belong to a unit without a module, which is resident.
A parameter belongs to the first unit that has it; later ones borrow it (ties).
Parameters that are resident while their unit is not belong to a unit without a module beside it, UNIT:resident, of which
it borrows them.
"""
from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

from torch import nn
from torch.nn.utils.parametrize import ParametrizationList

from .errors import ModelError, UsageError, some


@dataclass(eq=False)
class Bound:
    """A parameter as one unit sees it: its place is in the unit that owns it."""

    parameter: nn.Parameter
    unit: int
    index: int


@dataclass(eq=False)
class Unit:
    """`index` is the core's; None where all parameters are borrowed. `module` is None for those of rule 3."""

    name: str
    module: nn.Module | None
    index: int | None = None
    resident: bool = False
    own: list[tuple[str, nn.Parameter]] = field(default_factory=list)
    bound: list[Bound] = field(default_factory=list)

    @property
    def reads(self) -> tuple[int, ...]:
        """The core's units that a visit needs."""
        return tuple(dict.fromkeys(each.unit for each in self.bound))


def units_of(model: nn.Module, chosen: Sequence[str] = (), resident: Sequence[str] = ()) -> list[Unit]:
    """`chosen`: names or classes (their names) of modules that are units whatever the rules say; an item of a list that
    has such a module beneath it is cut further. `resident`: patterns of units, or of parameters as in
    model.named_parameters(), that stay in memory: these alone."""
    modules = dict(model.named_modules(remove_duplicate=True))
    wanted = {name for pattern in chosen for name in _matching(pattern, modules)}
    cut = list(_cut(model, "", wanted))
    units = _owners(cut)
    if resident:
        apart = _resident_parameters(units, model, resident)
        units = _owners(cut, apart)
        _choose_resident(units, apart)
    _check_whole(model, units)
    return units


def _matching(pattern: str, modules: dict[str, nn.Module]) -> list[str]:
    if not isinstance(pattern, str):
        raise UsageError(f"units: {pattern!r} is neither the name of a module nor of a class; "
                         "give names as in model.named_modules(), or class names")
    found = [name for name, module in modules.items()
             if fnmatch.fnmatchcase(name, pattern) or type(module).__name__ == pattern]
    found = [name for name in found if any(True for _ in modules[name].parameters())]
    if not found:
        raise UsageError(f"units: no module with parameters is named '{pattern}' or is of such a class; "
                         f"there are {some([name for name in modules if name])}")
    return found


def _cut(module: nn.Module, name: str, wanted: set[str]) -> Iterator[tuple[str, nn.Module, bool]]:
    """Gives (name, module, whole); not whole: its direct parameters alone."""
    if not any(True for _ in module.parameters()):
        return
    beneath = any(each.startswith(f"{name}." if name else "") and each != name for each in wanted)
    if name in wanted:
        if beneath:
            inner = [each for each in wanted if each.startswith(f"{name}.")]
            raise UsageError(f"units: '{name}' and {some(sorted(inner))} beneath it cannot both be units; name one")
        yield name, module, True
        return
    own = _has_own(module)
    if own and not beneath and not _has_list(module):
        yield name, module, True
        return
    if own:
        yield name, module, False
    for key, child in module.named_children():
        full = f"{name}.{key}" if name else key
        inside = any(each == full or each.startswith(f"{full}.") for each in wanted)
        if _is_list(module) and not inside and any(True for _ in child.parameters()):
            yield full, child, True
        else:
            yield from _cut(child, full, wanted)


def _is_list(module: nn.Module) -> bool:
    """Only a list: no parametrization, and no forward of its own (as some lists of experts have)."""
    return (isinstance(module, nn.ModuleList) and not isinstance(module, ParametrizationList)
            and type(module).forward is nn.ModuleList.forward)


def _has_list(module: nn.Module) -> bool:
    return any(_is_list(each) and any(True for _ in each.parameters()) for each in module.modules())


def _has_own(module: nn.Module) -> bool:
    """Parameters that its forward reads; those of parametrizations are read through it."""
    return any(each is not None for each in module._parameters.values()) or hasattr(module, "parametrizations")


def _own_parameters(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    own = [(key, each) for key, each in module._parameters.items() if each is not None]
    lists = getattr(module, "parametrizations", None)
    if lists is not None:
        own += [(f"parametrizations.{key}", each) for key, each in lists.named_parameters()]
    return own


def _owners(cut: list[tuple[str, nn.Module, bool]], apart: Set[nn.Parameter] = frozenset()) -> list[Unit]:
    """`apart`: parameters that are not with others."""
    units: list[Unit] = []
    places: dict[nn.Parameter, tuple[int, int]] = {}
    seen: set[nn.Module] = set()
    count = 0
    for name, module, whole in cut:
        if module in seen:
            continue  # a module that is itself shared, under another name
        seen.add(module)
        unit = Unit(name or "model", module if whole else None, resident=not whole)
        named = list(module.named_parameters()) if whole else _own_parameters(module)
        own = [(key, each) for key, each in named if each not in places]
        beside = [each for each in own if each[1] in apart]
        if 0 < len(beside) < len(own):
            own = [each for each in own if each[1] not in apart]
            units.append(Unit(f"{unit.name}:resident", None, own=beside))
            count += _number(units[-1], count, places)
        unit.own = own
        count += _number(unit, count, places)
        unit.bound = [Bound(parameter, *places[parameter]) for _, parameter in named]
        units.append(unit)
    return units


def _number(unit: Unit, index: int, places: dict[nn.Parameter, tuple[int, int]]) -> int:
    """It is the core's unit of that number, if it has parameters: so many units."""
    if not unit.own:
        return 0
    unit.index = index
    places.update((parameter, (index, at)) for at, (_, parameter) in enumerate(unit.own))
    unit.bound = [Bound(parameter, index, at) for at, (_, parameter) in enumerate(unit.own)]
    return 1


def _resident_parameters(units: list[Unit], model: nn.Module, patterns: Sequence[str]) -> Set[nn.Parameter]:
    names = list(model.named_parameters(remove_duplicate=False))
    resident: set[nn.Parameter] = set()
    for pattern in patterns:
        found = {each for unit in units if fnmatch.fnmatchcase(unit.name, pattern) for _, each in unit.own}
        found.update(each for name, each in names if fnmatch.fnmatchcase(name, pattern))
        if not found:
            raise UsageError(f"resident: no unit or parameter is named '{pattern}'; "
                             f"the units are {some(unit.name for unit in units if unit.own)}")
        resident |= found
    return resident


def _choose_resident(units: list[Unit], parameters: Set[nn.Parameter]) -> None:
    for unit in units:
        unit.resident = unit.resident or bool(unit.own) and all(each in parameters for _, each in unit.own)


def _check_whole(model: nn.Module, units: list[Unit]) -> None:
    covered = {each.parameter for unit in units for each in unit.bound}
    missed = [name for name, each in model.named_parameters() if each not in covered]
    if missed:
        raise ModelError(f"no unit has {some(missed)}; name a module that reads it: units=[...]")
