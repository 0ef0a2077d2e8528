"""What stands for a weight's memory: state_dict(), a tensor that was assigned to .data, a view that was taken before."""
from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import penstock
import small_models as small
from cores import WITHIN_BACKWARD
from penstock.weights.lent import forbids
from twice import RESIDENT, check, managed, step

pytestmark = pytest.mark.skipif(WITHIN_BACKWARD, reason="between a backward and its step nothing may be read")
forbidden = pytest.mark.skipif(forbids is None, reason="torch 2.4 cannot forbid memory")


# Programs; each ends with steps, whose losses it gives.
def steps(model, optimizer, first: int = 0, count: int = 2) -> list[float]:
    return [step(model, optimizer, number) for number in range(first, first + count)]


def a_copy_that_was_written_is_read(model, optimizer):
    model.state_dict()["head.weight"].mul_(2)
    return [model.head.weight.detach().norm().item(), *steps(model, optimizer)]


def written_by_both(model, optimizer):
    state = model.state_dict()
    state["head.weight"].mul_(2)
    model.head.weight.data[:, 0] = 0
    state["head.weight"][0] = 0.5
    return [state["head.weight"].sum().item(), model.head.weight.sum().item(), *steps(model, optimizer)]


def a_copy_follows(model, optimizer):
    state = model.state_dict()
    model.head.weight.data.zero_()
    with torch.no_grad():
        model.norm.weight.add_(1)
    return [state["head.weight"].sum().item(), state["norm.weight"].sum().item(), *steps(model, optimizer)]


def a_copy_is_given_again(model, optimizer):
    first = model.state_dict()
    second = model.state_dict()
    first["head.weight"].fill_(0.25)
    return [second["head.weight"].sum().item(), *steps(model, optimizer)]


def kept_over_an_evaluation(model, optimizer):
    state = model.state_dict()
    with torch.no_grad():
        told = model(small.ids()).sum().item()
    state["head.weight"].mul_(0.5)
    with torch.no_grad():
        told += model(small.ids()).sum().item()
    return [told, *steps(model, optimizer)]


def a_flat_buffer(model, optimizer):
    parameters = list(model.parameters())
    flat, at = torch.cat([each.data.view(-1) for each in parameters]), 0
    for each in parameters:
        each.data = flat[at:at + each.numel()].view_as(each)
        at += each.numel()
    flat.mul_(0.5)
    return steps(model, optimizer)


def a_vector_goes_on(model, optimizer):
    vector = parameters_to_vector(model.parameters()).detach()
    vector_to_parameters(vector, model.parameters())
    vector += 0.01
    return steps(model, optimizer)


def averages_are_swapped_in(model, optimizer):
    """The class that everybody copies: backup, shadow, restore."""
    told = steps(model, optimizer)
    shadow = {name: each.data.clone() for name, each in model.named_parameters()}
    for number in range(2, 5):
        told.append(step(model, optimizer, number))
        for name, each in model.named_parameters():
            shadow[name] = (0.1 * each.data + 0.9 * shadow[name]).clone()
        backup = {}
        for name, each in model.named_parameters():
            backup[name] = each.data
            each.data = shadow[name]
        with torch.no_grad():
            told.append(model(small.ids()).sum().item())
        for name, each in model.named_parameters():
            each.data = backup[name]
        del backup, each
    return told


def an_alias_is_written_by_a_graph(model, optimizer):
    model.head.weight.data.add_(model.head.weight * 0.1)
    return steps(model, optimizer)


def several_at_once_of_which_one_was_read(model, optimizer):
    one, other = model.blocks[0].linear.weight, model.blocks[1].linear.weight
    with torch.no_grad():
        told = [one.norm().item()]
        one.copy_(other)
        other.lerp_(one, 0.5)
        one.norm()
        torch._foreach_mul_([model.head.weight, one, other], 0.9)
    return [*told, *steps(model, optimizer)]


def a_term_over_the_state(model, optimizer):
    loss = small.loss(model, small.ids()) + 0.1 * sum(each.square().sum() for each in model.state_dict(keep_vars=True).values())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return [loss.item(), *steps(model, optimizer)]


def written_before_a_module_is_called_by_itself(model, optimizer):
    told = []
    for number in range(3):
        model.embedding.weight.data.numpy()[...] *= 0.9
        x = model.embedding(small.ids(number))
        for block in model.blocks:
            x = block(x)
        loss = model.head(model.norm(x)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        told.append(loss.item())
    return told


# Behind a forward with gradients that nobody goes back through.
def clipped_by_data(model, optimizer):
    told = steps(model, optimizer)
    small.loss(model, small.ids(8))
    for each in model.parameters():
        each.data.clamp_(-0.2, 0.2)
    return [*told, *steps(model, optimizer)]


def written_by_numpy(model, optimizer):
    small.loss(model, small.ids(8))
    model.head.weight.detach().numpy()[:] *= 0.5
    return steps(model, optimizer)


def written_before_the_state_is_saved(model, optimizer):
    small.loss(model, small.ids(8))
    model.head.weight.data.mul_(0.5)
    return [model.state_dict()["head.weight"].sum().item(), *steps(model, optimizer)]


def made_anew(model, optimizer):
    small.loss(model, small.ids(8))
    nn.init.constant_(model.head.weight, 0.1)
    nn.init.normal_(model.blocks[0].linear.weight)
    model.blocks[1].linear.reset_parameters()
    return steps(model, optimizer)


def restored_where_it_raised(model, optimizer):
    kept = [each.detach().clone() for each in model.parameters()]
    try:
        try:
            for each in model.parameters():
                each.data.copy_(each.data * 0.5)
            model(small.ids())[0, 0, 99]
        finally:
            for each, values in zip(model.parameters(), kept):
                each.data.copy_(values)
    except (RuntimeError, IndexError):
        pass
    return steps(model, optimizer)


# By numpy, which counts in no version.
def between_steps(model, optimizer):
    told = []
    for number in range(4):
        told.append(step(model, optimizer, number))
        model.head.weight.data.numpy()[...] *= 0.9
        if number == 2:
            told.append(model.state_dict()["head.weight"].sum().item())
    return told


def by_an_array_that_is_kept_until_the_step(model, optimizer):
    told = []
    for number in range(3):
        array = model.head.weight.detach().numpy()
        array[0] += 1
        with torch.no_grad():
            told.append(model(small.ids(number)).sum().item())
        array[1] -= 1
        told.append(array.sum().item())
        del array
        told.append(step(model, optimizer, number))
    return told


def two_of_one_weight(model, optimizer):
    one, other = model.head.weight.data.numpy(), model.head.weight.data.numpy()
    one[0], other[1] = 0.5, 0.25
    model.head.weight.data[2] = 1.0
    del one, other
    model.norm.requires_grad_(False)
    model.norm.weight.numpy()[:] *= 2
    return steps(model, optimizer)


NUMPYS = [between_steps, by_an_array_that_is_kept_until_the_step, two_of_one_weight]
STATES = [a_copy_that_was_written_is_read, written_by_both, a_copy_follows, a_copy_is_given_again, kept_over_an_evaluation]
OTHERS = [a_flat_buffer, a_vector_goes_on, an_alias_is_written_by_a_graph, several_at_once_of_which_one_was_read,
          a_term_over_the_state, written_before_a_module_is_called_by_itself]
BEHIND = [averages_are_swapped_in, clipped_by_data, written_by_numpy, written_before_the_state_is_saved, made_anew,
          restored_where_it_raised]


@pytest.mark.parametrize("program", [*STATES, *OTHERS, *NUMPYS, *BEHIND], ids=lambda each: each.__name__)
def test_a_program_that_has_memory_of_weights_trains_to_the_same_bits(program):
    check(program)


@pytest.mark.parametrize("program", OTHERS, ids=lambda each: each.__name__)
def test_so_it_does_where_forwards_run_again(program):
    check(program, settings=penstock.Settings(activations="recompute"))


@RESIDENT
@pytest.mark.parametrize("program", [*OTHERS, *NUMPYS], ids=lambda each: each.__name__)
def test_so_it_does_where_weights_stay_in_memory(program, resident):
    check(program, resident=resident)


def test_an_array_over_a_residents_memory_follows_its_updates():
    def program(model, optimizer):
        array, told = model.head.weight.detach().numpy(), []
        for number in range(3):
            told.append(step(model, optimizer, number))
            told.append(array.sum().item())
            array[number] *= 0.5
        return told
    check(program, resident=["head"])


def test_an_update_is_no_writing_of_the_programs(monkeypatch):
    engine = managed(resident=["head"])
    array, written = engine.module.head.weight.detach().numpy(), []
    monkeypatch.setattr(engine.core, "write", lambda *given: written.append(given))
    for number in range(2):
        step(engine.module, engine.optimizer, number)
    assert not written and array.size > 0


@forbidden
def test_what_stood_for_a_weight_is_not_read_after_an_update():
    engine = managed()
    model, assigned = engine.module, torch.ones(11, 8)
    state, copied = model.state_dict(), copy.deepcopy(model.state_dict())
    model.head.weight.data = assigned
    step(model, engine.optimizer, 0)
    for read in (state["norm.weight"].sum, lambda: model.load_state_dict(state)):
        with pytest.raises(RuntimeError, match="what state_dict\\(\\) gave of parameter"):
            read()
    with pytest.raises(RuntimeError, match="a tensor is read that was assigned to 'head.weight'.data before an update"):
        assigned.sum()
    assert torch.isfinite(copied["norm.weight"]).all()
    state["head.weight"].sum()  # its memory had nothing to do with the weight any more


def test_what_nobody_has_is_not_kept():
    """Of a model that is larger than memory the program reads one module's state after the other's."""
    engine = managed(lambda: small.Stack(blocks=8))
    for block in engine.module.blocks:
        block.state_dict()["linear.weight"].mul_(2)
        assert len(engine.binding.loans._standing) <= len(block.state_dict())
    state = engine.module.blocks[0].state_dict()
    engine.module.head.weight.data = torch.ones(11, 8)
    engine.binding.loans.settle()
    assert len(engine.binding.loans._standing) == len(state)


def test_an_older_state_dict_is_not_given_again():
    engine = managed()
    older = engine.state_dict()
    step(engine.module, engine.optimizer, 0)
    assert all(torch.equal(each, engine.weight(name)) for name, each in engine.state_dict().items())
    assert len(older) > 0


@forbidden
def test_what_is_not_updated_may_be_read():
    engine = managed()
    model = engine.module
    for each in model.head.parameters():
        each.requires_grad_(False)
    state = model.state_dict()
    step(model, engine.optimizer, 0)
    assert torch.equal(state["head.weight"], model.head.weight)
    with pytest.raises(RuntimeError, match="what state_dict"):
        state["norm.weight"].sum()


def test_memory_that_a_resident_still_has_is_not_written_over():
    engine = managed(resident=["*"])
    weight = engine.module.head.weight
    backup = weight.data
    with pytest.raises(penstock.ModelError, match="has an earlier .data or view of it, whose values would change"):
        weight.data = torch.zeros(weight.shape)
    kept = backup.clone()
    del backup
    weight.data = torch.zeros(weight.shape)
    weight.data = kept
    assert torch.equal(engine.weight("head.weight"), kept)


def test_a_view_that_is_written_before_a_backward_that_needs_it_is_named():
    engine = managed()
    loss = small.loss(engine, small.ids())
    engine.module.head.weight.data.mul_(0.5)
    with pytest.raises(penstock.ModelError, match="'head.weight' was changed in place through a view of it"):
        loss.backward()


@pytest.mark.parametrize("settings", [dict(activations="recompute"), dict(activations="auto", room=lambda: 0.0)])
def test_a_recompute_with_other_weights_is_an_error(settings):
    """The output has the same bits where the last weight is zero."""
    class Zero(small.Block):
        def __init__(self) -> None:
            super().__init__(dropout=0.0)
            nn.init.zeros_(self.linear.weight)
            nn.init.zeros_(self.linear.bias)
    engine = managed(lambda: small.Stack(block=Zero), settings=penstock.Settings(**settings))
    loss = small.loss(engine, small.ids())
    with torch.no_grad():
        engine.module.blocks[0].norm.bias.add_(1)
    with pytest.raises(penstock.UsageError, match="'blocks.0', whose forward is run again.*updated or written after the forward"):
        loss.backward()
