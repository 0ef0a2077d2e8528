"""Units that are alike are computed twice in a pass; the others are stood in for, and take as long."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..step import saved_hooks
from ..step.shelf import Laid, Shelf
from ..step.unit_call import UnitCall
from ..step.visits import Visits, in_backward
from ..units import Unit
from ..weights.running import Call
from .foretold import Foretold
from .measuring_core import MeasuringCore

COMPUTED = 2  # of a kind, in each pass
PLAIN = (type(None), bool, int, float, complex, str, torch.dtype, torch.device, torch.Size)

Kind = tuple[Any, ...]


@dataclass
class Known:
    """What is known of a kind of unit in this pass."""

    computed: int = 0
    unit: str = ""  # the last one
    output: Any = None  # its
    refused: bool = False  # it does more than to give an output


@dataclass
class Kinds:
    """Of the units of a model, by class, shapes, what they are called with, and whether their graphs are kept."""

    allowed: bool = True  # units may be stood in for
    known: dict[Kind, Known] = field(default_factory=dict)
    of_unit: dict[str, Kind] = field(default_factory=dict)
    failed: str | None = None  # the unit whose forward raised

    def begin_pass(self) -> None:
        self.failed = None
        for each in self.known.values():
            each.computed, each.output = 0, None

    def fail(self, unit: str) -> None:
        """Its forward has raised."""
        self.failed = unit

    def compute_all(self) -> None:
        """Nothing is stood in for any more."""
        self.allowed = False

    def refuse(self, unit: str) -> None:
        """Its kind is always computed."""
        if unit in self.of_unit:
            self.known[self.of_unit[unit]].refused = True


class MeasuringVisits(Visits):
    """Says to the core whose call a visit is of."""

    core: MeasuringCore  # type: ignore[assignment]

    def enter(self, call: Call) -> None:
        self.core.compute(call.name)
        super().enter(call)

    def leave(self, call: Call) -> None:
        if call in self.open:  # else it was given up
            super().leave(call)

    def arrive(self, call: Call) -> None:
        self.core.compute(call.name)
        super().arrive(call)


class MeasuredCall(UnitCall):
    """A unit's forward, or what stands in for it."""

    visits: MeasuringVisits
    policy: Foretold

    def __init__(self, unit: Unit, visits: MeasuringVisits, policy: Foretold, kinds: Kinds, shelf: Shelf | None) -> None:
        super().__init__(unit, visits, policy)
        self.kinds, self.shelf = kinds, shelf

    @torch.compiler.disable
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        visits, core = self.visits, self.visits.core
        for outer in visits.open:
            self.kinds.refuse(outer.name)  # it calls other units
        if visits.open or in_backward() or not torch.is_grad_enabled() or isinstance(
                saved_hooks.owner(), saved_hooks.Programs):
            return super().__call__(*args, **kwargs)
        self.policy.called(self.unit.name)
        kind = self._kind(args, kwargs)
        self.kinds.of_unit[self.unit.name] = kind
        known = self.kinds.known.setdefault(kind, Known())
        if self.kinds.allowed and known.computed >= COMPUTED and not known.refused:
            return self._stand_in(known, args, kwargs)
        before = len(core.stays)
        try:
            output = super().__call__(*args, **kwargs)
        except Exception:
            self.kinds.fail(self.unit.name)
            raise
        known.computed += 1
        known.unit, known.output = self.unit.name, output
        known.refused |= (len(core.stays) != before + 1 or not _are_plain(args, kwargs, output)
                          or self._kind(args, kwargs) != kind)  # a list that it has filled
        return output

    # Private.
    def _kind(self, args: Any, kwargs: Any) -> Kind:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        given = tuple((each.shape, each.dtype, each.requires_grad) if isinstance(each, torch.Tensor) else type(each)
                      for each in leaves)
        own = tuple((each.parameter.shape, each.parameter.dtype, each.parameter.requires_grad)
                    for each in self.unit.bound)
        return (type(self.module), self.policy.is_kept(self.unit.name), own, given, repr(spec))

    def _stand_in(self, known: Known, args: Any, kwargs: Any) -> Any:
        call = Call(self.unit.name, self.unit.reads)
        self.policy.bytes_of[self.unit.name] = self.policy.bytes_of.get(known.unit, 0)
        laid = self._lay(args, kwargs)
        with _StandingIn(self.visits), _Visit(self.visits, call):
            leaves, spec = pytree.tree_flatten(known.output)
            places = [at for at, each in enumerate(leaves) if isinstance(each, torch.Tensor)]
            graded = [at for at in places if leaves[at].requires_grad]
            for at in places:
                leaves[at] = leaves[at].detach().clone()
            if graded:
                inputs = [each for each in pytree.tree_leaves((args, kwargs))
                          if isinstance(each, torch.Tensor) and each.requires_grad]
                own = torch.zeros((), requires_grad=True)  # the unit's parameters
                given = _StandIn.apply(lambda: self._again(call, laid), [leaves[at] for at in graded], own, *inputs)
                for at, each in zip(graded, given):
                    leaves[at] = each
            return pytree.tree_unflatten(leaves, spec)

    def _lay(self, args: Any, kwargs: Any) -> list[torch.Tensor | Laid]:
        """As giving its graph up would."""
        if self.shelf is None or self.policy.is_kept(self.unit.name):
            return []
        return [self.shelf.pack(each, each.detach()) for each in pytree.tree_leaves((args, kwargs))
                if isinstance(each, torch.Tensor)]

    def _again(self, call: Call, laid: list[torch.Tensor | Laid]) -> None:
        for each in laid:
            assert self.shelf is not None
            self.shelf.take(each)
        laid.clear()
        with _StandingIn(self.visits):
            self.visits.arrive(call)


class _Visit:
    def __init__(self, visits: Visits, call: Call) -> None:
        self.visits, self.call = visits, call

    def __enter__(self) -> None:
        self.visits.enter(self.call)

    def __exit__(self, *_: Any) -> None:
        self.visits.leave(self.call)


class _StandingIn:
    def __init__(self, visits: MeasuringVisits) -> None:
        self.core = visits.core

    def __enter__(self) -> None:
        self.core.stand_in()

    def __exit__(self, *_: Any) -> None:
        self.core.stand_in(False)


class _StandIn(torch.autograd.Function):
    """Outputs that have a gradient as the unit's would, and give one to each input."""

    @staticmethod
    def forward(ctx: Any, again: Callable[[], None], outputs: list[torch.Tensor], *inputs: torch.Tensor) -> Any:
        ctx.again, ctx.inputs = again, [(each.shape, each.dtype) for each in inputs]
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        ctx.again()
        return (None, None, *(torch.full(shape, 1e-3, dtype=dtype) for shape, dtype in ctx.inputs))


def _are_plain(*given: Any) -> bool:
    """Nothing else that it could write into."""
    return all(isinstance(each, (torch.Tensor, *PLAIN)) for each in pytree.tree_leaves(given))
