"""Which of the core's optimizers an optimizer of torch is, and what its groups say about a step."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ..errors import OptimizerError, some
from ..optimizer_kinds import KINDS, Kind


@dataclass(frozen=True)
class Mapped:
    """An optimizer of the user's in the core's terms. `groups` are its own, not copies."""

    kind: Kind
    groups: list[dict[str, Any]]
    defaults: dict[str, Any]
    given: torch.optim.Optimizer | None = None  # itself: schedulers that were made of it ask it whether it was stepped
    hooks: Mapping[str, Any] = field(default_factory=dict)  # that were registered on the optimizer that was given

    def group_of(self) -> dict[nn.Parameter, int]:
        return {each: index for index, group in enumerate(self.groups) for each in group["params"]}

    def note(self) -> str | None:
        """On rates that are tensors."""
        of = sorted({key for group in self.groups for key in self.kind.reads if isinstance(group.get(key), torch.Tensor)})
        if not of or self.kind.name == "sgd":  # which only multiplies by it
            return None
        return (f"{some(of)} of the optimizer is a tensor, with which torch computes in fp32; a step here takes the number that "
                "is in it: the last bits of an update may differ. A float has plain torch's bits")

    @property
    def initial_accumulator(self) -> float:
        return float(self.groups[0].get("initial_accumulator_value", 0.0))


HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks",
         "_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks")


def map_optimizer(optimizer: torch.optim.Optimizer) -> Mapped:
    """Raises OptimizerError for one that is none of the core's, or that has taken steps already."""
    of = type(optimizer).__name__
    kind = _kind_of(optimizer)
    if kind is None:
        named = [f"classes named {each.of.__name__}" if each.by_name else each.of.__name__ for each in KINDS.values()]
        raise OptimizerError(f"{type(optimizer).__module__}.{of} cannot be mapped to an optimizer of the store; there "
                             f"are torch.optim.{', '.join(named)}, and those that say by 'penstock_kind' which of "
                             f"{some(KINDS)} they are")
    for group in optimizer.param_groups:
        kind.check(group, of)
    for key in kind.opens_with:
        if len({group.get(key) for group in optimizer.param_groups}) > 1:
            raise OptimizerError(f"{of} with several values of {key} cannot be mapped: give all groups the same")
    if any(float(state.get("step", 0)) > 0 for state in optimizer.state.values()):
        raise OptimizerError(f"this {of} has taken steps: make a new one for penstock.initialize(), and then say "
                             "engine.import_states(the one that has)")
    if "step" in vars(optimizer) and not hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        raise OptimizerError(f"step() of this {of} was replaced: nobody would call that. Put it in the place of the step() of the "
                             "optimizer that penstock.initialize() gives")
    return Mapped(kind, optimizer.param_groups, dict(optimizer.defaults), optimizer,
                  {key: value for key, value in vars(optimizer).items() if key in HOOKS})


def map_parameters(parameters: Iterable[Any] | None, model: nn.Module, make: Callable[[Any], torch.optim.Optimizer],
                   later: Set[nn.Parameter] = frozenset()) -> Mapped:
    """Parameters or groups of them, as torch.optim takes; None: all of the model that are trainable, or become so
    `later`."""
    listed = list(model.parameters() if parameters is None else parameters)
    if listed and isinstance(listed[0], tuple):
        listed = [each for _, each in listed]
    if listed and not isinstance(listed[0], dict):
        listed = [each for each in listed if each.requires_grad or each in later]
    if not listed:
        raise OptimizerError("no parameter of the model requires a gradient: there is nothing to train")
    return map_optimizer(make(listed))


def check_cover(model: nn.Module, mapped: Mapped, later: Set[nn.Parameter] = frozenset()) -> None:
    """Every trainable parameter is in a group, also those that become so `later`, and every one in a group is the
    model's."""
    group_of = mapped.group_of()
    named = dict(model.named_parameters())
    left = [name for name, each in named.items() if each.requires_grad and each not in group_of]
    if left:
        raise OptimizerError(f"parameters {some(left)} require a gradient, but no group of the optimizer has them: add "
                             "them, or freeze them by requires_grad_(False)")
    left = [name for name, each in named.items() if each in later and each not in group_of]
    if left:
        raise OptimizerError(f"penstock.initialize(trainable=...) says of parameters {some(left)} that they become "
                             "trainable, but no group of the optimizer has them: make it of them, too, because groups "
                             "are fixed; a parameter without a gradient stays as it is, as in torch")
    own = set(named.values())
    strange = sum(each not in own for each in group_of)
    if strange:
        raise OptimizerError(f"{strange} of the optimizer's parameters are not the model's: make it of "
                             "model.parameters()")


def _kind_of(optimizer: torch.optim.Optimizer) -> Kind | None:
    """An optimizer may say itself which one it is, `penstock_kind`: then its groups have the options of that one."""
    said = getattr(optimizer, "penstock_kind", None)
    if said is not None and said not in KINDS:
        raise OptimizerError(f"{type(optimizer).__name__}.penstock_kind is {said!r}: there are {some(KINDS)}")
    name = said or next((name for name, kind in KINDS.items() if kind.is_of(optimizer)), None)
    if name == "adam" and any(group.get("decoupled_weight_decay") for group in optimizer.param_groups):
        name = "adamw"
    return KINDS[name] if name else None
