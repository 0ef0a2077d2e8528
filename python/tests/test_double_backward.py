"""Gradients of gradients: penalties, forces, products with a Hessian, steps that are differentiated. Plain torch's bits."""
from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import penstock
import small_models as small
from cores import ACTIVATIONS
from test_given_up import RandomRoom
from twice import check, managed, step

WAYS = {"as it is": {}, "given up": dict(activations="auto", room=lambda: 0.0),
        "at random": dict(activations="auto", room=RandomRoom(3)), "recompute": dict(activations="recompute")}
Tensor = torch.Tensor


class Block(nn.Module):
    """Smooth, with everything whose gradient saves a weight, or a view of one."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear, self.gate = nn.LayerNorm(8), nn.Linear(8, 8), nn.Parameter(torch.randn(8, 8) / 3)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.linear(self.norm(x))) * torch.sigmoid(x @ self.gate)
        return x + self.drop(y)


class Critic(nn.Module):
    def __init__(self, block: type[nn.Module] = Block) -> None:
        super().__init__()
        self.blocks, self.head = nn.ModuleList(block() for _ in range(3)), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Convolved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(2, 2, 3, padding=1), nn.BatchNorm1d(2)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.softplus(self.norm(self.conv(x.view(-1, 2, 4)))).flatten(1)


class Evaluated(nn.Module):
    """Whose vectors change in place in training and are saved by a graph as they are in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.utils.spectral_norm(nn.Linear(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.linear(x))
        self.linear.eval()
        z = torch.tanh(self.linear(x))
        self.linear.train()
        return x + y * z


class Within(Block):
    """Of which a part is checkpointed."""

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(super().forward, x, use_reentrant=False)


def examples(number: int) -> Tensor:
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(number))


def trained(loss, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 4) -> list[float]:
    return [step(model, optimizer, number, loss, examples) for number in range(steps)]


def penalty(model: nn.Module, x: Tensor) -> Tensor:
    """Of Wasserstein GANs: on the gradient to points between what is real and what is not."""
    between = (x + 0.3 * x.flip(0)).requires_grad_()
    gradient, = torch.autograd.grad(model(between).sum(), between, create_graph=True)
    return model(x).mean() - model(x.flip(1)).mean() + 10 * (gradient.norm(2, dim=1) - 1).square().mean()


def penalty_on_real(model: nn.Module, x: Tensor) -> Tensor:
    """R1: the graph whose gradient is taken is gone back through, too."""
    x = x.clone().requires_grad_()
    out = model(x)
    gradient, = torch.autograd.grad(out.sum(), x, create_graph=True)
    return F.softplus(-out).mean() + 0.5 * gradient.square().sum(1).mean()


def forces(model: nn.Module, x: Tensor) -> Tensor:
    """The loss is over energies and their gradients."""
    places = x.clone().requires_grad_()
    energy = model(places).sum()
    force = -torch.autograd.grad(energy, places, create_graph=True)[0]
    return (force - x.sin()).square().mean() + energy.square() * 1e-3


def gradients_of_weights(model: nn.Module, x: Tensor) -> Tensor:
    weights = list(model.parameters())
    loss = model(x).square().mean()
    gradients = torch.autograd.grad(loss, weights, create_graph=True)
    return loss + 0.1 * sum(each.square().sum() for each in gradients)


def product_with_the_hessian(model: nn.Module, x: Tensor) -> Tensor:
    weights = [each for each in model.parameters() if each.dim() > 1]
    loss = model(x).square().mean()
    gradients = torch.autograd.grad(loss, weights, create_graph=True)
    along = torch.autograd.grad(gradients, weights, [torch.ones_like(each) for each in gradients], retain_graph=True)
    return loss + 1e-3 * sum((each * other).sum() for each, other in zip(gradients, along))


def three_deep(model: nn.Module, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    first, = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    second, = torch.autograd.grad(first.square().sum(), x, create_graph=True)
    return second.square().mean() + model(x).mean()


def a_step_within(model: nn.Module, x: Tensor) -> Tensor:
    """MAML: the loss after a step, back to the weights before it."""
    weights = dict(model.named_parameters())
    loss = model(x).square().mean()
    gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
    moved = {name: each - 0.1 * own for (name, each), own in zip(weights.items(), gradients)}
    return torch.func.functional_call(model, moved, (x.flip(0),)).square().mean()


def by_backward_to_the_input(model: nn.Module, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    model(x).sum().backward(create_graph=True, inputs=[x])
    gradient, x.grad = x.grad, None
    return gradient.square().mean() + model(x.detach()).mean()


def of_a_unit_called_twice(model: nn.Module, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    out = model.head(model.blocks[0](model.blocks[1](model.blocks[0](x))))
    gradient, = torch.autograd.grad(out.sum(), x, create_graph=True)
    return out.square().mean() + gradient.square().mean()


def a_hook_reads_a_weight(model: nn.Module, x: Tensor) -> Tensor:
    """Within the backward whose gradients have a graph, which has that weight then."""
    x = x.clone().requires_grad_()
    inner = model.blocks[0](x)
    inner.register_hook(lambda gradient: gradient @ model.blocks[1].gate + gradient * model.blocks[0].linear.bias)
    gradient, = torch.autograd.grad(model.head(model.blocks[1](inner)).sum(), x, create_graph=True)
    return gradient.square().mean() + model(x.detach()).mean()


def within_the_programs_hooks(model: nn.Module, x: Tensor) -> Tensor:
    with torch.autograd.graph.save_on_cpu():
        return penalty_on_real(model, x)


def within_a_backward_that_reads_the_unit(model: nn.Module, x: Tensor) -> Tensor:
    """Its gradient with a graph is kept until that backward has ended, and is gone back through then."""
    block, kept, points = model.blocks[1], [], x.flip(0).requires_grad_()

    def hook(gradient: Tensor) -> None:
        with torch.enable_grad():
            kept.append(torch.autograd.grad(block(points).square().sum(), points, create_graph=True)[0])
    handle = block.norm.register_forward_hook(lambda module, given, out: out.register_hook(hook) and None)
    loss = model(x).square().mean()
    handle.remove()
    loss.backward()
    return kept[0].square().mean()


LOSSES = [within_a_backward_that_reads_the_unit, penalty, penalty_on_real, forces, gradients_of_weights,
          product_with_the_hessian, three_deep, a_step_within, by_backward_to_the_input, of_a_unit_called_twice,
          a_hook_reads_a_weight, within_the_programs_hooks]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("loss", LOSSES, ids=[each.__name__ for each in LOSSES])
def test_a_loss_over_gradients_trains_to_the_same_bits(loss, way):
    settings = penstock.Settings(**(WAYS[way] or {"activations": ACTIVATIONS}))
    check(lambda model, optimizer: trained(loss, model, optimizer), make=Critic, settings=settings)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("loss", [penalty_on_real, gradients_of_weights], ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("block", [Convolved, Evaluated, Within], ids=["batch norm", "in evaluation", "checkpointed"])
def test_a_loss_over_gradients_of_other_units_trains_to_the_same_bits(block, loss, way):
    settings = penstock.Settings(**(WAYS[way] or {"activations": ACTIVATIONS}))
    check(lambda model, optimizer: trained(loss, model, optimizer), make=lambda: Critic(block), settings=settings)


@pytest.mark.parametrize("way", WAYS)
def test_a_unit_that_is_called_in_training_and_in_evaluation(way):
    class Twice(Critic):
        """The call in evaluation is recomputed first, and has its graph while the other is."""

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                one = block(x)
                block.eval()
                x = one + block(x)
                block.train()
            return self.head(x)

    def normed() -> nn.Module:
        return torch.nn.utils.spectral_norm(nn.Linear(8, 8))
    settings = penstock.Settings(**(WAYS[way] or {"activations": ACTIVATIONS}))
    check(lambda model, optimizer: trained(gradients_of_weights, model, optimizer), make=lambda: Twice(normed), settings=settings)


@pytest.mark.parametrize("resident", [("*",), ("head",)])
def test_units_that_stay_in_memory(resident):
    for loss in (penalty, gradients_of_weights):
        check(lambda model, optimizer: trained(loss, model, optimizer), make=Critic, resident=resident)


def test_a_gradient_with_a_graph_cannot_be_a_weights_grad_and_what_helps_is_named():
    engine = managed(Critic)
    with pytest.raises(penstock.UsageError, match=r"has a graph, which its `grad` cannot have.*torch.autograd.grad"):
        engine(examples(0)).sum().square().backward(create_graph=True)
    engine.optimizer.zero_grad()
    gradients_of_weights(engine.module, examples(0)).backward()
    engine.step()


def test_a_graph_of_a_gradient_outlives_no_update():
    engine = managed(Critic)
    x = examples(0).requires_grad_()
    gradient, = torch.autograd.grad(engine(x).sum(), x, create_graph=True)
    engine(examples(1)).mean().backward()
    engine.step()
    with pytest.raises((RuntimeError, penstock.UsageError)):
        gradient.square().sum().backward()
