"""Programs whose units hold state, or read it, in one of the places that programs have: each gives a Training."""
from __future__ import annotations

import collections
import dataclasses
import random
import types
from typing import Any

import torch
from torch import nn

import small_models as small
from compare import Training

W = small.WIDTH


def training(make: Any, loss: Any = small.loss, count: int = 4) -> Training:
    return Training(make, [small.ids(i) for i in range(count)], loss)


def stack_of(block: type[nn.Module], **options: Any) -> Any:
    return lambda: small.Stack(block=block, **options)


def inner_of(model: nn.Module) -> Any:
    return getattr(model, "module", model)


class Memory(small.Block):
    """Reads what it gave last."""

    memory: torch.Tensor | None = None
    kept = staticmethod(torch.Tensor.detach)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x if self.memory is None else x + self.memory)
        self.memory = self.kept(y)
        return y


def an_attribute_that_is_switched_between_forwards() -> Training:
    class Task(small.Block):
        def __init__(self) -> None:
            super().__init__()
            self.parts, self.task = nn.ModuleDict({"a": nn.Linear(W, W), "b": nn.Linear(W, W)}), "a"

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(torch.tanh(self.parts[self.task](x)))

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(())
        for task in "ab":
            for block in inner_of(model).blocks:
                block.task = task
            total = total + small.loss(model, batch)
        return total
    return training(stack_of(Task), loss)


def a_flag_deep_within_a_unit() -> Training:
    class Scaled(small.Block):
        def __init__(self) -> None:
            super().__init__()
            self.linear.double_it = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * (2 if self.linear.double_it else 1)

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        first = small.loss(model, batch)
        for block in inner_of(model).blocks:
            block.linear.double_it = not block.linear.double_it
        return first + small.loss(model, batch)
    return training(stack_of(Scaled), loss)


def training_mode_is_switched_before_backward() -> Training:
    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        model.train()
        value = small.loss(model, batch)
        model.eval()
        with torch.no_grad():
            reference = small.loss(model, batch)
        inner_of(model).blocks[0].train()
        return value + reference
    return training(small.Stack, loss)


def batch_norm_in_train_and_eval_before_one_backward() -> Training:
    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        first = small.loss(model, batch)
        model.eval()
        second = small.loss(model, batch.flip(0))
        model.train()
        return first + second
    return training(stack_of(small.Normed), loss)


def memory_between_calls() -> Training:
    return training(stack_of(Memory))


def memory_with_its_graph_within_a_step() -> Training:
    class WithGraph(Memory):
        kept = staticmethod(lambda y: y)

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        value = small.loss(model, batch) + small.loss(model, batch.flip(0))
        for block in inner_of(model).blocks:
            block.memory = None
        return value
    return training(stack_of(WithGraph), loss)


def a_counter_and_a_list_in_attributes() -> Training:
    class Counts(small.Block):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.seen, self.by = 0, [], {"calls": 0}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.by["calls"] += 2
            self.seen.append(self.calls)
            return super().forward(x) * (1 + 0.1 * len(self.seen)) / self.by["calls"]
    return training(stack_of(Counts))


def an_object_in_an_attribute() -> Training:
    class Counts(small.Block):
        def __init__(self) -> None:
            super().__init__()
            self.state = types.SimpleNamespace()
            self.own = Counter()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.own.count += 1
            return super().forward(x) / self.own.count
    return training(stack_of(Counts))


class Counter:
    def __init__(self) -> None:
        self.count = 0


def generators_of_its_own() -> Training:
    class Noise(small.Block):
        def __init__(self) -> None:
            super().__init__()
            self.torchs, self.pythons = torch.Generator().manual_seed(3), random.Random(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * torch.rand(W, generator=self.torchs) * self.pythons.random()
    return training(stack_of(Noise))


def outputs_behind_a_namespace() -> Training:
    class Gives(small.Block):
        def __init__(self) -> None:
            super().__init__()
            self.noise = torch.Generator().manual_seed(3)

        def forward(self, x: torch.Tensor) -> Any:
            y = super().forward(x) * torch.rand(W, generator=self.noise)
            return types.SimpleNamespace(x=y, parts=Batch(self.linear.weight[0]), all={"scale": self.linear.bias.view(1, -1)})

    class Model(small.Stack):
        def __init__(self) -> None:
            super().__init__(block=Gives)

        def run(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                given = block(x)
                x = given.x * given.parts.value + given.all["scale"]
            return x
    return training(Model)


def state_deep_within_attributes() -> Training:
    class Deep(small.Block):
        def __init__(self) -> None:
            super().__init__()
            self.state: dict[str, Any] = {"noise": [torch.Generator().manual_seed(6)], "calls": {"count": [0]}}
            self.last = collections.deque([torch.zeros(W)], maxlen=2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.state["calls"]["count"][0] += 1
            self.last[-1].add_(self.state["calls"]["count"][0])
            self.last.append(torch.rand(W, generator=self.state["noise"][0]))
            return super().forward(x + self.last[0].clone())
    return training(stack_of(Deep))


def generators_that_it_is_given() -> Training:
    class Noise(small.Block):
        def forward(self, x: torch.Tensor, noise: torch.Generator) -> torch.Tensor:
            return super().forward(x) * torch.rand(W, generator=noise)

    class Model(small.Stack):
        def __init__(self) -> None:
            super().__init__(block=Noise)
            self.noise = torch.Generator().manual_seed(1)

        def run(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x, noise=self.noise)
            return x
    return training(Model)


def a_generator_that_it_is_given_and_has() -> Training:
    class Noise(small.Block):
        noise: torch.Generator

        def forward(self, x: torch.Tensor, noise: torch.Generator) -> torch.Tensor:
            return super().forward(x) * torch.rand(W, generator=noise)

    class Model(small.Stack):
        def __init__(self) -> None:
            super().__init__(block=Noise)
            self.noise = torch.Generator().manual_seed(1)
            for block in self.blocks:
                block.noise = self.noise

        def run(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x, self.noise)
            return x
    return training(Model)


def numpys_generators() -> Training:
    import numpy

    class Noise(small.Block):
        def __init__(self) -> None:
            super().__init__()
            self.noise = numpy.random.default_rng(5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * float(self.noise.random()) * float(1 + numpy.random.randn())
    return training(stack_of(Noise))


def an_input_that_is_changed_in_place() -> Training:
    class InPlace(small.Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(nn.functional.silu(x, inplace=True))
    return training(stack_of(InPlace))


def a_residual_that_is_added_in_place() -> Training:
    class InPlace(small.Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x += torch.tanh(self.linear(self.norm(x.clone())))
            return x
    return training(stack_of(InPlace))


@dataclasses.dataclass
class Batch:
    value: torch.Tensor
    scale: float = 1.0


@dataclasses.dataclass(frozen=True)
class Frozen:
    parts: list[torch.Tensor]


class Pair(collections.namedtuple("Pair", "first second")):
    pass


def a_dataclass_whose_field_is_set_between_units() -> Training:
    class Reads(small.Block):
        def forward(self, batch: Batch) -> torch.Tensor:
            return super().forward(batch.value) * batch.scale

    class Model(small.Stack):
        def __init__(self) -> None:
            super().__init__(block=Reads)

        def run(self, x: torch.Tensor) -> torch.Tensor:
            batch = Batch(x)
            for block in self.blocks:
                batch.value = block(batch)
                batch.scale *= 0.9
            return batch.value
    return training(Model)


def containers_that_pytree_does_not_know() -> Training:
    class Reads(small.Block):
        def forward(self, frozen: Frozen, mapping: Any, space: Any, pair: Pair) -> torch.Tensor:
            frozen.parts.append(frozen.parts[-1] * 2)
            mapping["count"] += 1
            space.total = space.total + pair.second
            return super().forward(frozen.parts[0]) * mapping["count"] + space.total

    class Model(small.Stack):
        def __init__(self) -> None:
            super().__init__(block=Reads)

        def run(self, x: torch.Tensor) -> torch.Tensor:
            mapping, space = collections.UserDict(count=0), types.SimpleNamespace(total=torch.zeros(()))
            for block in self.blocks:
                x = block(Frozen([x]), mapping, space, Pair(x, 0.1))
            return x + mapping["count"]
    return training(Model)


def a_dictionary_that_units_fill() -> Training:
    class Writes(small.Block):
        def forward(self, x: torch.Tensor, state: dict[str, Any]) -> torch.Tensor:
            y = super().forward(x + state["last"])
            state["last"] = torch.tanh(y)
            state["all"].append(y.mean())
            return y

    class Model(small.Stack):
        def __init__(self) -> None:
            super().__init__(block=Writes)

        def run(self, x: torch.Tensor) -> torch.Tensor:
            state: dict[str, Any] = {"last": x * 0.5, "all": []}
            for block in self.blocks:
                x = block(x, state)
            return x + sum(state["all"])
    return training(Model)


def the_same_tensor_twice() -> Training:
    class Asks(small.Block):
        def forward(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
            return super().forward(query) if query is key else super().forward(query) + torch.sigmoid(key)

    class Model(small.Stack):
        def __init__(self) -> None:
            super().__init__(block=Asks)

        def run(self, x: torch.Tensor) -> torch.Tensor:
            for at, block in enumerate(self.blocks):
                x = block(x, x if at % 2 else x.clone())
            return x
    return training(Model)


def hooks_with_a_statistic_of_their_module() -> Training:
    def count(module: Any, _: Any, output: torch.Tensor) -> torch.Tensor:
        module.seen = getattr(module, "seen", 0) + 1
        return output * (1 + 0.01 * module.seen)

    def make() -> nn.Module:
        model = small.Stack()
        for block in model.blocks:
            block.linear.register_forward_hook(count)
            block.register_forward_hook(count)
        return model

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return small.loss(model, batch) * (1 + 0.01 * inner_of(model).blocks[0].linear.seen)
    return training(make, loss)


def hooks_that_come_and_go() -> Training:
    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        block = inner_of(model).blocks[1]
        handle = block.register_forward_pre_hook(lambda m, args: (args[0] * 1.5,))
        value = small.loss(model, batch)
        handle.remove()
        return value + small.loss(model, batch.flip(1))
    return training(small.Stack, loss)


def old_weight_norm() -> Training:
    def make() -> nn.Module:
        model = small.Stack()
        for block in model.blocks:
            torch.nn.utils.weight_norm(block.linear)
        return model
    return training(make)


def old_weight_norm_of_the_unit_itself() -> Training:
    def make() -> nn.Module:
        model = small.Stack()
        model.head = torch.nn.utils.weight_norm(nn.Linear(W, 11))
        return model
    return training(make)


def spectral_norm_old_and_new() -> Training:
    def make() -> nn.Module:
        model = small.Stack()
        torch.nn.utils.spectral_norm(model.blocks[0].linear)
        torch.nn.utils.parametrizations.spectral_norm(model.blocks[1].linear)
        torch.nn.utils.parametrizations.weight_norm(model.blocks[2].linear)
        return model
    return training(make)


class Saves(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.x = x.detach() * 2
        return x * weight.sum()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return gradient * weight.sum() + 0 * ctx.x, torch.full_like(weight, (gradient * x).sum().item())


def a_function_that_keeps_tensors_on_its_context() -> Training:
    class Custom(small.Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.tanh(Saves.apply(super().forward(x), self.linear.weight))
    return training(stack_of(Custom))


def a_module_called_twice_under_autocast() -> Training:
    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return small.loss(model, batch)
    return training(small.Twice, loss)


def dropout_and_a_forward_within_backward() -> Training:
    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        inner = inner_of(model)
        x = inner.embedding(batch)
        y = inner.run(x)

        def again(gradient: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                return gradient + 0.1 * inner.blocks[0](gradient)
        y.register_hook(again)
        return nn.functional.cross_entropy(inner.head(inner.norm(y)).flatten(0, 1), batch.flatten())
    return training(small.Stack, loss)


def cached_gradients() -> Training:
    """A loss whose hook runs the model forward and backward, part by part."""
    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        inner = inner_of(model)
        for block in inner.blocks:
            block.dropout.p = 0.0
        parts = [batch, batch.flip(0)]
        with torch.no_grad():
            outputs = torch.cat([inner(each).flatten(0, 1) for each in parts]).requires_grad_()
        value = (outputs @ outputs.t()).pow(2).mean()
        gradient, = torch.autograd.grad(value, outputs)

        def again(scale: torch.Tensor) -> None:
            with torch.enable_grad():
                for each, part in zip(parts, gradient.split(10)):
                    ((inner(each).flatten(0, 1) * part).sum() * scale).backward()
        value = value.detach().requires_grad_()
        value.register_hook(again)  # type: ignore[arg-type]
        return value
    return training(small.Stack, loss)


KINDS = [each for each in list(globals().values())
         if isinstance(each, types.FunctionType) and each.__module__ == __name__
         and each not in (training, stack_of, inner_of)]
