"""The optimizer as torch's programs know one: groups with rates that schedulers write, zero_grad(), step().

Its arithmetic and its moments are the core's; `state` reads them.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from .core import UpdateReport, UpdateRequest
from .errors import NonFiniteError, OptimizerError, StorageError, UsageError
from .loss_scale import LossScale
from .optimizers.kind import Mapped
from .optimizers.stand_for import StandsFor
from .optimizers.state import OptimizerState, ParameterState
from .run.ending import Undisturbed
from .run.stopwatch import Stopwatch
from .step.visits import Visits


@dataclass(frozen=True)
class Alongside:
    """What goes with each update, and is no optimizer's affair."""

    committed: Callable[[], Mapping[str, str]]  # beside the weights
    extra: Callable[[], torch.Tensor | None]  # the same
    finish_saving: Callable[[], None]  # of a snapshot under way
    told: Callable[[UpdateReport], None]  # of each update
    stepped: Callable[[], None]  # behind each step()


class Optimizer(torch.optim.Optimizer):
    """`updates` counts the steps of this model, over all its lives; `report` tells of the last one."""

    def __init__(self, mapped: Mapped, visits: Visits, watch: Stopwatch, clip: float, loss_scale: LossScale | None,
                 alongside: Alongside) -> None:
        """`clip`: the largest norm; 0: none. `loss_scale`: what engine.backward() multiplies by."""
        self._ready = False
        super().__init__(mapped.groups, mapped.defaults)
        # The very groups of the user's optimizer, so that a scheduler that was made for it goes on to work.
        self.param_groups = mapped.groups
        vars(self).update(mapped.hooks)
        self._given = [(id(group), [*group["params"]]) for group in mapped.groups]
        self._kind, self._visits, self._binding, self._core = mapped.kind, visits, visits.binding, visits.core
        self._watch, self._alongside = watch, alongside
        self._state = OptimizerState(mapped.kind, mapped.groups, visits, lambda: self.updates)
        self.updates = 0
        self.skipped = 0  # steps that overflowed
        self.report: UpdateReport | None = None
        self.norm: float | None = None  # of the newest one that updated
        self.clip, self.loss_scale = clip, loss_scale
        self._go_back: Callable[[int], None] | None = None
        self._ready = True
        self._stands = StandsFor(mapped.given, self) if mapped.given is not None else None

    @property  # type: ignore[override]
    def state(self) -> OptimizerState:
        """Of each parameter its moments, read from the store when they are asked for; see optimizers/state.py."""
        return self._state

    @state.setter
    def state(self, value: Any) -> None:
        if self._ready:
            raise OptimizerError("the state of a managed optimizer is in the store and cannot be replaced; its moments "
                                 "may be written one by one: optimizer.state[parameter]['exp_avg'] = values")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As torch's; update() itself sets them to None."""
        self._visits.check_there()
        self._binding.gradients.clear(to_zeros=not set_to_none)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """As torch's: what the closure returned, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._binding.gradients.step_alone()
        self.update()
        self._alongside.stepped()
        return loss

    def update(self) -> UpdateReport:
        """With a loss scale, a step that overflows is skipped, and the report says so. An interrupt waits for its
        end."""
        with Undisturbed(), self._watch.timing("step"):
            return self._update()

    def begin(self) -> bool:
        """Before the last backward of a step: whether its units are updated within it."""
        if self._core.begun is not None:
            return True
        return self._core.begin_step(self._request())

    def _check_groups(self) -> None:
        """Raises OptimizerError where groups are others than were given, or hold others: the core knows these."""
        now = self.param_groups
        if len(now) != len(self._given) or any(
                id(group) != own or len(group["params"]) != len(params) or not all(map(operator.is_, group["params"], params))
                for group, (own, params) in zip(now, self._given)):
            raise OptimizerError("groups of a managed optimizer are fixed, because the store keeps its moments: one was added, "
                                 "taken out or moved, or a parameter was. A parameter that is not to be updated any more: "
                                 "requires_grad_(False), or a learning rate of 0")
        if not all(map(self._kind.has, now)):
            raise OptimizerError("maximize or amsgrad of a group of a managed optimizer was changed after penstock.initialize(): "
                                 "there are neither")

    def _request(self) -> UpdateRequest:
        self._check_groups()
        return UpdateRequest(
            self.updates + 1, [self._kind.values(group) for group in self.param_groups], self.clip,
            self.loss_scale.value if self.loss_scale else 1.0, self.loss_scale is not None)

    def _update(self) -> UpdateReport:
        self._visits.end()
        self._visits.check()
        if self._binding.gradients.spoiled is not None:
            raise UsageError(self._binding.gradients.spoiled)
        if self.loss_scale is not None and self._binding.gradients.unscaled:
            raise UsageError("in fp16 gradients have come by loss.backward(), which scales no loss, and would be divided by "
                             f"the loss scale, {self.loss_scale.value:g}: say engine.backward(loss)")
        self._binding.gradients.settle()
        self._binding.gradients.addends.check(self._binding.gradients.fed)
        self._binding.gradients.add_zeros()
        step = self.updates + 1
        self.tell_schedulers()
        if self._stands is not None:
            self._stands.given._opt_called = True  # type: ignore[attr-defined]
        try:
            self.report = self._core.update(replace(
                self._request(), client_state={**self._alongside.committed(), "updates": str(step)}, extra=self._alongside.extra()))
        except BaseException:
            self._binding.gradients.forbid_kept()
            raise
        self._binding.gradients.end_completing()
        if self.report.updated:
            self.updates, self.norm = step, self.report.gradient_norm
            self._binding.updated()
            self._state.after_update()
        else:
            self.skipped += 1
        self._binding.gradients.taken()
        if self.loss_scale is not None:
            self.loss_scale.after(overflow=not self.report.updated)
        self._alongside.told(self.report)
        if self.loss_scale is not None and self.loss_scale.is_in_vain():
            raise NonFiniteError(self.loss_scale.told_in_vain())
        return self.report

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused: see the error."""
        if self._ready:
            raise OptimizerError("groups of a managed optimizer are fixed, because the store keeps its moments; add "
                                 "the group to the optimizer that penstock.initialize() is given")
        super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """As torch's. Moments are read as it is pickled or copied; where snapshots have them it is without."""
        if self._go_back is not None:
            return self.groups_state()
        return {**super().state_dict(), "penstock": {"updates": self.updates, "skipped": self._state.skipped()}}

    def groups_state(self) -> dict[str, Any]:
        """The groups, and which step of the store they belong to."""
        return {**super().state_dict(), "state": {}, "penstock": {"updates": self.updates}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Where they belong to another step, the store goes back to that step's snapshot, or takes their moments; of an
        optimizer of torch's its moments are taken, and its count of steps."""
        of_torch = "penstock" not in state_dict
        told = self._told_by_torch(state_dict["state"]) if of_torch else state_dict["penstock"]
        shared = self.param_groups
        super().load_state_dict({"state": {}, "param_groups": state_dict["param_groups"]})
        for mine, loaded in zip(shared, self.param_groups):
            mine.update({key: value for key, value in loaded.items() if key != "params"})
        self.param_groups = shared
        wanted = int(told["updates"])
        if "skipped" in told and (of_torch or self._go_back is None):
            self._take(state_dict["state"], wanted, told["skipped"])
        elif wanted != self.updates or self._core.begun is not None:
            self.go_back(wanted)

    def plain_state(self) -> dict[str, Any]:
        """As torch's own, in ordinary memory."""
        return {"state": {index: self._state[each].plain() for index, each in enumerate(self._parameters())
                          if each in self._state}, "param_groups": self.groups_state()["param_groups"]}

    def take_states(self, given: torch.optim.Optimizer) -> None:
        """Moments and count of steps of one of torch's, which has the same parameters, in whatever groups."""
        indices = {each: index for index, each in enumerate(self._parameters())}
        strange = [each for each in given.state if each not in indices]
        if strange:
            raise UsageError(f"{len(strange)} of the parameters that {type(given).__name__} has states of are not this "
                             "engine's: give the optimizer of the model that was given to penstock.initialize(), or, of "
                             "another model of this kind, optimizer.state_dict()")
        state = {indices[each]: values for each, values in given.state.items()}
        self._take(state, self._told_by_torch(state)["updates"], skipped=False)

    def _parameters(self) -> list[Any]:
        return [each for group in self.param_groups for each in group["params"]]

    def _told_by_torch(self, state: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
        """What Penstock would say of it."""
        steps = sorted({float(each["step"]) for each in state.values() if "step" in each})
        if len(steps) > 1:
            raise UsageError(f"this optimizer's parameters were part of {steps[0]:.0f} to {steps[-1]:.0f} steps, and the store "
                             "counts those of all together: begin with the model's weights alone")
        unknown = sorted({key for each in state.values() for key in each} - {"step", *self._state.moments})
        if unknown:
            raise UsageError(f"this optimizer's states are {', '.join(unknown)}, those of the store "
                             f"{', '.join(self._state.moments) or 'none'}: it is of another kind, or has other options; begin "
                             "with the model's weights alone")
        has_moments = any(each.get(key) is not None for each in state.values() for key in self._state.moments)
        # Of SGD nobody counts: a momentum is that of one step at least, which the next one does not begin.
        return {"updates": int(steps[0]) if steps else max(self.updates, int(has_moments)), "skipped": False}

    def _take(self, state: dict[int, Any], updates: int, skipped: bool) -> None:
        """The weights of that step are the model's affair."""
        parameters = self._parameters()
        live = any(isinstance(each, ParameterState) for each in state.values())
        if updates != self.updates and live:
            raise UsageError(f"the optimizer's state of step {updates} was not copied then, and the store is at step "
                             f"{self.updates}: say copy.deepcopy(optimizer.state_dict()), or torch.save() it")
        if updates != self.updates and self._state.moments and (skipped or self._state.skipped()):
            raise UsageError(f"the store is at step {self.updates} and cannot take over the moments of step {updates}, "
                             "because some parameters have skipped steps, which are counted there alone: keep and take "
                             "checkpoints by engine.save_checkpoint() and engine.load_checkpoint()")
        if not live:
            if self._core.begun is not None:
                raise UsageError(f"optimizer.load_state_dict() while step {self._core.begun} is under way, whose units are "
                                 "updated within backward: do so after engine.step(), or say Store(update_order='deferred')")
            self._visits.end()
            self._state.check_counted({parameters[index]: values for index, values in state.items()}, updates)
            for index, values in state.items():
                self._state[parameters[index]].take(values)
            if self.updates > 0:
                self._state.begin_anew(each for index, each in enumerate(parameters) if index not in state)
            self.updates = updates  # gradients stay, as in torch

    def leave_moments_to(self, go_back: Callable[[int], None]) -> None:
        """Moments are in snapshots: `go_back` makes the store that of a step."""
        self._go_back = go_back

    def go_back(self, updates: int) -> None:
        """The store is that step's, by what leave_moments_to() was told."""
        if self._go_back is None:
            raise StorageError(f"the store is at step {self.updates}, the optimizer's state of step {updates} has no "
                               "moments, and no snapshot of that step is known: keep and take checkpoints by "
                               "engine.save_checkpoint() and engine.load_checkpoint(); with transformers' Trainer say "
                               "callbacks=[penstock.hugging_face.KeepSnapshots(engine)]")
        self._visits.end()
        self._alongside.finish_saving()
        self._go_back(updates)
        self.gone_back(updates)

    def gone_back(self, updates: int) -> None:
        """The store is at that step, and no gradient is there."""
        self._binding.gradients.fed.clear()
        self.updates = updates

    def go_on(self, updates: int, skipped: int) -> None:
        """From what was counted by then."""
        self.updates, self.skipped = updates, skipped

    def tell_schedulers(self) -> None:
        """There was a step: torch's ask whether they are called after one."""
        self._opt_called = True

    def released(self) -> None:
        """The optimizer that was given is its own again."""
        if self._stands is not None:
            self._stands.end()


class NothingToTrain(Optimizer):
    """In its place, of a model that is opened for forwards alone."""

    def __init__(self, clip: float, loss_scale: LossScale | None) -> None:
        self._ready = False
        self.param_groups, self.defaults = [], {}
        self._state: Any = {}
        self._stands = None
        self.updates, self.skipped, self.report, self.norm = 0, 0, None, None
        self.clip, self.loss_scale = clip, loss_scale

    def begin(self) -> bool:
        return False

    def zero_grad(self, set_to_none: bool = True) -> None:
        """There are no gradients."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Its own: torch wraps that of optimizers that it has made."""
        self.update()

    def update(self) -> UpdateReport:
        raise UsageError("nothing of this model is trainable: no parameter required a gradient at "
                         "penstock.initialize(), and it was opened for forwards alone. To train it, call "
                         "requires_grad_() before, or name what is going to be trained: "
                         "penstock.initialize(trainable=[...])")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.update()


Optimizer.step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]  # step() says itself that it was called
