"""Parts that compute, each with one way of being awkward for whoever takes weights away or runs a forward again."""
from __future__ import annotations

import random
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .part import PARTS, WIDTH, Given, Part

Tensor = torch.Tensor


@PARTS.of(8)
class Linear(Part):
    """x + tanh(linear(norm(x)))"""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, given: Given) -> Tensor:
        return x + torch.tanh(self.linear(self.norm(x)))


@PARTS.of(3)
class Attention(Part):
    """MultiheadAttention of x with itself, given as the same tensor three times."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.attention = nn.MultiheadAttention(WIDTH, 2, dropout=draw.choice((0.0, 0.2)), batch_first=True)

    def forward(self, x: Tensor, given: Given) -> Tensor:
        rows = self.linear(x).unsqueeze(0)
        return x + self.attention(rows, rows, rows, need_weights=False)[0][0]


@PARTS.of(2)
class Recurrent(Part):
    """A GRU over the rows, whose weights are in one flat list."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.rnn = draw.choice((nn.GRU, nn.LSTM))(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: Tensor, given: Given) -> Tensor:
        return x + self.linear(self.rnn(x.unsqueeze(0))[0][0])


@PARTS.of(3)
class Experts(Part):
    """Each row goes to one of three linears, as the gate says; some get none."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor, given: Given) -> Tensor:
        weight, chosen = torch.softmax(self.linear(x)[:, :3], -1).max(-1)
        out = torch.zeros_like(x)
        for at, expert in enumerate(self.experts):
            rows = (chosen == at).nonzero()[:, 0]
            if rows.numel():
                out = out.index_add(0, rows, (expert(x[rows]) * weight[rows, None]).to(out.dtype))
        return x + out


@PARTS.of(4)
class InPlaceActivation(Part):
    """Activations in place, and `+=`, on what the part itself made."""

    def forward(self, x: Tensor, given: Given) -> Tensor:
        y = self.linear(x)
        y.mul_(0.5)
        y[:, 0].add_(1)
        z = F.relu(y, inplace=True) * 1.0
        z += x
        return z


@PARTS.of(4)
class ChangesItsInput(Part):
    """x itself is changed in place, with weights or without."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.how = draw.choice(("scaled", "added", "rows"))

    def forward(self, x: Tensor, given: Given) -> Tensor:
        if not torch.is_grad_enabled() and x.is_inference():
            x = x.clone()
        y = torch.tanh(self.linear(x.clone()))
        if self.how == "scaled":
            x.mul_(0.9)
            return x + y
        if self.how == "rows":
            x[1:] += y[:-1]
            return x + 0.0
        x += y
        return x


class KeepsOnItself(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, how: str) -> Tensor:
        ctx.how, ctx.also = how, x * 2
        if how == "attribute":
            ctx.weight = weight
            ctx.save_for_backward(x)
        else:
            ctx.save_for_backward(x, weight)
        return (x @ weight.t() * 2).float()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        weight = ctx.weight if ctx.how == "attribute" else ctx.saved_tensors[1]
        return gradients[0] @ weight * 2, gradients[0].t() @ ctx.also, None


@PARTS.of(4)
class CustomFunction(Part):
    """An autograd Function that keeps its weight by save_for_backward, or as an attribute of ctx."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.how = draw.choice(("saved", "attribute"))

    def forward(self, x: Tensor, given: Given) -> Tensor:
        return x + KeepsOnItself.apply(x.float(), self.linear.weight, self.how).tanh()


@PARTS.of(3)
class Views(Part):
    """Weights are read in parts: rows of one, its transpose, both within one product."""

    def forward(self, x: Tensor, given: Given) -> Tensor:
        upper, lower = self.linear.weight.chunk(2)
        y = F.linear(x, upper, self.linear.bias[:4])
        z = torch.einsum("ij,kj->ik", x, lower)
        return x + torch.tanh(torch.cat([y, z], 1) @ self.linear.weight.t())


@PARTS.of(3)
class AutocastWithin(Part):
    """The product is made in bfloat16, twice with one weight, then in fp32 with autocast switched off within."""

    def forward(self, x: Tensor, given: Given) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.tanh(self.linear(x))
            z = self.linear(y)
            with torch.autocast("cpu", enabled=False):
                w = self.linear(z.float())
        return x + w + y.float()


@PARTS.of(3)
class WithoutGradients(Part):
    """A part of it is computed under no_grad, another one under no_grad with gradients enabled again."""

    def forward(self, x: Tensor, given: Given) -> Tensor:
        with torch.no_grad():
            target = torch.tanh(self.linear(x))
            with torch.enable_grad():
                y = self.linear(x * 0.5)
        return x + torch.tanh(y) * target


@PARTS.of(2)
class GradientWithin(Part):
    """The forward takes a gradient: of an energy to x, or to the weight."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.of_weight = draw.random() < 0.5

    def forward(self, x: Tensor, given: Given) -> Tensor:
        if x.is_inference():
            return x + 0.1
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            energy = torch.tanh(self.linear(inner)).sum()
            gradient, = torch.autograd.grad(energy, self.linear.weight if self.of_weight else inner)
        return x + torch.tanh(self.linear(x)) * gradient.mean()


@PARTS.of(3)
class FunctionalCall(Part):
    """functional_call of its own linear with a weight that is made of the weight."""

    def forward(self, x: Tensor, given: Given) -> Tensor:
        weights = {"weight": self.linear.weight * 1.01}
        return x + torch.tanh(torch.func.functional_call(self.linear, weights, (x,)))


@PARTS.of(1)
class FunctionTransforms(Part):
    """vmap and grad of torch.func over the rows."""

    def forward(self, x: Tensor, given: Given) -> Tensor:
        each = torch.func.vmap(torch.func.grad(lambda row: torch.tanh(self.linear(row)).sum()))
        return x + 0.1 * each(x) + torch.tanh(self.linear(x))


@PARTS.of(2)
class YieldsLayers(Part):
    """Sublayers come out of a Python generator while they are computed."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.second = nn.Linear(WIDTH, WIDTH)

    def _outputs(self, x: Tensor) -> Any:
        for layer in (self.linear, self.second):
            x = torch.tanh(layer(x))
            yield x

    def forward(self, x: Tensor, given: Given) -> Tensor:
        return x + sum(self._outputs(x))


@PARTS.of(2)
class Sparse(Part):
    """An embedding looked up by the largest element of each row, and a sparse product."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.table, self.sparse = nn.Embedding(WIDTH, WIDTH), draw.random() < 0.3

    def forward(self, x: Tensor, given: Given) -> Tensor:
        y = x + self.table(x.detach().argmax(1))
        if self.sparse:
            at = torch.tensor([[0, 1, 2], [2, 0, 3]])
            weight = torch.sparse_coo_tensor(at, self.linear.bias[:3], (WIDTH, WIDTH))
            y = y + torch.sparse.mm(weight, y.float().t()).t()
        return y + torch.tanh(self.linear(y))


@PARTS.of(3)
class CallsShared(Part):
    """A module that several units call within their own forward, and that belongs to the model."""

    def join(self, model: Any, unit: int) -> None:
        self.others = [model.shared]

    def forward(self, x: Tensor, given: Given) -> Tensor:
        return x + torch.tanh(self.linear(torch.tanh(self.others[0](x))))


@PARTS.of(2)
class CallsAnotherUnit(Part):
    """A part of another unit is called within this one's forward."""

    def join(self, model: Any, unit: int) -> None:
        before = [part for each in list(model.units)[:unit] for part in each.parts]
        self.others = [each for each in before if isinstance(each, Linear)][-1:]

    def forward(self, x: Tensor, given: Given) -> Tensor:
        for each in self.others:
            x = each(x, given)
        return x + torch.tanh(self.linear(x))


@PARTS.of(2)
class CopiesContainer(Part):
    """copy.deepcopy of a container of its activations, which it then changes."""

    def forward(self, x: Tensor, given: Given) -> Tensor:
        import copy
        y = torch.tanh(self.linear(x))
        kept = {"y": y.detach(), "more": [x.detach(), 3]}
        other = copy.deepcopy(kept)
        other["y"].mul_(0.5)
        return x + y * other["y"] + kept["y"] * 0.1
