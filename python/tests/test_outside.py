"""Weights that are read outside of their units: they come, are used and go again, whatever their number."""
from __future__ import annotations

import pytest
import torch
from torch import nn

import penstock
import small_models as small
from compare import Training, adamw
from cores import test_core as core_of

ONE_UNIT = 448  # bytes of the stand-in's window: what the largest unit takes


def inner_of(model):
    return getattr(model, "module", model)


def training(loss, make=lambda: small.Stack(blocks=6), count=3, **options):
    return Training(make, [small.ids(i) for i in range(count)], loss, **options)


def l2(model, batch):
    return small.loss(model, batch) + 1e-2 * sum(each.pow(2).sum() for each in inner_of(model).parameters())


def l2_first(model, batch):
    term = sum(each.square().sum() for each in inner_of(model).parameters())
    return term * 1e-2 + small.loss(model, batch)


def over_all_at_once(model, batch):
    together = torch.cat([each.flatten() for each in inner_of(model).parameters()])
    return small.loss(model, batch) + together.abs().mean()


def in_one_operation(model, batch):
    return small.loss(model, batch) + sum(torch._foreach_norm(list(inner_of(model).parameters()))) * 1e-2


def as_a_vector(model, batch):
    vector = nn.utils.parameters_to_vector(inner_of(model).parameters())
    return small.loss(model, batch) + (vector @ vector) * 1e-3


def between_two_weights(model, batch):
    blocks = inner_of(model).blocks
    return small.loss(model, batch) + (blocks[0].linear.weight - blocks[1].linear.weight).pow(2).sum()


def weights_alone(model, batch):
    return sum((each - 1).pow(2).mean() for each in inner_of(model).parameters())


def elastic(model, batch):
    """Elastic weight consolidation: where the weights were at the first step."""
    inner = inner_of(model)
    if not hasattr(inner, "anchors"):
        inner.anchors = [each.detach().clone() for each in inner.parameters()]
    return small.loss(model, batch) + sum((a - b).pow(2).sum() for a, b in zip(inner.parameters(), inner.anchors))


def views(model, batch):
    head = inner_of(model).head.weight
    return small.loss(model, batch) + head[1:3].pow(2).sum() + head.t().reshape(-1, 1)[:5].abs().sum() + head.T.sum(0).max()


@pytest.mark.parametrize("activations", ["auto", "recompute"])
@pytest.mark.parametrize("loss", [l2, l2_first, over_all_at_once, in_one_operation, as_a_vector, between_two_weights,
                                  weights_alone, elastic, views])
def test_a_term_over_weights_trains_to_the_same_bits(loss, activations):
    training(loss).check(window_bytes=ONE_UNIT, activations=activations)


def test_what_the_graph_has_of_them_is_which_ones_they_are():
    """No copy of them is held from forward to backward."""
    held = []

    def loss(model, batch):
        value = l2(model, batch)
        node = value.grad_fn
        while node is not None and "Pow" not in node.name():
            node = next((each for each, _ in node.next_functions if each is not None), None)
        held.append(node)
        return value
    training(loss, count=1).check()


def a_logger(model):
    norms = []

    def log(module, args, output):
        norms.append(sum(each.norm().item() for each in inner_of(model).parameters()))
    model.blocks[2].register_forward_hook(log)
    model.norms = norms
    return model


def with_norms(model, batch):
    value = small.loss(model, batch)
    return value * (1 + 1e-3 * inner_of(model).norms[-1])


def a_unit_that_reads_anothers_weight():
    model = small.Stack(blocks=3)
    model.blocks[1].forward = lambda x: x @ model.blocks[0].linear.weight + model.blocks[2].linear.bias
    return model


@pytest.mark.parametrize("activations", ["auto", "recompute"])
@pytest.mark.parametrize("make, loss", [(lambda: a_logger(small.Stack(blocks=6)), with_norms),
                                        (a_unit_that_reads_anothers_weight, small.loss)], ids=["a logger", "another unit"])
def test_a_hook_or_a_unit_reads_weights_of_others(make, loss, activations):
    if make is not a_unit_that_reads_anothers_weight and activations == "recompute":
        pytest.skip("a logger's list, which the loss reads, cannot be put back")
    training(loss, make).check(window_bytes=2 * ONE_UNIT, activations=activations)


def test_a_forward_that_is_patched_afterwards_is_used():
    def loss(model, batch):
        inner = inner_of(model)
        if not hasattr(inner, "patched"):
            inner.patched, own = True, inner.blocks[1].forward
            inner.blocks[1].forward = lambda x: own(x) * 2 + inner.blocks[1].linear.weight.sum()
        return small.loss(model, batch)
    training(loss).check(window_bytes=ONE_UNIT)


def test_a_forward_that_is_called_without_the_module_reads_its_weights_one_by_one():
    def loss(model, batch):
        inner = inner_of(model)
        x = inner.embedding.forward(batch)
        for block in inner.blocks:
            x = block.forward(x)
        return torch.nn.functional.cross_entropy(inner.head.forward(inner.norm.forward(x)).flatten(0, 1), batch.flatten())
    training(loss).check(window_bytes=ONE_UNIT)


def test_a_backward_to_weights_reads_none_of_them_and_watches_all():
    def loss(model, batch):
        inner = inner_of(model)
        value = small.loss(model, batch)
        first = torch.autograd.grad(value, [inner.blocks[0].linear.weight, inner.head.weight], retain_graph=True)
        return value + sum(each.pow(2).sum().detach() for each in first)

    def make():
        model = small.Checkpointing(reentrant=False)
        for block in model.blocks:
            block.dropout.p = 0.0
        return model
    training(loss).check(window_bytes=ONE_UNIT)
    training(loss, make).check(window_bytes=2 * ONE_UNIT)


# Between passes.
def engine_of():
    model = small.Stack()
    return penstock.initialize(model, adamw(model.parameters()), core=core_of())[0]


def test_a_logger_between_steps_reads_them():
    engine = engine_of()
    for step in range(2):
        norms = {name: each.norm() for name, each in engine.module.named_parameters()}
        assert all(torch.equal(each, engine.weight(name).norm()) for name, each in norms.items())
        assert engine.visits.kind is None
        engine.backward(small.loss(engine, small.ids(step)))
        engine.step()


def test_what_is_changed_in_place_is_an_error_and_not_lost():
    engine = engine_of()
    weight = engine.module.head.weight
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        weight.mul_(2)

    def hook(*_):
        with torch.no_grad():
            weight.mul_(2)
    handle = engine.module.norm.register_forward_hook(hook)
    with pytest.raises(penstock.ModelError, match="'head.weight' was changed by 'mul_' in a unit's forward"):
        engine(small.ids())
    handle.remove()
    engine.visits.give_up()
    value = small.loss(engine, small.ids())
    view = weight.detach().view(-1)
    view.zero_()
    with pytest.raises(penstock.ModelError, match="'head.weight' was changed in place through a view"):
        engine.backward(value)
        engine.step()


@pytest.mark.afterwards
def test_a_tensor_beside_a_weight_that_is_changed_in_place_is_an_error_as_in_torch():
    engine = engine_of()
    x = torch.randn(3, small.WIDTH, requires_grad=True) * 1
    y = torch.nn.functional.linear(x, engine.module.head.weight)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.afterwards
def test_a_graph_from_before_an_update_is_an_error():
    engine = engine_of()
    stale = sum(each.pow(2).sum() for each in engine.module.parameters())
    engine.backward(small.loss(engine, small.ids()))
    engine.step()
    with pytest.raises(penstock.UsageError, match="was updated or written after the forward of this graph"):
        stale.backward()


def test_two_models_may_be_read_in_one_operation():
    first, second = engine_of(), engine_of()
    apart = first.module.head.weight - second.module.head.weight
    assert torch.equal(apart, first.weight("head.weight") - second.weight("head.weight"))
    loss = (first.module.head.weight * second.module.head.weight).sum()
    loss.backward()
    assert torch.equal(first.module.head.weight.grad, second.weight("head.weight"))
    assert torch.equal(second.module.head.weight.grad, first.weight("head.weight"))


# Modes.
def test_an_evaluation_in_inference_mode_leaves_nothing_behind():
    def loss(model, batch):
        with torch.inference_mode():
            small.loss(model, batch.flip(0))
        return small.loss(model, batch)
    training(loss).check(window_bytes=ONE_UNIT)
    training(loss).check(window_bytes=ONE_UNIT, activations="recompute")


def test_units_in_another_order_in_inference_mode_leave_nothing_behind():
    def loss(model, batch):
        inner = inner_of(model)
        with torch.inference_mode():
            x = torch.randn(1, 3, small.WIDTH, generator=torch.Generator().manual_seed(1))
            for block in (*reversed(inner.blocks), inner.blocks[3], inner.norm, inner.blocks[1]):
                block(x)
            inner.head.weight.norm()
        return small.loss(model, batch)
    training(loss).check(window_bytes=ONE_UNIT)
