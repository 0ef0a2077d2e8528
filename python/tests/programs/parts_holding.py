"""Parts that hold state from call to call, in each place where a module may have it."""
from __future__ import annotations

import collections
import itertools
import random
from typing import Any

import torch
from torch import nn

from .named import RARE
from .part import PARTS, WIDTH, Given, Part

Tensor = torch.Tensor


@PARTS.of(4)
class Counter(Part):
    """A number in an attribute counts the calls, and decides."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.calls = 0

    def forward(self, x: Tensor, given: Given) -> Tensor:
        self.calls += 1
        return x + torch.tanh(self.linear(x / (1 + 0.1 * self.calls)))


@PARTS.of(4)
class Collections(Part):
    """Lists, dicts, sets, deques in attributes, which the forward fills and reads."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.kind = draw.choice(("list", "dict", "set", "deque", "nested", "tuple", "tensors"))
        self.held: Any = {"list": [], "dict": {}, "set": set(), "deque": collections.deque(maxlen=5),
                          "nested": {"a": {"n": []}}, "tuple": (), "tensors": []}[self.kind]

    def forward(self, x: Tensor, given: Given) -> Tensor:
        held, value = self.held, round(float(x.detach().mean()), 3)
        if self.kind in ("list", "deque"):
            held.append(value)
        elif self.kind == "dict":
            held[f"call {len(held)}"] = value
        elif self.kind == "set":
            held.add(len(held))
        elif self.kind == "nested":
            held = held["a"]["n"]
            held.append(value)
        elif self.kind == "tuple":
            held = self.held = (*held, value)
        else:
            held.append(x.detach().mean(0))
            x = x + held[-1] * 0.1
        return x + torch.tanh(self.linear(x * (1 + 0.01 * len(held))))


@PARTS.of(4)
class Memory(Part):
    """Its last output is kept for the next call, detached."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.memory: Tensor | None = None
        self.whole = draw.random() < 0.3

    def forward(self, x: Tensor, given: Given) -> Tensor:
        y = x if self.memory is None else x + 0.1 * self.memory.mean(0)
        out = torch.tanh(self.linear(y))
        self.memory = out.detach()
        return x + out


@PARTS.of(3)
class MemoryWithGraph(Part):
    """Its last output is kept for the next call of the step with its graph: truncated backpropagation through time."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.memory: Tensor | None = None

    def begin(self, step: int) -> None:
        self.memory = None

    def forward(self, x: Tensor, given: Given) -> Tensor:
        y = x if self.memory is None else x + 0.1 * self.memory.mean(0)
        out = torch.tanh(self.linear(y))
        self.memory = out if torch.is_grad_enabled() else None
        return x + out


@PARTS.of(4)
class BufferInPlace(Part):
    """A running mean in a buffer, changed in place, persistent or not."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.register_buffer("mean", torch.zeros(WIDTH), persistent=draw.random() < 0.5)
        self.read = draw.choice(("before", "after"))

    def forward(self, x: Tensor, given: Given) -> Tensor:
        before = self.mean.clone()
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return x + torch.tanh(self.linear(x - (before if self.read == "before" else self.mean.clone())))


@PARTS.of(3)
class BufferRebound(Part):
    """A buffer that is replaced by a new one in each forward, and a tensor attribute that is no buffer."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.register_buffer("calls", torch.zeros(()))
        self.plain = torch.ones(WIDTH)

    def forward(self, x: Tensor, given: Given) -> Tensor:
        self.calls = self.calls + 1
        out = torch.tanh(self.linear(x)) * self.plain / self.calls
        self.plain = self.plain * 0.99
        return x + out


@PARTS.of(3)
class TensorAttribute(Part):
    """A tensor in an attribute, or in a list in one, changed in place."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.scale, self.listed = torch.ones(WIDTH), [torch.zeros(WIDTH)]

    def forward(self, x: Tensor, given: Given) -> Tensor:
        self.scale.mul_(0.98)
        self.listed[0].add_(0.1)
        return x + torch.tanh(self.linear(x)) * self.scale.clone() + self.listed[0].clone()


@PARTS.of(5)
class BatchNorm(Part):
    """BatchNorm, with a running mean or a cumulative one; now and then in evaluation from inside the forward."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.norm = nn.BatchNorm1d(WIDTH, momentum=draw.choice((0.1, 0.3, None)))
        self.every = draw.choice((0, 0, 0, 2))
        self.calls = 0

    def forward(self, x: Tensor, given: Given) -> Tensor:
        if self.every:
            self.calls += 1
            self.norm.train(self.training and self.calls % self.every != 0)
        return x + torch.relu(self.norm(self.linear(x)))


@PARTS.of(3)
class GrowingBuffer(Part):
    """A cache that grows with each call of a step, in a buffer that is not persistent or in an attribute."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.as_buffer = draw.random() < 0.5
        self._forget()

    def _forget(self) -> None:
        if self.as_buffer:
            self.register_buffer("cache", torch.zeros(1, WIDTH), persistent=False)
        else:
            self.cache = torch.zeros(1, WIDTH)

    def begin(self, step: int) -> None:
        if step % 2:
            self._forget()

    def forward(self, x: Tensor, given: Given) -> Tensor:
        self.cache = torch.cat([self.cache, x.detach()[:1]])
        return x + torch.tanh(self.linear(x + self.cache.mean(0)))


@PARTS.of(3)
class MadeAtTheFirstCall(Part):
    """What it needs is made in its first forward and kept: a table, and how long it is."""

    table: Any = None

    def forward(self, x: Tensor, given: Given) -> Tensor:
        if self.table is None or self.table.shape[0] < x.shape[0]:
            self.table = torch.rand(x.shape[0] + 1, WIDTH)
        return x + torch.tanh(self.linear(x)) * self.table[:x.shape[0]]


@PARTS.of(RARE)
class Iterator(Part):
    """An iterator in an attribute gives the next factor at each call."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        factors = [0.5, 1.0, 1.5, 2.0]
        draw.shuffle(factors)
        generates = draw.random() < 0.5
        self.factors = (each for _ in range(99) for each in factors) if generates else itertools.cycle(factors)

    def forward(self, x: Tensor, given: Given) -> Tensor:
        return x + torch.tanh(self.linear(x * next(self.factors)))


@PARTS.of(RARE)
class StateInClosure(Part):
    """A number in a closure counts the calls, and decides."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        calls = [0]

        def count() -> int:
            calls[0] += 1
            return calls[0]
        self.count = count

    def forward(self, x: Tensor, given: Given) -> Tensor:
        return x + torch.tanh(self.linear(x / (1 + 0.1 * self.count())))


@PARTS.of(2)
class StateInObject(Part):
    """A number of an object in an attribute, or in a dict in one, counts the calls, and decides."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.box, self.beneath = Box(), draw.random() < 0.5
        self.boxes = {"box": self.box}

    def forward(self, x: Tensor, given: Given) -> Tensor:
        box = self.boxes["box"] if self.beneath else self.box
        box.number += 1
        return x + torch.tanh(self.linear(x / (1 + 0.1 * box.number)))


class Box:
    """An object of the program's own."""

    def __init__(self) -> None:
        self.number = 0


@PARTS.of(5)
class Adapter(Part):
    """Which of two linears is used stands in an attribute that the script switches between two forwards."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.other, self.active, self.scale = nn.Linear(WIDTH, WIDTH), "one", 1.0

    def switch(self) -> None:
        self.active, self.scale = ("two", 0.5) if self.active == "one" else ("one", 1.0)

    def forward(self, x: Tensor, given: Given) -> Tensor:
        return x + torch.tanh((self.linear if self.active == "one" else self.other)(x)) * self.scale


@PARTS.of(3)
class Task(Part):
    """A dict, a list and a flag say what the forward does; the script changes them between two forwards, in place."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.options, self.scales, self.fast = {"task": "a"}, [1.0, 0.5], True

    def switch(self) -> None:
        self.options["task"] = "b" if self.options["task"] == "a" else "a"
        self.scales.reverse()
        self.fast = not self.fast

    def forward(self, x: Tensor, given: Given) -> Tensor:
        y = self.linear(x) * self.scales[0]
        return x + (torch.tanh(y) if self.options["task"] == "a" else torch.sigmoid(y)) * (1.0 if self.fast else 0.9)


@PARTS.of(2)
class Raises(Part):
    """Raises where the script says so, after it has computed; the script catches it and goes on."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.fails, self.tried = False, 0

    def forward(self, x: Tensor, given: Given) -> Tensor:
        self.tried += 1
        y = x + torch.tanh(self.linear(x / self.tried))
        if self.fails:
            raise KeyError("raised in a forward")
        return y


@PARTS.of(2)
class FillsCallersList(Part):
    """It appends to a list, and changes a field of an object, that the caller gave it; else to its own."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.own: list[Any] = []

    def begin(self, step: int) -> None:
        self.own.clear()

    def forward(self, x: Tensor, given: Given) -> Tensor:
        y = torch.tanh(self.linear(x))
        fills = self.own if given.fills is None else given.fills
        fills.append(y)
        if given.box is not None:
            given.box.number += 1
            y = y / given.box.number
        return x + y * len(fills)
