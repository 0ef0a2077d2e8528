"""Modules of a few hundred parameters, each with one way of being awkward."""
from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH = 8


class Block(nn.Module):
    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(torch.tanh(self.linear(self.norm(x))))


class Stack(nn.Module):
    """Embedding, blocks, a head; `run` may be overridden."""

    def __init__(self, blocks: int = 3, block: type[nn.Module] = Block, tied: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, WIDTH)
        self.blocks = nn.ModuleList(block() for _ in range(blocks))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 11, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def run(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.run(self.embedding(ids))))


def ids(seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 11, (2, 5), generator=torch.Generator().manual_seed(seed))


def mean(output: torch.Tensor) -> torch.Tensor:
    return output.pow(2).mean()


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten())


def raising_before(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """loss() after a forward that raised."""
    broken = getattr(model, "module", model).blocks[1].linear.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model(batch)
    broken.remove()
    return loss(model, batch)


def gone_back_before(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """loss() after a backward through its graph, which is kept."""
    value = loss(model, batch)
    value.backward(retain_graph=True)
    return value


class Twice(Stack):
    def run(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks[1](self.blocks[0](self.blocks[1](self.blocks[2](x))))


class Skipping(Stack):
    """Layers are left out by Python's generator, others by torch's."""

    def run(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            if torch.rand(()) < 0.7:
                x = block(x)
        return x


class PythonNoise(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.linear(self.norm(x) * (1 + random.random())))


class Nested(nn.Module):
    """A unit with outputs in containers, an argument that it fills, and keyword arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, *, seen: list[Any], scale: dict[str, torch.Tensor]) -> dict[str, Any]:
        y = self.a(x) * scale["by"]
        seen.append(y)
        return {"x": x + torch.tanh(self.b(y)), "more": (y, [y.mean(), None, 3])}


class NestedStack(Stack):
    def __init__(self) -> None:
        super().__init__(block=Nested)

    def run(self, x: torch.Tensor) -> torch.Tensor:
        seen: list[torch.Tensor] = []
        extra = x.new_zeros(())
        for block in self.blocks:
            out = block(x, seen=seen, scale={"by": torch.tensor(0.5)})
            x, extra = out["x"], extra + out["more"][1][0]
        assert len(seen) == len(self.blocks)
        return x + extra + sum(seen)


class Sharing(Stack):
    """A module that others call within their own forward."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(WIDTH, WIDTH)
        for block in self.blocks:
            block.forward = lambda x, block=block: x + torch.tanh(  # type: ignore[method-assign]
                block.linear(torch.tanh(self.shared(block.norm(x)))))


class SharingWithin(Stack):
    """The same within a checkpoint that each block has of its own; `all_of_it`: its own weights are read there, too."""

    def __init__(self, reentrant: bool, all_of_it: bool) -> None:
        super().__init__()
        self.shared = nn.Linear(WIDTH, WIDTH)

        def of(block: Block) -> Any:
            def inner(x: torch.Tensor) -> torch.Tensor:
                y = torch.tanh(self.shared(x))
                return block.linear(y) if all_of_it else y

            def forward(x: torch.Tensor) -> torch.Tensor:
                y = checkpoint(inner, block.norm(x), use_reentrant=reentrant)
                return x + torch.tanh(y if all_of_it else block.linear(y))
            return forward
        for block in self.blocks:
            block.forward = of(block)


class Functional(Stack):
    """Weights that are read without their module being called."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.run(functional.embedding(ids, self.embedding.weight))
        return functional.linear(self.norm(x), self.head.weight)


class Direct(Stack):
    """Parameters of the model itself, beside units."""

    def __init__(self) -> None:
        super().__init__()
        self.bias, self.scale = nn.Parameter(torch.zeros(WIDTH)), nn.Parameter(torch.ones(()))

    def run(self, x: torch.Tensor) -> torch.Tensor:
        return super().run(x * self.scale) + self.bias


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.norm(self.linear(x).flatten(0, 1)).view_as(x))


class Experts(nn.Module):
    """Each token goes to one of four; some get none."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, 4)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, chosen = torch.softmax(self.gate(x[:1, :1]), -1).max(-1, keepdim=True)
        return x + weight[..., 0, 0] * self.experts[int(chosen)](x)


class Remembering(nn.Module):
    """A buffer that is replaced, not overwritten, and that the result depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls = self.calls + 1
        return x + self.linear(x) / self.calls


class Counting(Remembering):
    """The same, overwritten."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return x + self.linear(x / self.calls.clone())


class Checkpointing(Stack):
    """The user's own checkpoints: of each block, or of all at once."""

    def __init__(self, reentrant: bool, together: bool = False) -> None:
        super().__init__()
        self.reentrant, self.together = reentrant, together
        self.computed = [0, 0, 0]
        for at, block in enumerate(self.blocks):
            block.linear.register_forward_hook(lambda *_, at=at: self._count(at))

    def _count(self, at: int) -> None:
        self.computed[at] += 1

    def run(self, x: torch.Tensor) -> torch.Tensor:
        if self.together:
            return checkpoint(super().run, x, use_reentrant=self.reentrant)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


class Giving(Stack):
    """A unit gives its weight out, which others read: itself, a view or a part of a container."""

    def __init__(self, how: str) -> None:
        super().__init__(block=Scaled)
        self.gives = Gives(how)

    def run(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.gives()
        scale = scale["scale"] if isinstance(scale, dict) else scale
        for block in self.blocks:
            x = block(x, scale)
        return x


class Gives(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.scale, self.how = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH)), how

    def forward(self) -> torch.Tensor | dict[str, Any]:
        if self.how == "container":
            return {"scale": self.scale.view(1, -1), "width": WIDTH}
        return {"itself": self.scale, "view": self.scale[None], "detached": self.scale.detach()}[self.how]


class Scaled(Block):
    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * scale


class GoingBackThrough(Stack):
    """Within the backward of blocks another one's graph is gone back through."""

    def __init__(self) -> None:
        super().__init__(block=GoesBackThrough)
        self.blocks[0] = Block()

    def run(self, x: torch.Tensor) -> torch.Tensor:
        first = self.blocks[0](x.detach())
        for block in self.blocks[1:]:
            block.through = first
            x = block(x)
            block.through = None
        return x


class GoesBackThrough(Block):
    through: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        between, other = torch.tanh(self.linear(self.norm(x))), self.through
        if other is not None:  # it is no recompute
            between.register_hook(lambda gradient: other.backward(gradient, retain_graph=True))
        return x + self.linear(between)


class Asking(Stack):
    """Within the backward of blocks a hook calls another one, with gradients or without; `told` by what came out."""

    def __init__(self, gradients: bool) -> None:
        super().__init__(block=Asks)
        self.blocks[0] = Block(dropout=0.0)
        self.gradients = gradients
        self.told: list[float] = []

    def run(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks[1:]:
            block.ask = self.ask
            x = block(x)
            del block.ask
        return x

    def ask(self, gradient: torch.Tensor) -> torch.Tensor:
        with torch.set_grad_enabled(self.gradients):
            out = self.blocks[0](gradient)
        self.told.append(out.sum().item())
        return out.detach()


class Asks(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        between = torch.tanh(self.linear(self.norm(x)))
        if hasattr(self, "ask"):  # it is no recompute
            between.register_hook(self.ask)
        return x + self.linear(between)
