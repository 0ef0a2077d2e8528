"""The same training twice: by plain torch, and managed over a fake core. Bits are compared."""
from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import penstock
from cores import ACTIVATIONS, WITHIN_BACKWARD, test_core
from penstock.weights.bits import same_bits

Make = Callable[[], nn.Module]
Loss = Callable[[nn.Module, Any], torch.Tensor]
SEED = 11


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.1, foreach=False)


def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
    return model(**batch).loss


def seed() -> None:
    torch.manual_seed(SEED)
    random.seed(SEED)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(SEED)


@dataclass
class Trained:
    losses: list[float] = field(default_factory=list)
    state: dict[str, torch.Tensor] = field(default_factory=dict)
    after: float = 0.0  # the random state at the end, as a number
    core: Any = None
    engine: penstock.Engine | None = None


@dataclass
class Training:
    make: Make
    batches: Sequence[Any]
    loss: Loss = loss_of
    optimizer: Callable[[Any], torch.optim.Optimizer] = adamw
    accumulation: int = 1
    clip: float = 0.0  # by torch's function, where gradients are there after backward

    def __post_init__(self) -> None:
        if WITHIN_BACKWARD:
            self.clip = 0.0

    def plain(self) -> Trained:
        seed()
        model = self.make()
        optimizer = self.optimizer([each for each in model.parameters() if each.requires_grad])
        out = Trained()
        for at, batch in enumerate(self.batches, 1):
            loss = self.loss(model, batch)
            (loss / self.accumulation if self.accumulation > 1 else loss).backward()
            out.losses.append(loss.item())
            if at % self.accumulation == 0:
                if self.clip:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), self.clip)
                optimizer.step()
                optimizer.zero_grad()
        out.state, out.after = model.state_dict(), torch.rand(()).item()
        return out

    def managed(self, window_bytes: int | None = None, activations: Any = ACTIVATIONS, budget: int | None = None,
                settings: penstock.Settings | None = None, **options: Any) -> Trained:
        seed()
        model = self.make()
        optimizer = self.optimizer([each for each in model.parameters() if each.requires_grad])
        opener = test_core(window_bytes)
        engine, _, _, _ = penstock.initialize(model, optimizer, core=opener, settings=settings or penstock.Settings(
            accumulation=self.accumulation, activations=activations, graph_budget_bytes=budget), **options)
        out = Trained(engine=engine, core=opener.last)
        for batch in self.batches:
            loss = self.loss(engine, batch)
            engine.backward(loss)
            if engine.is_gradient_accumulation_boundary() and self.clip:
                torch.nn.utils.clip_grad_norm_(engine.module.parameters(), self.clip)
            engine.step()
            out.losses.append(loss.item())
        out.state, out.after = engine.state_dict(), torch.rand(()).item()
        return out

    def check(self, **options: Any) -> Trained:
        """Losses, weights, buffers and random states are the same bits; gives the managed one."""
        expected, found = self.plain(), self.managed(**options)
        differing = differences(expected, found)
        assert not differing, "; ".join(differing)
        return found


def differences(expected: Trained, found: Trained) -> list[str]:
    texts = []
    if expected.losses != found.losses:
        step = next(i for i, (a, b) in enumerate(zip(expected.losses, found.losses)) if a != b)
        texts.append(f"loss {step}: {expected.losses[step]!r} became {found.losses[step]!r}")
    if list(expected.state) != list(found.state):
        texts.append(f"names differ: {set(expected.state) ^ set(found.state)}")
    else:
        bad = [name for name, each in expected.state.items() if not same_bits(each, found.state[name])]
        if bad:
            texts.append(f"{len(bad)} of {len(expected.state)} tensors differ, first {bad[0]}")
    if expected.after != found.after:
        texts.append("the random state at the end differs")
    return texts


def masters_after(engine: penstock.Engine, batches: Iterable[Any], loss: Loss) -> dict[str, torch.Tensor]:
    for batch in batches:
        engine.backward(loss(engine, batch))
        engine.step()
    return dict(engine.named_weights("master"))


def weights_equal(a: Iterable[tuple[str, torch.Tensor]], b: Iterable[tuple[str, torch.Tensor]]) -> bool:
    return all(x[0] == y[0] and same_bits(x[1], y[1]) for x, y in zip(a, b, strict=True))
