"""Parts that do something with the graph: checkpoints and hooks of the program's own, weights that are made of others,
weights that are given out or kept."""
from __future__ import annotations

import random
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from .named import RARE
from .part import PARTS, WIDTH, Given, Part

Tensor = torch.Tensor


@PARTS.of(3)
class CheckpointWithin(Part):
    """torch's checkpoint around some of it, with dropout inside, not reentrant"""

    reentrant = False

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.second, self.rate = nn.Linear(WIDTH, WIDTH), draw.choice((0.0, 0.2))

    def _inner(self, x: Tensor) -> Tensor:
        return self.second(nn.functional.dropout(torch.tanh(self.linear(x)), self.rate, self.training))

    def forward(self, x: Tensor, given: Given) -> Tensor:
        return x + checkpoint(self._inner, x * 1.0, use_reentrant=self.reentrant)


@PARTS.of(2)
class ReentrantWithin(CheckpointWithin):
    """torch's reentrant checkpoint around some of it, with dropout inside"""

    reentrant = True


@PARTS.of(3)
class SavedHooksWithin(Part):
    """The program's own hooks for saved tensors around some of it."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.how = draw.choice(("on cpu", "copies", "halves", "places"))

    def forward(self, x: Tensor, given: Given) -> Tensor:
        kept: list[Tensor] = []

        def put(each: Tensor) -> int:
            kept.append(each.detach().clone())
            return len(kept) - 1
        hooks: Any = {
            "on cpu": save_on_cpu, "copies": lambda: saved_tensors_hooks(lambda each: each * 1, lambda each: each),
            "halves": lambda: saved_tensors_hooks(_half, lambda each: each[1].to(each[0])),
            "places": lambda: saved_tensors_hooks(put, lambda at: kept[at])}[self.how]()
        with hooks:
            y = torch.tanh(self.linear(x))
        return x + self.linear(y)


def _half(each: Tensor) -> Any:
    """Weights stay whole: they are none of what the program's hooks are given where a model is managed."""
    is_weight = isinstance(each, nn.Parameter) or isinstance(each._base, nn.Parameter)
    return each.dtype, each if is_weight else each.to(torch.bfloat16)


@PARTS.of(3)
class OldNorm(Part):
    """weight_norm or spectral_norm as hooks on the linear, as they were before parametrizations."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        norm = draw.choice((torch.nn.utils.weight_norm, torch.nn.utils.spectral_norm))
        self.linear = norm(nn.Linear(WIDTH, WIDTH))

    def forward(self, x: Tensor, given: Given) -> Tensor:
        return x + torch.tanh(self.linear(x))


@PARTS.of(3)
class Parametrized(Part):
    """weight_norm, spectral_norm or orthogonal as a parametrization, cached within the call or not."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        norm = draw.choice((parametrizations.weight_norm, parametrizations.spectral_norm, parametrizations.orthogonal))
        self.linear, self.cached = norm(nn.Linear(WIDTH, WIDTH)), draw.random() < 0.4

    def forward(self, x: Tensor, given: Given) -> Tensor:
        if self.cached:
            with nn.utils.parametrize.cached():
                return x + torch.tanh(self.linear(self.linear(x)))
        return x + torch.tanh(self.linear(x))


@PARTS.of(3)
class HooksItsActivation(Part):
    """A hook on its own activation scales the gradient, or writes its norm into a list of the module's."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.scales, self.norms = draw.random() < 0.5, list[float]()

    def forward(self, x: Tensor, given: Given) -> Tensor:
        y = self.linear(x)
        if y.requires_grad:
            y.register_hook((lambda g: g * 0.5) if self.scales else (lambda g: self.norms.append(float(g.norm()))))
        return x + torch.tanh(y)


@PARTS.of(2)
class ReadsInBackward(Part):
    """A hook on its activation computes with its weight, or with another unit's, within backward."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.other, self.sums = draw.random() < 0.5, list[float]()

    def join(self, model: Any, unit: int) -> None:
        self.reads = [list(model.units)[(unit + 1) % len(model.units)].parts[0] if self.other else self]

    def forward(self, x: Tensor, given: Given) -> Tensor:
        y = torch.tanh(self.linear(x))

        def read(gradient: Tensor) -> None:
            with torch.no_grad():
                self.sums.append(float(gradient.sum() + self.reads[0].linear.weight.sum()))
        if y.requires_grad:
            y.register_hook(read)
        return x + y


@PARTS.of(2)
class CallsInBackward(Part):
    """A hook on its activation calls the model's shared module within backward, with gradients or without."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.gradients, self.scales = draw.random() < 0.5, draw.random() < 0.5

    def join(self, model: Any, unit: int) -> None:
        self.others = [model.shared]

    def forward(self, x: Tensor, given: Given) -> Tensor:
        y = torch.tanh(self.linear(x))

        def call(gradient: Tensor) -> Tensor | None:
            with torch.set_grad_enabled(self.gradients):
                out = self.others[0](gradient.float()).detach()
            return gradient + 0.1 * out.to(gradient.dtype) if self.scales else None
        if y.requires_grad:
            y.register_hook(call)
        return x + y


@PARTS.of(2)
class KeepsWeight(Part):
    """It keeps its weight in a list, or what is computed of it in an attribute until the script's next step."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.how, self.kept = draw.choice(("itself", "copy", "computed")), None
        self.listed = [self.linear.weight] if self.how == "itself" else []

    def begin(self, step: int) -> None:
        self.kept = None

    def forward(self, x: Tensor, given: Given) -> Tensor:
        if self.how == "itself":
            return x + torch.tanh(x @ self.listed[0])
        if self.kept is None:
            weight = self.linear.weight
            self.kept = weight.detach().clone() if self.how == "copy" else weight * 2.0
        kept = self.kept if torch.is_grad_enabled() else self.kept.detach()
        return x + torch.tanh(self.linear(x)) + 0.1 * (x @ kept)


@PARTS.of(RARE)
class KeepsDetachedWeight(Part):
    """A detached alias of its weight is kept in an attribute from one call to the next."""

    kept: Any = None

    def forward(self, x: Tensor, given: Given) -> Tensor:
        y = torch.tanh(self.linear(x))
        if self.kept is not None:
            y = y + 0.1 * (x @ self.kept)
        self.kept = self.linear.weight.detach()
        return x + y


@PARTS.of(RARE)
class ViewInHook(Part):
    """A hook on its activation reads a view of its weight that was taken in the forward."""

    def forward(self, x: Tensor, given: Given) -> Tensor:
        y = torch.tanh(self.linear(x))
        view = self.linear.weight.detach()[1:]
        if y.requires_grad:
            y.register_hook(lambda gradient: gradient * (1 + view.mean()))
        return x + y


@PARTS.of(2)
class ViewsMeanwhile(Part):
    """Views of its weight stay in an attribute until the next call, and are read in the forward alone."""

    def forward(self, x: Tensor, given: Given) -> Tensor:
        self.views = [self.linear.weight.t(), self.linear.weight.detach()[0]]
        return x + torch.tanh(x @ self.views[0] + self.views[1])


@PARTS.of(2)
class Directly(Part):
    """Parameters of its own beside modules: in a ParameterList, in a ParameterDict, one that is never used."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.scale, self.unused = nn.Parameter(torch.ones(())), nn.Parameter(torch.zeros(3))
        self.many = nn.ParameterList([torch.full((WIDTH,), 0.5), torch.ones(WIDTH)])
        self.named = nn.ParameterDict({"shift": nn.Parameter(torch.zeros(WIDTH))})

    def forward(self, x: Tensor, given: Given) -> Tensor:
        y = x
        for each in self.many:
            y = y * each
        return x + self.scale * torch.tanh(self.linear(y)) + self.named["shift"]


@PARTS.of(2)
class TiedWithin(Part):
    """Two of its linears share one weight."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.second.weight = self.linear.weight

    def forward(self, x: Tensor, given: Given) -> Tensor:
        return x + torch.tanh(self.second(torch.tanh(self.linear(x))))


@PARTS.of(2)
class DetachedRegion(Part):
    """A local backward within the forward, whose gradient goes on by hand (decoupled or synthetic gradients)."""

    def forward(self, x: Tensor, given: Given) -> Tensor:
        y = x + torch.tanh(self.linear(x))
        if not torch.is_grad_enabled() or x.is_inference():
            return y
        inner = y.detach().requires_grad_()
        (inner.sin().sum()).backward()
        assert inner.grad is not None
        return y * (1 + 0.1 * inner.grad)
