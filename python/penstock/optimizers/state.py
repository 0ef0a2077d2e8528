"""What `optimizer.state` answers: moments of a parameter by the names that torch gives them, read when asked for."""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch import nn

from ..core import What
from ..errors import OptimizerError, UsageError
from ..files.stored_weights import SKIPPED
from ..optimizer_kinds import Kind
from ..step.visits import Visits
from ..weights.addends import Place
from ..weights.read_only import read_only



class OptimizerState(MutableMapping[nn.Parameter, Any]):
    """By parameter. Owned by the optimizer."""

    def __init__(self, kind: Kind, groups: list[dict[str, Any]], visits: Visits,
                 updates: Callable[[], int]) -> None:
        """`updates`: how many there were."""
        has_moments = "momentum" not in kind.reads or any(group.get("momentum") for group in groups)
        self.moments: dict[str, What] = kind.moments if has_moments else {}
        self.counted = kind.counted
        self._first = float(groups[0].get("initial_accumulator_value", 0.0)) if kind.opens_with else 0.0
        self.binding, self.visits, self.updates = visits.binding, visits, updates
        self.skips: dict[Place, int] = {}  # how many steps parameters were left out of since the opening
        self._of = {each: ParameterState(each, self) for group in groups for each in group["params"]
                    if self.binding.learns(each)}
        self._others: dict[Any, Any] = {}  # whatever else a program keeps here

    def skipped(self) -> bool:
        """Whether parameters were, in this life or an earlier one."""
        return bool(self.skips) or SKIPPED in (self.binding.core.resumed or ())

    def after_update(self) -> None:
        """Those that no gradient came to stay as they are."""
        for each in self._of:
            place = self.binding.places[each]
            if place not in self.binding.gradients.fed:
                self.skips[place] = self.skips.get(place, 0) + 1

    def check_counted(self, states: Mapping[nn.Parameter, Mapping[str, Any]], updates: int) -> None:
        """Raises OptimizerError where they count other steps than the store does, by which moments are corrected."""
        if not self.counted or self.skipped():
            return
        for each in self._of:
            told = float(states[each].get("step", updates)) if each in states else 0
            if told != updates:
                raise OptimizerError(f"the state of '{self.binding.names[each]}' is loaded as of step {told:.0f}, and that of the "
                                     f"optimizer as of step {updates}: the store counts the steps of all parameters together, "
                                     "by which torch's Adam and Adagrad correct. To begin anew, go on with a new store: model = "
                                     "engine.release(), and penstock.initialize() with a new optimizer")

    def begin_anew(self, parameters: Iterable[nn.Parameter]) -> None:
        """These have no state, as before their first update."""
        for each in parameters:
            if each in self._of:
                self._of[each].take({key: torch.full(each.shape, self._first) for key in self.moments})

    def __getitem__(self, parameter: Any) -> Any:
        return self._of[parameter] if parameter in self._of else self._others.setdefault(parameter, {})

    def __setitem__(self, parameter: Any, value: Any) -> None:
        if parameter in self._of:
            raise self._refusal(parameter)
        self._others[parameter] = value

    def __delitem__(self, parameter: Any) -> None:
        if parameter in self._of:
            raise self._refusal(parameter)
        del self._others[parameter]

    def __iter__(self) -> Iterator[Any]:
        yield from (each for each, state in self._of.items() if state)
        yield from self._others

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, parameter: Any) -> bool:
        return bool(self._of.get(parameter)) or parameter in self._others

    def _refusal(self, parameter: nn.Parameter) -> OptimizerError:
        name = self.binding.names[parameter]
        keys = ", ".join(f"optimizer.state[parameter]['{key}'] = values" for key in self.moments)
        return OptimizerError(f"the state of '{name}' is in the store and cannot be removed or replaced as a whole; "
                              f"its moments may be written one by one: {keys or 'it has none'}")


class ParameterState(MutableMapping[str, Any]):
    """Of one parameter; empty before the first update. It is pickled and copied as a dict of tensors."""

    def __init__(self, parameter: nn.Parameter, state: OptimizerState) -> None:
        self._parameter, self._state = parameter, state
        # A 16-bit weight is a part of its master.
        self.kept = dict(state.moments) if parameter.dtype == torch.float32 else {**state.moments, "master": "master"}
        self._own: dict[str, Any] = {}  # what a program keeps here

    def __getitem__(self, key: str) -> Any:
        if key in self._own:
            return self._own[key]
        if key not in self._stored():
            raise KeyError(key)
        if key == "step":
            return torch.tensor(float(self._steps()))
        return read_only(self._read(key), f"write '{key}' of '{self._name}' as a whole, "
                                          f"optimizer.state[parameter]['{key}'] = values; to read it, "
                                          f"engine.weight('{self._name}', '{self.kept[key]}') gives a copy")

    def __setitem__(self, key: str, value: Any) -> None:
        """A moment is written to the store."""
        if key == "step":
            raise OptimizerError(f"steps of '{self._name}' are counted by the store and cannot be set")
        if key in self.kept:
            self._write(self.kept[key], value)
        else:
            self._own[key] = value

    def __delitem__(self, key: str) -> None:
        if key in self._stored():
            raise self._state._refusal(self._parameter)
        del self._own[key]

    def __iter__(self) -> Iterator[str]:
        yield from self._stored()
        yield from self._own

    def __len__(self) -> int:
        return len(self._stored()) + len(self._own)

    def __repr__(self) -> str:
        return f"state of '{self._name}': {', '.join(self) or 'nothing yet'}"

    def __reduce__(self) -> Any:
        return OrderedDict, (), None, None, iter(self._whole())

    def take(self, values: MutableMapping[str, Any]) -> None:
        """What was pickled. Values that are the same bits stay as they are."""
        for key, value in values.items():
            if key != "step" and value is not None:  # as torch's SGD has it without a momentum
                self[key] = value

    def plain(self) -> dict[str, Any]:
        """As torch's optimizer has it: moments in memory, a step as a tensor."""
        return {key: value for key, value in self._whole() if key != "master"}

    # Private.
    @property
    def _name(self) -> str:
        return self._state.binding.names[self._parameter]

    def _stored(self) -> list[str]:
        if self._skips() == self._state.updates():
            return []
        return [*(["step"] if self._state.counted else []), *self.kept]

    def _steps(self) -> int:
        if SKIPPED in (self._state.binding.core.resumed or ()):
            raise UsageError(f"how many steps '{self._name}' was part of is known to the store alone, since parameters "
                             f"have skipped some; its moments are read by engine.weight('{self._name}', 'moment0')")
        return self._state.updates() - self._skips()

    def _skips(self) -> int:
        return self._state.skips.get(self._state.binding.places[self._parameter], 0)

    def _read(self, key: str) -> torch.Tensor:
        self._state.visits.end()
        return self._state.binding.read(self._parameter, self.kept[key])

    def _write(self, what: What, value: Any) -> None:
        binding = self._state.binding
        if not isinstance(value, torch.Tensor) or value.shape != self._parameter.shape:
            raise OptimizerError(f"{what} of '{self._name}' is a tensor of shape {tuple(self._parameter.shape)}")
        self._state.visits.end()
        binding.write(self._parameter, value, what)

    def _whole(self) -> Iterator[tuple[str, Any]]:
        for key in self._stored():
            if key != "step":
                self._state.binding.loans.check_room(4 * self._parameter.numel(), f"{key} of '{self._name}'")
            yield key, self[key] if key == "step" else self._read(key)
        yield from self._own.items()
