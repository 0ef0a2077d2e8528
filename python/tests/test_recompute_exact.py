"""What a unit does when its forward runs again, and what of it a program must not see: it is put back, or named."""
from __future__ import annotations

import array
import functools

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import penstock
import small_models as small
from compare import adamw
from cores import test_core
from penstock.weights.bits import number_of
from twice import check, managed, step

WAYS = {"given up": dict(activations="auto", room=lambda: 0.0), "recompute": dict(activations="recompute")}
by_way = pytest.mark.parametrize("way", WAYS)
Tensor = torch.Tensor


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, seen=lambda model: None):
    return [step(model, optimizer, number) for number in range(4)], seen(model)


def check_stack(block, way: str, seen=lambda model: None) -> None:
    check(lambda model, optimizer: trained(model, optimizer, seen), make=lambda: small.Stack(block=block),
          settings=penstock.Settings(**WAYS[way]))


class Counter:
    count = 0

    def __call__(self) -> int:
        self.count += 1
        return self.count


class Slots:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Counts(small.Block):
    """In everything that a number can be kept in."""

    def __init__(self) -> None:
        super().__init__()
        self.called, self.slots, self.array, self.bytes = Counter(), Slots(), numpy.zeros(3), bytearray(4)
        self._list, self._dict, self.state = [], {}, numpy.random.RandomState(3)

    def forward(self, x: Tensor) -> Tensor:
        self.called()
        self.slots.count += 1
        self.array[1] += 1
        self.bytes[2] += 1
        self._list.append(1)
        self._dict["calls"] = self._dict.get("calls", 0) + 1
        return super().forward(x) * float(1 + 0.01 * self.state.randn())

    def counts(self):
        return (self.called.count, self.slots.count, self.array.tolist(), bytes(self.bytes), len(self._list), self._dict)


@by_way
def test_numbers_that_are_kept_anywhere_count_once(way):
    check_stack(Counts, way, lambda model: [each.counts() for each in model.blocks])


class Uncounted(small.Block):
    """Buffers that are changed without torch's counting it."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("load", "mean", "seen"):
            self.register_buffer(name, torch.zeros(small.WIDTH))
        self.register_buffer("variance", torch.ones(small.WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        self.load.data += 1
        self.seen.numpy()[0] += 1
        flat = F.batch_norm(x.flatten(0, 1), self.mean, self.variance, training=True)
        return super().forward(flat.view_as(x))


@by_way
def test_buffers_that_change_without_a_count_change_once(way):
    check_stack(Uncounted, way)


class UncountedLater(small.Block):
    """Only behind the calls in which such changes are looked for."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("load", torch.zeros(small.WIDTH))
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > 3:
            self.load.data += 1
        return super().forward(x)


@by_way
def test_they_change_once_too_where_nobody_looks_for_it_any_more(way):
    check_stack(UncountedLater, way)


class Given(small.Stack):
    """Whose blocks are given a normalization that is a unit of its own."""

    def __init__(self) -> None:
        super().__init__(block=GivenBlock)
        self.norms = nn.ModuleList([nn.BatchNorm1d(small.WIDTH)])

    def run(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, self.norms[0])
        return x


class GivenBlock(small.Block):
    def forward(self, x: Tensor, norm: nn.Module) -> Tensor:
        return super().forward(norm(x.flatten(0, 1)).view_as(x))


@by_way
def test_a_unit_that_a_unit_is_given_is_put_back_too(way):
    check(trained, make=Given, settings=penstock.Settings(**WAYS[way]))


class Shuffles(small.Block):
    """By a generator that nobody can find."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y[..., torch.randperm(small.WIDTH, generator=HIDDEN[0])]


HIDDEN = [torch.Generator()]


@by_way
def test_the_same_values_in_another_order_are_other_values(way):
    assert number_of(torch.arange(8.0)) != number_of(torch.arange(8.0).flip(0))
    assert number_of(torch.ones(8)) != number_of(-torch.ones(8))
    HIDDEN[0] = torch.Generator().manual_seed(1)
    engine = managed(lambda: small.Stack(block=Shuffles), settings=penstock.Settings(**WAYS[way]))
    with pytest.raises(penstock.ExactnessError, match="output 0 has other values.*'keep'"):
        trained(engine, engine.optimizer)


@by_way
def test_a_tensor_with_its_graph_that_goes_elsewhere_a_second_time_is_named(way):
    losses: list[Tensor] = []

    class Routed(small.Block):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            losses.append(y.square().mean())
            return y
    engine = managed(lambda: small.Stack(block=Routed), settings=penstock.Settings(**WAYS[way]))
    with pytest.raises(penstock.ExactnessError, match="gave a tensor with its graph to something outside"):
        trained(engine, engine.optimizer)
    losses.clear()
    check(lambda model, optimizer: trained(model, optimizer, lambda _: losses.clear()), make=lambda: small.Stack(block=Routed),
          settings=penstock.Settings(activations="keep"))


class Inner(nn.Module):
    """Differentiates what two blocks of its model give, within its forward."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = [model]

    def forward(self, x: Tensor) -> Tensor:
        point = x.detach().requires_grad_()
        first, second = self.model[0].blocks[:2]
        gradient, = torch.autograd.grad(second(first(point)).square().sum(), point)
        return first(x) + 0.1 * gradient


class OfTwo(small.Stack):
    def __init__(self) -> None:
        super().__init__(block=lambda: small.Block(dropout=0.0))
        self.inner = nn.ModuleList([Inner(self)])

    def run(self, x: Tensor) -> Tensor:
        return x + self.inner[0](x)


@by_way
def test_units_that_no_graph_needs_keep_no_memory_of_weights(way):
    check(trained, make=OfTwo, settings=penstock.Settings(**WAYS[way]))


@by_way
def test_a_unit_may_call_another_model(way):
    def run(is_managed: bool):
        torch.manual_seed(0)
        guide = small.Stack()
        torch.manual_seed(1)

        class Guided(small.Block):
            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x) + 0.1 * guide.run(x)
        model = small.Stack(block=Guided)
        if is_managed:
            engines = [penstock.initialize(each, adamw(each.parameters()), core=test_core(),
                                           settings=penstock.Settings(**WAYS[way]))[1] for each in (guide, model)]
        else:
            engines = [adamw(each.parameters()) for each in (guide, model)]
        torch.manual_seed(2)
        losses = []
        for number in range(3):
            loss = small.loss(model, small.ids(number))
            loss.backward()
            for each in engines:
                each.step()
                each.zero_grad()
            losses.append(loss.item())
        return losses
    assert run(True) == run(False)


@by_way
def test_outputs_of_all_kinds_are_compared(way):
    class Odd(small.Block):
        def forward(self, x: Tensor):
            y = super().forward(x)
            return y, float("nan"), y.detach().to(torch.float8_e4m3fn), torch.arange(3).to(torch.uint32)

    class Odds(small.Stack):
        def run(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = block(x)[0]
            return x
    check(trained, make=lambda: Odds(block=Odd), settings=penstock.Settings(**WAYS[way]))


@by_way
def test_what_is_differentiated_forward_is_kept(way):
    class Forward(small.Block):
        def forward(self, x: Tensor) -> Tensor:
            _, along = torch.func.jvp(super().forward, (x,), (torch.ones_like(x),))
            return super().forward(x) + 0.1 * along
    check_stack(lambda: Forward(dropout=0.0), way)


@pytest.mark.parametrize("transform", ["grad", "hessian", "vmap"])
def test_transforms_within_a_unit_over_its_own_weights(transform):
    class Transformed(small.Block):
        def __init__(self) -> None:
            super().__init__(dropout=0.0)
            self.gate = nn.Parameter(torch.randn(small.WIDTH, small.WIDTH) / 3)

        def score(self, row: Tensor) -> Tensor:
            return torch.tanh(row @ self.gate).square().sum()

        def forward(self, x: Tensor) -> Tensor:
            rows = x.flatten(0, 1)
            if transform == "grad":
                y = torch.func.grad(lambda z: torch.tanh(z @ self.gate).square().sum())(rows)
            elif transform == "vmap":
                y = torch.func.vmap(torch.func.grad(self.score))(rows)
            else:
                y = rows @ torch.func.hessian(self.score)(rows[0])
            return x + 0.1 * y.view_as(x)  # no other node of the unit has saved a weight
    for way in ({}, *WAYS.values()):
        check(trained, make=lambda: small.Stack(block=Transformed), settings=penstock.Settings(**way))


@pytest.mark.parametrize("read", ["one", "two units"])
def test_a_logger_within_a_transform_reads_weights_of_other_units(read):
    class Transformed(small.Block):
        def forward(self, x: Tensor) -> Tensor:
            rows = torch.func.vmap(torch.func.grad(lambda row: torch.tanh(self.linear(row)).sum()))(x.flatten(0, 1))
            return super().forward(x) + rows.view_as(x)

    def program(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
        told: list[float] = []
        others = [model.head.weight] if read == "one" else [model.head.weight, model.blocks[2].linear.weight]

        def log(*_: object) -> None:
            with torch.no_grad():
                told.extend(float(each.norm()) for each in others)
        model.blocks[0].linear.register_forward_hook(log)
        return [*trained(model, optimizer), *told]
    check(program, make=lambda: small.Stack(block=Transformed))


class Divides(torch.autograd.Function):
    """Of the gradient alone."""

    @staticmethod
    def forward(ctx, x, by):
        ctx.save_for_backward(by)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient / ctx.saved_tensors[0], None


@by_way
def test_a_buffer_that_the_gradient_alone_reads_is_put_back_though_nothing_counts_its_changes(way):
    class Scales(small.Block):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            self.mean.data.mul_(0.9).add_(0.1 * y.detach().abs().mean())
            return Divides.apply(y, self.mean.clone())
    check_stack(Scales, way)


@by_way
def test_a_backward_within_a_forward_counts_once(way):
    """A loss of each block's own, as greedy training has it; what goes on is detached, or not."""
    for goes_on in (True, False):
        class Local(small.Block):
            def forward(self, x: Tensor) -> Tensor:
                y = super().forward(x)
                if torch.is_grad_enabled():
                    super().forward(x.detach()).square().mean().backward()
                return y if goes_on else y.detach().requires_grad_()
        check_stack(Local, way)


@by_way
@pytest.mark.parametrize("where", ["weight", "weight each time", "accumulated", "backward", "before backward"])
def test_hooks_that_a_forward_registers_are_there_once(where, way):
    class Registers(small.Block):
        handle = None

        def forward(self, x: Tensor) -> Tensor:
            weight = self.linear.weight
            if where == "weight each time" and self.handle is not None:
                self.handle.remove()
            if self.handle is None or where == "weight each time":
                self.handle = {
                    "weight": lambda: weight.register_hook(lambda g: g * 0.5),
                    "weight each time": lambda: weight.register_hook(lambda g: g * 0.5),
                    "accumulated": lambda: weight.register_post_accumulate_grad_hook(lambda each: each.grad.mul_(0.5) is None or None),
                    "backward": lambda: self.linear.register_full_backward_hook(lambda _, given, __: (given[0] * 0.5,)),
                    "before backward": lambda: self.linear.register_full_backward_pre_hook(lambda _, g: (g[0] * 0.5,))}[where]()
            return super().forward(x)
    check_stack(Registers, way)


@by_way
def test_what_is_bound_in_attributes_counts_once(way):
    class Bound(small.Block):
        def __init__(self) -> None:
            super().__init__()
            self.counter, self.array = Counter(), array.array("d", [0.0, 0.0])
            self.method, self.part = Counter().__call__, functools.partial(Counter())
            self.deep: dict = {"a": [{"b": [{"c": {"count": 0}}]}]}

        def forward(self, x: Tensor) -> Tensor:
            self.array[1] += 1
            self.deep["a"][0]["b"][0]["c"]["count"] += 1
            count = self.method() + self.part() + self.array[1] + self.deep["a"][0]["b"][0]["c"]["count"]
            return super().forward(x) * (1 + 0.01 * count)
    check_stack(Bound, way, lambda model: [(each.method(), each.part(), each.array.tolist(), each.deep) for each in model.blocks])


@by_way
def test_a_model_that_is_one_unit_is_recomputed(way):
    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.linear, self.drop = nn.Parameter(torch.randn(8)), nn.Linear(8, 8), nn.Dropout(0.1)

        def forward(self, x: Tensor) -> Tensor:
            return self.drop(torch.tanh(self.linear(x))) * self.scale

    def program(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
        return [step(model, optimizer, number, lambda own, x: own(x).square().mean(),
                     lambda at: torch.randn(4, 8, generator=torch.Generator().manual_seed(at))) for number in range(3)]
    check(program, make=One, settings=penstock.Settings(**WAYS[way]))
    engine = managed(One, settings=penstock.Settings(activations="recompute"))  # one call is never given up for itself
    engine(torch.randn(4, 8)).sum().backward()
    assert engine.activations.recomputes == 1 and not engine.activations.refused
