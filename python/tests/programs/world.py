"""A program's model and optimizer as its script sees them: plain torch's, or managed."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from .model import Model
from .notes import attributes, random_states, rendered, seed_all
from .part import RAN
from .program import Program

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda given: torch.optim.SGD(given, lr=0.05, foreach=False),
    "momentum": lambda given: torch.optim.SGD(given, lr=0.02, momentum=0.9, weight_decay=0.01, foreach=False),
    "adamw": lambda given: torch.optim.AdamW(given, lr=1e-2, weight_decay=0.1, foreach=False),
    "adam": lambda given: torch.optim.Adam(given, lr=1e-2, foreach=False),
    "adagrad": lambda given: torch.optim.Adagrad(given, lr=1e-2, foreach=False),
}


class World:
    """`numbers` are what training gives, in its order: losses, and what the script draws from it. `seen` is what hooks
    and forwards wrote down outside of the model. `undo` is called at the end, whatever happens."""

    def __init__(self, program: Program) -> None:
        seed_all(program.seed)
        RAN.clear()
        self.program, self.accumulation = program, 1
        self.model = Model(program)
        self.optimizer = OPTIMIZERS[program.optimizer](list(self.model.parameters()))
        self.numbers: list[str] = []
        self.seen: list[Any] = []
        self.undo: list[Callable[[], Any]] = []
        self.data = torch.Generator().manual_seed(program.seed + 1) if program.seed % 2 else None
        self.micro_steps = 0

    def note(self, label: str, value: Any) -> None:
        self.numbers.append(f"{label} {rendered(value)}")

    def see(self, value: Any) -> None:
        """May be called within a forward or backward; tensors are taken as they are then."""
        self.seen.append(value.detach().clone() if isinstance(value, torch.Tensor) else value)

    def example(self, step: int, rows: int = 0) -> torch.Tensor:
        return self.model.example(rows or 5 + (step % 2 if self.program.seed % 3 == 0 else 0), self.data)

    # What the script does by one of two loops.
    def manage(self) -> None:
        """penstock.initialize(), where it is managed."""

    def __call__(self, data: torch.Tensor) -> torch.Tensor:
        return self.model(data)  # type: ignore[no-any-return]

    def backward(self, loss: torch.Tensor, **options: Any) -> None:
        if self.program.loop == "engine" and self.accumulation > 1:
            loss = loss / self.accumulation
        loss.backward(**options)

    def update(self) -> None:
        self.micro_steps += 1
        if self.program.loop == "engine" and self.micro_steps % self.accumulation:
            return
        self.optimizer.step()
        self.optimizer.zero_grad()

    # Weights between steps.
    def names(self) -> list[str]:
        return [name for name, _ in self.model.named_parameters()]

    def weight(self, name: str) -> torch.Tensor:
        return self.model.get_parameter(name).detach().clone()

    @torch.no_grad()
    def change(self, name: str, factor: float) -> None:
        self.model.get_parameter(name).mul_(factor)

    def state(self) -> Iterable[tuple[str, torch.Tensor]]:
        return self.model.state_dict().items()

    def end(self) -> list[str]:
        """All that is compared, but what was seen."""
        states = random_states()
        persistent = {name: rendered(each) for name, each in self.state()}
        buffers = [f"buffer {name} {rendered(each)}" for name, each in self.model.named_buffers()]
        return [*self.numbers, *states, *(f"state {name} {each}" for name, each in persistent.items()), *buffers,
                *attributes(self.model)]

    def close(self) -> None:
        for each in reversed(self.undo):
            each()


def modules_of(world: World) -> list[nn.Module]:
    """Where hooks may be: units, their parts, linears within."""
    parts = world.model.all_parts()
    return [*world.model.units, *parts, *(each.linear for each in parts), world.model.head, world.model]
