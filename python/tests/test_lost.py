"""Weights that a program reads and writes between passes, in whichever way: as in plain torch, or an error by name."""
from __future__ import annotations

import copy
import gc
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, prune, vector_to_parameters

import penstock
import small_models as small
from compare import adamw
from cores import NATIVE, WAYS, WITHIN_BACKWARD, OpenNativeCore, test_core
from penstock.machine.host_memory import HostMemory
from penstock.weights.parameter import Managed, Released
from twice import RESIDENT, check, managed, released, step

pytestmark = pytest.mark.skipif(WITHIN_BACKWARD, reason="between a backward and its step nothing may be read")


# Programs that write.
def clipped(model, optimizer):
    losses = []
    for number in range(4):
        losses.append(step(model, optimizer, number))
        for each in model.parameters():
            each.data.clamp_(-0.2, 0.2)
    return losses


def assigned(model, optimizer):
    losses = [step(model, optimizer, 0)]
    with torch.no_grad():
        model.head.weight.data = torch.full((11, small.WIDTH), 0.25)
        model.blocks[0].linear.bias.data = model.blocks[0].linear.bias.data * 2
    return [*losses, step(model, optimizer, 1), step(model, optimizer, 2)]


def initialized_again(model, optimizer):
    def again(module):
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    losses = [step(model, optimizer, 0)]
    model.apply(again)
    model.blocks[1].linear.reset_parameters()
    return [*losses, step(model, optimizer, 1)]


def by_a_vector(model, optimizer):
    losses = [step(model, optimizer, 0)]
    with torch.no_grad():
        flat = parameters_to_vector(model.parameters())
        vector_to_parameters(flat * 0.5, model.parameters())
    del flat
    return [*losses, step(model, optimizer, 1)]


def sharpness_aware(model, optimizer):
    """Each step's gradient is taken where the loss is higher."""
    losses = []
    for number in range(3):
        small.loss(model, small.ids(number)).backward()
        with torch.no_grad():
            before = [each.data.clone() for each in model.parameters()]
            for each in model.parameters():
                each.add_(0.01 * each.grad / (each.grad.norm() + 1e-12))
        optimizer.zero_grad()
        loss = small.loss(model, small.ids(number))
        loss.backward()
        for each, values in zip(model.parameters(), before):
            each.data = values
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def looking_ahead(model, optimizer):
    slow = [each.detach().clone() for each in model.parameters()]
    losses = []
    for number in range(4):
        losses.append(step(model, optimizer, number))
        if number % 2:
            for kept, each in zip(slow, model.parameters()):
                kept += 0.5 * (each.data - kept)
                each.data.copy_(kept)
    return losses


def pruned_by_a_mask(model, optimizer):
    weight = model.blocks[0].linear.weight
    mask = torch.zeros_like(weight)
    mask[::2] = 1
    losses = []
    for number in range(3):
        losses.append(step(model, optimizer, number))
        with torch.no_grad():
            weight.mul_(mask)
            weight[0, 0] = 0.5
    return losses


def loaded_by_hand(model, optimizer):
    losses, own = [step(model, optimizer, 0)], model.state_dict()
    for name in own:
        own[name].copy_(torch.ones_like(own[name]) * 0.1)
    del own
    losses.append(step(model, optimizer, 1))
    model.state_dict()["head.weight"].zero_()
    return [*losses, step(model, optimizer, 2)]


def by_other_names(model, optimizer):
    losses = [step(model, optimizer, 0)]
    with torch.no_grad():
        model.head.weight.set_(torch.full((11, small.WIDTH), 0.125))
        model.norm.weight.copy_(torch.linspace(0, 1, small.WIDTH))
        torch.mul(model.norm.bias.detach(), 2, out=model.norm.bias)
        torch._foreach_mul_([each.linear.weight for each in model.blocks], 0.5)
        model.embedding.weight.detach().numpy()
        model.embedding.weight.data[3].fill_(0.75)
        model.embedding.weight.view(-1)[5:9] = 0.5
    first, second = model.norm.weight.data, model.norm.bias.data
    first.add_(second)
    del first, second
    model.norm.weight.data += 0.25
    model.norm.bias.data[2:] -= 0.5
    model.head.weight.data = model.head.weight.data * 0.5
    for each in model.blocks.parameters():
        each.data *= 0.75
    return [*losses, step(model, optimizer, 1)]


def by_itself(model, optimizer):
    """The program's own step, and another optimizer of torch's."""
    losses, other = [], torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(4):
        loss = small.loss(model, small.ids(number))
        loss.backward()
        if number % 2:
            other.step()
        else:
            for each in model.parameters():
                each.data.add_(each.grad, alpha=-0.1)
        model.zero_grad()
        losses.append(loss.item())
    return [*losses, step(model, optimizer, 5)]


PROGRAMS = [clipped, assigned, initialized_again, by_a_vector, sharpness_aware, looking_ahead, pruned_by_a_mask,
            loaded_by_hand, by_other_names, by_itself]


@RESIDENT
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_a_program_that_writes_weights_between_passes_trains_as_in_torch(program, resident):
    check(program, resident=resident)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_so_it_does_with_tied_weights(program):
    check(program, make=lambda: small.Stack(tied=True))


def evaluated(model, optimizer):
    """What is written last is what a forward without gradients reads."""
    step(model, optimizer, 0)
    told = []
    for value in (0.1, 0.2):
        nn.init.constant_(model.head.weight, value)
        with torch.no_grad():
            told.append(model.eval()(small.ids()).sum().item())
        model.train()
    return told


def changed_in_a_forward(model, optimizer):
    """Of a model whose blocks change their weights when they are evaluated."""
    step(model, optimizer, 0)
    with torch.no_grad():
        told = [model.eval()(small.ids()).sum().item() for _ in range(2)]
    model.train()
    return [*told, step(model, optimizer, 1)]


class Rescaling(small.Block):
    def forward(self, x):
        if not self.training:
            self.linear.weight.data.mul_(0.5)
        return super().forward(x)


@RESIDENT
def test_what_is_written_counts_in_the_next_forward(resident):
    check(evaluated, resident=resident)


def test_residents_may_change_in_a_forward_without_gradients():
    check(changed_in_a_forward, make=lambda: small.Stack(block=Rescaling), resident=("blocks.*",))


# Programs that read.
def consolidated(model, optimizer):
    """Elastic weight consolidation: where weights were, and how much each mattered."""
    losses = [step(model, optimizer, 0)]
    means = {name: each.data.clone() for name, each in model.named_parameters()}
    mattered = {name: torch.zeros_like(each) for name, each in model.named_parameters()}
    small.loss(model, small.ids(1)).backward()
    for name, each in model.named_parameters():
        mattered[name] += each.grad.detach() ** 2
    optimizer.zero_grad()
    losses.append(step(model, optimizer, 2))
    with torch.no_grad():
        penalty = sum((mattered[name] * (each - means[name]) ** 2).sum().item() for name, each in model.named_parameters())
    return [*losses, penalty]


def logged(model, optimizer):
    told = []
    for number in range(2):
        told.append(step(model, optimizer, number))
        with torch.no_grad():
            told += [each.norm().item() for each in model.parameters()]
            told.append(torch.stack(torch._foreach_norm(list(model.parameters()))).sum().item())
        told += [bool(torch.isfinite(each).all()) for each in model.parameters()]
        told += [each.detach().float().mean().item() for each in model.parameters()]
        told.append(float(model.head.weight.data.max()))
        told.append(torch.equal(model.head.weight, model.embedding.weight))
        told.append(model.norm.weight.tolist())
    return told


@RESIDENT
@pytest.mark.parametrize("program", [consolidated, logged], ids=lambda each: each.__name__)
def test_a_program_that_reads_weights_between_passes_reads_those_of_torch(program, resident):
    check(program, resident=resident)


def test_what_was_read_goes_again_whatever_its_number():
    engine = managed()
    with torch.no_grad():
        for each in engine.module.parameters():
            each.sum()
    there = [each for each in engine.module.parameters() if isinstance(each, Managed) and not isinstance(each, Released)]
    assert len(there) <= 1
    engine.visits.end()
    assert released(engine)


def test_where_there_is_no_room_for_what_is_read_it_is_named():
    class Wide(small.Stack):
        def __init__(self):
            super().__init__()
            self.wide = nn.Linear(1024, 512)
    engine = managed(Wide)
    engine.binding.loans.room = lambda: HostMemory(1 << 20, "free RAM")
    with pytest.raises(penstock.FitError, match="'wide.weight' would take 2.0 MiB of memory, and there are 1.0 MiB"):
        engine.module.wide.weight.data.sum()
    engine.binding.loans.room = lambda: HostMemory(3 << 20, "free RAM")
    engine.module.wide.weight.data.sum()


def test_memory_of_a_weight_that_is_held_while_the_weight_changes_is_named():
    """In torch it follows the updates."""
    engine = managed()
    held = engine.module.head.weight.data[2:]
    with torch.no_grad():
        engine(small.ids())
    with pytest.raises(penstock.UsageError, match="read between passes from parameters 'head.weight'.*clone"):
        engine(small.ids())
    del held
    held = engine.module.head.weight.detach()
    del held
    engine.backward(small.loss(engine, small.ids()))
    held = engine.module.norm.weight.detach().numpy()
    engine.visits.end()
    held = engine.module.norm.weight.detach().numpy()
    with pytest.raises(penstock.UsageError, match="'norm.weight'"):
        engine.step()
    del held
    engine.step()
    cycle = [engine.module.norm.weight.detach()]
    cycle.append(cycle)
    del cycle
    engine.backward(small.loss(engine, small.ids()))
    gc.collect()


def test_what_an_old_state_dict_is_changed_to_is_named():
    engine = managed()
    state = engine.state_dict()
    engine.backward(small.loss(engine, small.ids()))
    state["head.weight"].zero_()
    with pytest.raises(penstock.ModelError, match="state_dict.. gave of parameters 'head.weight'.*load_state_dict"):
        engine.step()
    engine.step()


def test_masters_keep_their_lower_bits_where_nothing_was_written():
    torch.manual_seed(0)
    model = small.Stack().bfloat16()
    engine, _, _, _ = penstock.initialize(model, adamw(model.parameters()), core=test_core(), resident=["norm"])
    engine.backward(small.loss(engine, small.ids()))
    engine.step()
    for name in ("head.weight", "norm.weight"):
        before = engine.weight(name, "master")
        weight = model.get_parameter(name)
        with torch.no_grad():
            weight.view(-1)[0] = 3
        after = engine.weight(name, "master")
        assert after.view(-1)[0].bfloat16() == 3 and torch.equal(after.view(-1)[1:], before.view(-1)[1:])
        assert after.view(-1)[0] == 3 or name == "norm.weight"  # in a resident's memory both are one
        assert not torch.equal(before, before.bfloat16().float())


def test_setting_what_is_there_leaves_the_masters_alone():
    torch.manual_seed(0)
    model = small.Stack().bfloat16()
    engine, _, _, _ = penstock.initialize(model, adamw(model.parameters()), core=test_core())
    engine.backward(small.loss(engine, small.ids()))
    engine.step()
    masters = dict(engine.named_weights("master"))
    for name, each in model.named_parameters():
        engine.set_weight(name, engine.weight(name))
        each.data = each.data.clone()
    assert all(torch.equal(each, masters[name]) for name, each in engine.named_weights("master"))


# Graphs that read weights between passes: what was read before without one is no part of them.
@RESIDENT
@pytest.mark.parametrize("read_before", [False, True])
def test_a_graph_reads_weights_between_passes_as_in_torch(read_before, resident):
    def program(model, optimizer):
        losses = []
        for number in range(2):
            if read_before:
                model.head.weight.data.mul_(0.5)
            penalty = sum((each * each).sum() for each in model.parameters())
            loss = small.loss(model, small.ids(number)) + 0.01 * penalty
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses
    check(program, resident=resident)


@pytest.mark.parametrize("read_before", [False, True])
def test_a_graph_of_another_tensor_reads_a_frozen_weight(read_before):
    def make():
        model = small.Stack()
        model.norm.requires_grad_(False)
        return model

    def program(model, optimizer):
        prompt, told = torch.ones(small.WIDTH, requires_grad=True), []
        if read_before:
            model.norm.weight.data.sum()
        out = (prompt * model.norm.weight).sum()
        told.append(step(model, optimizer, 0))
        out.backward()
        told.append(prompt.grad.tolist())
        model.norm.weight.mul_(2)
        return [*told, step(model, optimizer, 1), (model.norm.weight * 2).tolist()]
    check(program, make=make, optimizer=lambda parameters: adamw([each for each in parameters if each.requires_grad]))


@RESIDENT
def test_inference_mode_reads_and_writes_as_in_torch(resident):
    def program(model, optimizer):
        losses = [step(model, optimizer, 0)]
        with torch.inference_mode():
            losses += [each.norm().item() for each in model.parameters()]
            model.norm.weight.fill_(0.75)
            model.head.weight.data.mul_(0.5)
            model.head.weight.data[0] = 0.25
            losses.append(model.eval()(small.ids()).sum().item())
            copied = copy.deepcopy(model)
            losses.append(copied(small.ids()).sum().item())
        return losses
    check(program, resident=resident)


# The model itself.
def renamed(model):
    nn.utils.parametrize.register_parametrization(model.head, "weight", nn.Identity())


def pruned(model):
    with torch.no_grad():
        prune.random_unstructured(model.head, "weight", 0.5)


@pytest.mark.parametrize("change, text", [
    (renamed, "'head.weight' were renamed"),
    (pruned, "'head.weight' were renamed"),
    (lambda model: setattr(model.head, "weight", nn.Parameter(torch.zeros(11, small.WIDTH))), "were added or replaced")])
def test_a_parameter_that_is_put_elsewhere_is_named_at_the_next_use(change, text):
    engine = managed()
    change(engine.module)
    with pytest.raises(penstock.ModelError, match=text):
        engine(small.ids())


def test_assigning_load_state_dict_is_refused_and_a_plain_one_loads():
    engine, other = managed(), small.Stack()
    with pytest.raises(penstock.ModelError, match="assign=True.*leave out assign"):
        engine.module.load_state_dict(other.state_dict(), assign=True)
    engine.module.load_state_dict(other.state_dict())
    assert all(torch.equal(each, engine.weight(name)) for name, each in other.named_parameters())


def test_loading_what_is_there_writes_nothing():
    engine = managed()
    state, write = engine.state_dict(), engine.core.write
    engine.core.write = None
    engine.load_state_dict(state)
    engine.core.write = write
    wanted = state["head.weight"] + 1
    engine.load_state_dict({**state, "head.weight": wanted})
    assert torch.equal(engine.weight("head.weight"), wanted) and torch.equal(state["head.weight"], wanted)  # as in torch


@pytest.mark.skipif(not NATIVE, reason="of the core on NVMe")
@pytest.mark.parametrize("order", ["within", "balanced"])
def test_a_weight_that_is_read_or_written_while_its_step_is_under_way_is_named(order):
    torch.manual_seed(0)
    model = small.Stack()
    engine, _, _, _ = penstock.initialize(model, adamw(model.parameters()), core=OpenNativeCore(**WAYS[order]))
    for number in range(3):
        engine.backward(small.loss(engine, small.ids()))
        for use in (lambda: model.head.weight.data.sum(), lambda: model.norm.weight.data.fill_(1),
                    lambda: copy.deepcopy(model), lambda: engine.set_weight("head.weight", torch.zeros(11, small.WIDTH)),
                    lambda: setattr(model.head.weight, "data", torch.zeros(11, small.WIDTH))):
            if engine.core.begun is not None:
                with pytest.raises(penstock.UsageError, match="while step .* is under way.*after engine.step.*'deferred'"):
                    use()
        engine.step()
    assert engine.global_steps == 3


# The end.
def test_what_was_written_last_is_kept_when_the_engine_is_closed(tmp_path):
    def opened():
        model = small.Stack()
        return penstock.initialize(model, adamw(model.parameters()), core=test_core(folder=tmp_path))[0]
    engine = opened()
    engine.backward(small.loss(engine, small.ids()))
    engine.step()
    engine.module.head.weight.data.fill_(0.5)
    kept = []
    settle = engine.core.settle
    engine.core.settle = lambda: (kept.append(engine.core.read(*engine.binding.places[engine.module.head.weight])), settle())
    engine.close()
    assert kept and bool((kept[0] == 0.5).all())


def test_what_was_written_last_is_kept_when_the_interpreter_ends():
    code = ("import torch, small_models as small, penstock\n"
            "from cores import test_core\n"
            "model = small.Stack()\n"
            "engine = penstock.initialize(model, core=test_core())[0]\n"
            "write, names = engine.core.write, {place: each for each, place in engine.binding.places.items()}\n"
            "engine.core.write = lambda *given: (print('written', engine.binding.names[names[given[:2]]]), write(*given))\n"
            "model.head.weight.data.zero_()\n")
    here = Path(__file__).resolve().parent
    done = subprocess.run([sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n" + code], cwd=here,
                          capture_output=True, text=True)
    assert done.returncode == 0 and "written head.weight" in done.stdout, done.stderr


def test_names_are_looked_up_once():
    engine = managed()
    names, asked = engine.binding.names, []

    class Watched(dict):
        def items(self):
            asked.append(1)
            return super().items()
    engine.binding.names = Watched(names)
    assert len(dict(engine.named_weights())) == len(names) and len(asked) == 1
