"""What compute takes in a step: the model is run with an example batch, forward and backward, as the engine runs it.

It is a copy that is run, whose parameters have no values: the model itself, which may be on meta, stays as it is.
"""
from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ..core import ModelSpec
from ..errors import ModelError, PenstockError, UsageError
from ..native.described import Compute
from ..settings import Settings
from ..step import saved_hooks
from ..step.generators import ProgramsGenerators
from ..step.keeper import Keeper
from ..step.shelf import Shelf
from ..units import units_of
from ..weights.binding import Binding
from .foretold import Foretold
from .measuring_core import MeasuringCore, Stay
from .stand_in import Kinds, MeasuredCall, MeasuringVisits

Loss = Callable[[Any], torch.Tensor]  # of what the model gives
FEWEST, MOST = 2, 20  # passes that count, behind the first one
LONG = 10.0  # seconds of a pass


class ComputeProbe:
    """A copy of a model over a core that keeps nothing. Raises ModelError where it cannot be copied or run."""

    def __init__(self, model: nn.Module, spec: ModelSpec, sums: torch.dtype, settings: Settings,
                 units: Sequence[str] = (), resident: Sequence[str] = (), lays: bool = False,
                 room_bytes: float = math.inf) -> None:
        self.model = _copy_without_values(model, settings.dtype)
        self.settings = settings
        cut = units_of(self.model, units, resident)
        self.core = MeasuringCore(spec.units, sums, adds=settings.accumulation > 1)
        self.visits = MeasuringVisits(Binding(self.model, cut, self.core))  # type: ignore[arg-type]
        Keeper(self.visits)  # the parameters have it
        saved_hooks.watch(self.visits)
        shelf = Shelf(self.core) if lays else None  # type: ignore[arg-type]
        self.activations = Foretold(settings, room_bytes, shelf)
        self.kinds = Kinds()
        for unit in cut:
            if unit.module is not None:
                unit.module.__dict__["_compiled_call_impl"] = MeasuredCall(unit, self.visits, self.activations, self.kinds,
                                                                           shelf)

    def measure(self, batch: Any, loss: Loss | None, seconds: float) -> Compute:
        """Passes for so long, two at least where they are short; the first, which also says which graphs are kept, is
        not counted."""
        args, kwargs = _arguments(batch)
        begin = time.perf_counter()
        self._first_pass(args, kwargs, loss)
        self.activations.choose()
        fewest = FEWEST if time.perf_counter() - begin < LONG else 1
        passes: list[list[Stay]] = []
        rests: list[float] = []
        begin = time.perf_counter()
        while len(passes) < fewest or (len(passes) < MOST and time.perf_counter() - begin < seconds):
            rests.append(self._pass(args, kwargs, loss))
            passes.append(self.core.stays)
        return self._compute(passes, statistics.median(rests))

    # Private.
    def _first_pass(self, args: Any, kwargs: Any, loss: Loss | None) -> None:
        """Where units cannot be stood in for, all of them are computed."""
        try:
            self._pass(args, kwargs, loss)
        except UsageError:
            raise
        except Exception:  # with its frames go the hooks that checkpoints within them have left
            self.kinds.compute_all()
        if not self.kinds.allowed:
            self.visits.give_up()
            self._run(args, kwargs, loss)

    def _run(self, args: Any, kwargs: Any, loss: Loss | None) -> None:
        try:
            self._pass(args, kwargs, loss)
        except PenstockError:
            raise
        except Exception as error:
            within = f", in unit '{self.kinds.failed}'" if self.kinds.failed else ""
            raise ModelError(f"{type(self.model).__name__} cannot be run with this batch{within}: "
                             f"{type(error).__name__}: {error}; give what its forward takes (a mapping of names, a tuple, "
                             "or one tensor), and loss=... where it gives none; or plan without a batch") from error

    def _pass(self, args: Any, kwargs: Any, loss: Loss | None) -> float:
        """Seconds outside of visits."""
        self.kinds.begin_pass()
        self.activations.begin_pass()
        begin = time.perf_counter()
        self.visits.begin("training")
        scaled = _loss_of(self.model(*args, **kwargs), loss) / self.settings.accumulation
        if self.settings.loss_scale is not None:
            scaled = scaled.float() * self.settings.loss_scale.value
        scaled.backward()
        self.visits.end()
        if not self.core.stays:
            raise ModelError(f"a forward of {type(self.model).__name__} with this batch calls none of its units: there "
                             "is nothing to measure")
        return self.core.begun_at - begin + time.perf_counter() - self.core.ended_at

    def _compute(self, passes: list[list[Stay]], rest: float) -> Compute:
        last = passes[-1]
        alike = [each for each in passes if [stay.visit for stay in each] == [stay.visit for stay in last]]
        measured: dict[Any, list[float]] = {}  # of each kind of unit
        for stay in (stay for each in passes for stay in each if not stay.stood_in):
            measured.setdefault(self._kind(stay), []).append(stay.seconds)
        seconds = tuple(
            statistics.median(measured[self._kind(stay)] if stay.stood_in and self._kind(stay) in measured
                              else [each[at].seconds for each in alike]) for at, stay in enumerate(last))
        forward = next((at for at, stay in enumerate(last) if stay.backward), len(last))
        return Compute(tuple(stay.visit for stay in last), seconds, forward, self.settings.accumulation,
                       rest * self.settings.accumulation, graph_bytes=self.activations.expected_bytes,
                       laid=self.core.laid_items())

    def _kind(self, stay: Stay) -> Any:
        return self.kinds.of_unit.get(stay.unit), stay.backward


def measure_compute(model: nn.Module, spec: ModelSpec, sums: torch.dtype, settings: Settings, batch: Any,
                    loss: Loss | None, seconds: float, units: Sequence[str] = (), resident: Sequence[str] = (),
                    lays: bool = False, room_bytes: float = math.inf) -> Compute:
    """See ComputeProbe. `lays`: what recomputed units are given is laid aside, as Shelf does. `room_bytes` is what graphs
    may take. Random states and gradients of the model are as they were."""
    programs = ProgramsGenerators()
    states = programs.now()
    gradients = {each: each.grad for each in model.parameters()}
    try:
        for each in gradients:
            each.grad = None
        with torch.enable_grad():
            probe = ComputeProbe(model, spec, sums, settings, units, resident, lays, room_bytes)
            compute = probe.measure(batch, loss, seconds)
        if any(each.grad is not None for each in gradients):
            raise ModelError(f"a copy of {type(model).__name__} reads parameters of the model that it was copied from "
                             "(a function that was made with the model has them): it cannot be measured; plan without "
                             "a batch")
        return compute
    finally:
        for parameter, gradient in gradients.items():
            parameter.grad = gradient
        programs.set(states)


def tokens_of(batch: Any) -> int | None:
    """Elements of the first tensor of integers."""
    args, kwargs = _arguments(batch)
    for each in (*args, *kwargs.values()):
        if isinstance(each, torch.Tensor) and not each.is_floating_point() and each.dtype != torch.bool:
            return each.numel()
    return None


def _arguments(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(batch, Mapping):
        return (), dict(batch)
    return (tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)), {}


def _loss_of(output: Any, loss: Loss | None) -> torch.Tensor:
    found: Any
    if loss is not None:
        found = loss(output)
    elif isinstance(output, Mapping):
        found = output.get("loss")
    else:
        found = getattr(output, "loss", output[0] if isinstance(output, (tuple, list)) and output else output)
    if not isinstance(found, torch.Tensor) or found.numel() != 1:
        what = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        raise UsageError(f"the loss is a tensor of one element, not {what}: say how it is made of what the model "
                         "gives, penstock.plan(loss=lambda output: ...)")
    if not found.requires_grad:
        raise UsageError("the loss has no gradient: nothing that is trained has a part in it")
    return found


def _copy_without_values(model: nn.Module, dtype: torch.dtype | None) -> nn.Module:
    """Parameters are a single NaN each; what else is on meta has values of no meaning."""
    def converted(each: torch.Tensor) -> torch.dtype:
        return dtype if dtype is not None and each.is_floating_point() else each.dtype
    copies: dict[int, Any] = {}
    for each in model.parameters():
        nan = torch.full((), float("nan"), dtype=converted(each)).expand(each.shape)
        copies[id(each)] = nn.Parameter(nan, requires_grad=each.requires_grad)
    for module in model.modules():
        for own in (*module._buffers.values(), *vars(module).values()):
            if isinstance(own, torch.Tensor) and not isinstance(own, nn.Parameter) and id(own) not in copies:
                copies[id(own)] = (torch.ones_like(own, dtype=converted(own), device="cpu") if own.is_meta
                                   else own.detach().to("cpu", converted(own), copy=True))
    try:
        return copy.deepcopy(model, copies)
    except Exception as error:
        raise ModelError(f"{type(model).__name__} cannot be copied to be measured: {type(error).__name__}: {error}; plan "
                         "without a batch") from error
