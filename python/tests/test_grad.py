"""`parameter.grad` as programs use it: tensors of their own in its place, its data replaced, kept over steps."""
from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import penstock
import small_models as small
from compare import adamw
from cores import WITHIN_BACKWARD
from twice import check, managed, step

pytestmark = pytest.mark.skipif(WITHIN_BACKWARD, reason="gradients are not there after a backward")


def flat_buffer(model, optimizer):
    """All gradients lie in one tensor, which is zeroed and scaled as a whole."""
    parameters = list(model.parameters())
    flat = torch.zeros(sum(each.numel() for each in parameters))
    at, seen = 0, []
    for each in parameters:
        each.grad = flat[at:at + each.numel()].view_as(each)
        at += each.numel()
    for number in range(4):
        flat.zero_()
        for half in range(2):
            small.loss(model, small.ids(2 * number + half)).backward()
        flat.mul_(0.5)
        seen.append(flat.norm().item())
        optimizer.step()
    return seen


def scaled_after_it_was_assigned(model, optimizer):
    for number in range(3):
        small.loss(model, small.ids(number)).backward()
        own = [each.grad.clone() for each in model.parameters()]
        for each, gradient in zip(model.parameters(), own):
            each.grad = gradient
            assert each.grad is gradient
        for gradient in own:
            gradient.mul_(0.3)
        small.loss(model, small.ids(number + 1)).backward()
        optimizer.step()
        optimizer.zero_grad()


def data_replaced(model, optimizer):
    for number in range(3):
        small.loss(model, small.ids(number)).backward()
        for at, each in enumerate(model.parameters()):
            if at % 2:
                each.grad.data = each.grad.data * 0.1
            else:
                each.grad.set_(each.grad.sign())
        optimizer.step()
        optimizer.zero_grad()


def by_its_other_name(model, optimizer):
    for number in range(3):
        small.loss(model, small.ids(number)).backward()
        for each in model.parameters():
            each._grad = each._grad * 2
        optimizer.step()
        for each in model.parameters():
            each._grad = None


def detached_in_place(model, optimizer):
    """As zero_grad() was written."""
    for number in range(3):
        small.loss(model, small.ids(number)).backward()
        if number:
            optimizer.step()
        for each in model.parameters():
            each.grad = None if number else each.grad
            if each.grad is not None:
                each.grad.detach_()
                each.grad.zero_()


def zeros_by_the_model(model, optimizer):
    """Decay and moments go on, of a layer that stops, too."""
    losses = []
    for number in range(5):
        model.head.requires_grad_(number < 2)
        loss = small.loss(model, small.ids(number))
        loss.backward()
        optimizer.step()
        model.zero_grad(set_to_none=number == 3)
        losses.append(loss.item())
    return losses


def assigned_and_changed_by_data(model, optimizer):
    """As programs for meta-learning write an update into .grad."""
    told = []
    for number in range(3):
        loss = small.loss(model, small.ids(number))
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        for at, (each, gradient) in enumerate(zip(model.parameters(), gradients)):
            each.grad = torch.zeros_like(each)
            if at % 3 == 0:
                each.grad.data.add_(gradient)
            elif at % 3 == 1:
                each.grad.numpy()[...] += gradient.numpy()
            else:
                each.grad.data = gradient
        optimizer.step()
        optimizer.zero_grad()
        told.append(loss.item())
    return told


def zeroed_by_hand(model, optimizer):
    told = []
    for number in range(3):
        loss = small.loss(model, small.ids(number))
        loss.backward()
        optimizer.step()
        for each in model.parameters():
            if each.grad is not None:
                each.grad.detach_()
                each.grad.zero_()
        told.append(loss.item())
    return told


class Wrapper(torch.optim.Optimizer):
    """As SAM's: it steps another one, and zeroes by itself."""

    def __init__(self, parameters, base):
        super().__init__(parameters, {})
        self.base = base

    def step(self, closure=None):
        self.base.step()


def zeroed_by_a_wrapper(model, optimizer):
    wrapper, told = Wrapper(model.parameters(), optimizer), []
    for number in range(3):
        loss = small.loss(model, small.ids(number))
        loss.backward()
        wrapper.step()
        wrapper.zero_grad()
        told.append(loss.item())
    return told


def loaded_while_gradients_stand(model, optimizer):
    small.loss(model, small.ids(0)).backward()
    optimizer.step()
    optimizer.zero_grad()
    small.loss(model, small.ids(1)).backward()
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    small.loss(model, small.ids(2)).backward()
    optimizer.step()
    optimizer.zero_grad()


def attributes(model, optimizer):
    small.loss(model, small.ids()).backward()
    gradient = model.head.weight.grad
    gradient.scale = 3
    assert model.head.weight.grad is gradient and model.head.weight.grad.scale == 3
    optimizer.step()


@pytest.mark.parametrize("program", [flat_buffer, scaled_after_it_was_assigned, data_replaced, by_its_other_name,
                                     detached_in_place, zeros_by_the_model, assigned_and_changed_by_data,
                                     zeroed_by_hand, zeroed_by_a_wrapper, loaded_while_gradients_stand, attributes], ids=lambda each: each.__name__)
def test_a_program_that_handles_gradients_trains_to_the_same_bits(program):
    check(program)


def test_gradients_that_torch_would_go_on_with_are_named():
    engine = managed()
    model, optimizer = engine.module, engine.optimizer
    small.loss(model, small.ids()).backward()
    optimizer.step()
    with pytest.raises(penstock.UsageError, match=r"a second time without a gradient.*zero_grad\(\)"):
        optimizer.step()
    with pytest.raises(penstock.UsageError, match=r"whose last one was not zeroed after optimizer.step\(\)"):
        small.loss(model, small.ids()).backward()
    for zero in (optimizer.zero_grad, model.zero_grad):
        zero()
        small.loss(model, small.ids()).backward()
        optimizer.step()
    for each in model.parameters():
        each.grad = None
    for number in range(2):  # engine.step() zeroes
        engine.backward(small.loss(model, small.ids(number)))
        engine.step()


def test_hooks_on_several_gradients_run():
    def program(model, optimizer):
        seen = []
        handle = torch.autograd.graph.register_multi_grad_hook(
            list(model.parameters()), lambda gradients: seen.append(sum(each.square().sum().item() for each in gradients)))
        for number in range(2):
            small.loss(model, small.ids(number)).backward()
            optimizer.step()
            optimizer.zero_grad()
        handle.remove()
        loss = small.loss(model, small.ids())
        edge = torch.autograd.graph.get_gradient_edge(model.head.weight)
        return seen, torch.autograd.grad(loss, edge)[0].sum().item()
    check(program)


# The optimizer that was given.
def test_hooks_of_the_optimizer_that_was_given_are_called():
    def made(parameters):
        optimizer = adamw(parameters)
        optimizer.calls = []

        def scale(optimizer, args, kwargs):
            for group in optimizer.param_groups:
                for each in group["params"]:
                    if each.grad is not None:
                        each.grad.mul_(0.1)
        optimizer.register_step_pre_hook(scale)
        optimizer.register_step_post_hook(lambda *_: CALLS.append(1))
        return optimizer

    def program(model, optimizer):
        CALLS.clear()
        for number in range(3):
            step(model, optimizer, number)
        return len(CALLS)
    check(program, optimizer=made)


CALLS: list[int] = []


def test_a_step_that_was_replaced_is_named():
    model = small.Stack()
    optimizer = adamw(model.parameters())
    optimizer.step = lambda: None
    with pytest.raises(penstock.OptimizerError, match=r"step\(\) of this AdamW was replaced"):
        penstock.initialize(model, optimizer, store="nowhere")


def take_out(group: dict) -> None:
    group["params"] = group["params"][1:]


@pytest.mark.parametrize("change", [
    lambda optimizer: optimizer.param_groups.reverse(), lambda optimizer: optimizer.param_groups.pop(),
    lambda optimizer: take_out(optimizer.param_groups[0]),
    lambda optimizer: optimizer.param_groups[0].update(maximize=True)], ids=["reversed", "popped", "taken out", "maximize"])
def test_groups_that_are_changed_are_named(change):
    def groups(parameters):
        every = list(parameters)
        return adamw([{"params": every[:2]}, {"params": every[2:], "lr": 1e-3}])
    engine = managed(optimizer=groups)
    small.loss(engine.module, small.ids()).backward()
    change(engine.optimizer)
    with pytest.raises(penstock.OptimizerError, match="groups of a managed optimizer are fixed|maximize or amsgrad"):
        engine.optimizer.step()


def test_a_gradient_of_another_parameter_that_changes_afterwards_is_named():
    for change in (lambda model: model.blocks[1].linear.weight.grad.mul_(0.5), lambda model: small.loss(model, small.ids(1)).backward()):
        engine = managed()
        first, other = (each.linear.weight for each in engine.module.blocks[:2])
        small.loss(engine.module, small.ids()).backward()
        first.grad = other.grad
        change(engine.module)
        with pytest.raises(penstock.UsageError, match="'blocks.0.linear.weight'.grad was assigned the gradient of another"):
            engine.optimizer.step()


def test_an_optimizer_does_not_begin_anew_in_silence():
    engine = managed()
    step(engine.module, engine.optimizer, 0)
    for change in (lambda state: state.update(state={}), lambda state: [each.update(step=torch.tensor(0.0))
                                                                        for each in state["state"].values()]):
        state = copy.deepcopy(engine.optimizer.state_dict())
        change(state)
        with pytest.raises(penstock.OptimizerError, match=r"loaded as of step 0.*engine.release\(\)"):
            engine.optimizer.load_state_dict(state)
    step(engine.module, engine.optimizer, 1)


# What is written where torch does not count it, and what is read of weights and kept.
def written(change):
    def program(model, optimizer):
        losses = []
        for number in range(3):
            losses.append(step(model, optimizer, number))
            change(model)
        return losses
    return program


@pytest.mark.parametrize("change", [
    lambda model: model.head.weight.data.numpy().__setitem__(0, 0.5),
    lambda model: model.head.weight.detach().numpy().__imul__(-1),
    lambda model: model.state_dict()["head.weight"].data.fill_(0.1),
    lambda model: model.state_dict()["head.weight"].numpy().__imul__(0.5),
    lambda model: model.state_dict(keep_vars=True)["head.weight"].data.fill_(0.1)],
    ids=["numpy of data", "signs", "state_dict's data", "state_dict's numpy", "keep_vars"])
def test_what_is_written_without_a_count_is_kept(change):
    check(written(change))


def test_what_is_written_through_a_part_with_a_graph_is_named():
    for change in (lambda model: model.norm.bias[2:4].data.fill_(1), lambda model: model.head.weight.view(-1).data.zero_()):
        with pytest.raises(penstock.ModelError, match="was changed in place through a view of it"):
            written(change)(*(lambda engine: (engine.module, engine.optimizer))(managed()))


def test_a_view_of_a_weight_that_is_read_after_an_update_is_named():
    engine = managed()
    model, optimizer = engine.module, engine.optimizer
    kept = []

    def loss(number):
        x = model.embedding(small.ids(number))
        kept.append(model.blocks[0].linear.weight.detach())  # within a pass, outside of its unit
        return model(small.ids(number)).square().mean() + x.mean()
    loss(0).backward()
    assert torch.isfinite(kept[0]).all()
    optimizer.step()
    optimizer.zero_grad()
    if torch.__version__ >= "2.5":
        with pytest.raises(RuntimeError, match="read that was taken before an update"):
            kept[0].sum()


def test_a_weight_may_be_added_to_a_tensor_of_the_programs():
    def program(model, optimizer):
        average = [torch.zeros_like(each) for each in model.parameters()]
        for number in range(3):
            loss = small.loss(model, small.ids(number))
            with torch.no_grad():
                for own, each in zip(average, model.parameters()):
                    own.mul_(0.9).add_(each, alpha=0.1)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return [each.sum().item() for each in average]
    check(program)


def test_an_encoder_takes_its_faster_way_in_evaluation():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)

        def forward(self, x, mask=None):
            return self.encoder(x, src_key_padding_mask=mask)

    def program(model, optimizer):
        x, mask = torch.randn(3, 5, 8), torch.arange(5) >= torch.tensor([[5], [3], [2]])
        model(x).square().mean().backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            return model(x, mask).tolist()
    check(program, make=Encoder)


def test_where_values_lie_that_are_not_there():
    model, plain = managed().module, small.Stack()
    for own, each in zip(model.parameters(), plain.parameters()):
        assert own.stride() == each.stride() and own.is_contiguous() and own.stride(0) == each.stride(0)
