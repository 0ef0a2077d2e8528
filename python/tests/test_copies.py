"""Copies of a managed model are ordinary models with the weights in memory, whatever is made of them."""
from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

import penstock
import small_models as small
from compare import adamw
from cores import WITHIN_BACKWARD, test_core
from penstock.machine.host_memory import HostMemory
from penstock.weights.bits import same_bits
from penstock.weights.parameter import Managed
from twice import check, managed, run, step


def equal(copied, engine):
    state = copied.state_dict()
    return state.keys() == engine.state_dict().keys() and all(
        same_bits(each, state[name]) for name, each in engine.state_dict().items())


def check_ordinary(copied: nn.Module, original: nn.Module) -> None:
    """As a module of that class is that nobody has managed: no attribute, hook or parameter of the package's."""
    for module, plain in zip(copied.modules(), original.modules(), strict=True):
        assert module.__dict__.keys() == plain.__dict__.keys() and type(module) is type(plain)
        assert all(type(each) is nn.Parameter for each in module._parameters.values() if each is not None)
        for name, there in module.__dict__.items():
            assert not type(there).__module__.startswith("penstock"), name
            if "hooks" in name and isinstance(there, dict):
                assert len(there) == len(plain.__dict__[name]), name
    assert not any(hasattr(each, "penstock_keeper") or each._post_accumulate_grad_hooks or each.grad is not None
                   for each in copied.parameters())


# Each trains a model and something that was copied of it.
def reference(model, optimizer):
    """The reference model of a preference loss."""
    first = copy.deepcopy(model).eval().requires_grad_(False)
    told = []
    for number in range(3):
        with torch.no_grad():
            wanted = first(small.ids(number))
        loss = (model(small.ids(number)) - wanted).pow(2).mean() + small.loss(model, small.ids(number))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        told.append(loss.item())
    return told


def target_network(model, optimizer):
    target, told = copy.deepcopy(model), []
    for number in range(3):
        with torch.no_grad():
            wanted = target(small.ids(number)).tanh()
        loss = (model(small.ids(number)) - wanted).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for theirs, own in zip(target.parameters(), model.parameters()):
                theirs.data.copy_(0.3 * own.data + 0.7 * theirs.data)
        told.append(loss.item())
    target.load_state_dict(model.state_dict())
    return [*told, target(small.ids()).sum().item()]


def averaged(model, optimizer):
    average = AveragedModel(model)
    told = []
    for number in range(3):
        told.append(step(model, optimizer, number))
        average.update_parameters(model)
    with torch.no_grad():
        return [*told, average(small.ids()).sum().item(), int(average.n_averaged)]


def moving_average(model, optimizer):
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    told = []
    for number in range(4):
        told.append(step(model, optimizer, number))
        average.update_parameters(model)
    update_bn([small.ids(number) for number in range(2)], average)
    return [*told, [each.sum().item() for each in average.parameters()], [each.sum().item() for each in average.buffers()]]


def moving_average_by_hand(model, optimizer):
    shadow = {name: each.detach().clone() for name, each in model.named_parameters() if each.requires_grad}
    told = []
    for number in range(3):
        told.append(step(model, optimizer, number))
        with torch.no_grad():
            for name, each in model.named_parameters():
                shadow[name].lerp_(each, 0.1)
    kept = [each.data.clone() for each in model.parameters()]
    for name, each in model.named_parameters():
        each.data.copy_(shadow[name])
    with torch.no_grad():
        told.append(model.eval()(small.ids()).sum().item())
    for each, values in zip(model.train().parameters(), kept):
        each.data.copy_(values)
    return [*told, step(model, optimizer, 3)]


def the_best(model, optimizer):
    best, told = None, []
    for number in range(3):
        told.append(step(model, optimizer, number))
        if best is None or told[-1] < told[-2]:
            best = copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    return [*told, step(model, optimizer, 4)]


def born_again(model, optimizer):
    """The copy trains by plain torch, and teaches."""
    told = [step(model, optimizer, 0)]
    student = copy.deepcopy(model)
    other = adamw(student.parameters())
    told += [step(student, other, number) for number in range(1, 4)]
    return [*told, step(model, optimizer, 1), copy.deepcopy(student)(small.ids()).sum().item()]


PROGRAMS = [reference, target_network, averaged, moving_average, moving_average_by_hand, the_best, born_again]


@pytest.mark.skipif(WITHIN_BACKWARD, reason="between a backward and its step nothing may be read")
@pytest.mark.parametrize("make", [
    small.Stack, lambda: small.Stack(tied=True), lambda: small.Stack(block=small.Normed), small.Sharing, small.Direct],
    ids=["stack", "tied", "normed", "sharing", "direct"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_a_program_that_copies_its_model_trains_as_in_torch(program, make):
    if make is small.Sharing and program in (born_again, averaged, moving_average, reference, target_network):
        pytest.skip("its forwards are closures over the original in plain torch, too")
    check(program, make=make)


@pytest.mark.parametrize("resident", [(), ("*",), ("head",)])
def test_a_copy_is_an_ordinary_model(resident):
    engine = managed(resident=resident)
    engine.backward(small.loss(engine, small.ids()))
    engine.step()
    before = {id(module): list(module.__dict__) for module in engine.module.modules()}
    hooks = {id(module): [list(each) for name, each in module.__dict__.items() if "hooks" in name]
             for module in engine.module.modules()}
    copied = copy.deepcopy(engine.module)
    check_ordinary(copied, small.Stack())
    assert equal(copied, engine)
    # The original is as it was.
    assert {id(module): list(module.__dict__) for module in engine.module.modules()} == before
    assert {id(module): [list(each) for name, each in module.__dict__.items() if "hooks" in name]
            for module in engine.module.modules()} == hooks
    kept = {name: each.clone() for name, each in engine.state_dict().items()}
    optimizer = adamw(copied.parameters())
    step(copied, optimizer, 0)
    assert all(same_bits(each, kept[name]) for name, each in engine.state_dict().items()) and not equal(copied, engine)
    engine.backward(small.loss(engine, small.ids()))
    engine.step()


def test_a_part_of_a_model_and_a_parameter_may_be_copied():
    engine = managed()
    part = copy.deepcopy(engine.module.blocks[1])
    check_ordinary(part, small.Block())
    assert torch.equal(part.linear.weight, engine.weight("blocks.1.linear.weight"))
    weight = copy.deepcopy(engine.module.head.weight)
    assert type(weight) is nn.Parameter and weight.requires_grad and torch.equal(weight, engine.weight("head.weight"))
    both = copy.deepcopy({"one": engine.module.head.weight, "other": [engine.module.head.weight]})
    assert both["one"] is both["other"][0]
    assert all(isinstance(each, Managed) for each in engine.module.parameters())


def test_what_the_program_has_put_into_a_model_is_copied():
    class Odd(small.Block):
        def __init__(self):
            super().__init__()
            self.calls, self.table = [], {"a": torch.ones(2)}
            self.register_forward_hook(count)
            self.register_buffer("seen", torch.zeros(()), persistent=False)
    counted: list[Any] = []

    def count(module, args, out):
        counted.append(module)
    engine = managed(lambda: small.Stack(block=Odd))
    engine.module.blocks[0].late = 3
    engine.module.blocks[1].register_forward_pre_hook(lambda module, args: None)
    copied = copy.deepcopy(engine.module).eval()
    assert copied.blocks[0].late == 3 and copied.blocks[0].calls is not engine.module.blocks[0].calls
    assert len(copied.blocks[1]._forward_pre_hooks) == 1
    copied(small.ids())
    assert counted == list(copied.blocks)


def test_ties_and_frozen_parameters_are_as_in_the_original():
    def make():
        model = small.Stack(tied=True)
        model.norm.requires_grad_(False)
        return model
    copied = copy.deepcopy(managed(make).module)
    assert copied.head.weight is copied.embedding.weight
    assert not copied.norm.weight.requires_grad and copied.head.weight.requires_grad


def test_a_copy_may_be_managed_and_copied_again():
    engine = managed()
    copied = copy.deepcopy(copy.deepcopy(engine.module))
    other, _, _, _ = penstock.initialize(copied, adamw(copied.parameters()), core=test_core())
    other.backward(small.loss(other, small.ids()))
    other.step()
    engine.backward(small.loss(engine, small.ids()))
    engine.step()
    assert other.global_steps == engine.global_steps == 1


@pytest.mark.afterwards
def test_a_copy_may_be_taken_between_forward_and_backward():
    engine = managed(lambda: small.Stack(block=lambda: small.Block(dropout=0.0)))
    value = small.loss(engine, small.ids())
    copied = copy.deepcopy(engine.module)
    weight = copy.deepcopy(engine.module.head.weight)
    assert equal(copied, engine) and torch.equal(weight, engine.weight("head.weight"))
    engine.backward(value)
    engine.step()


def test_a_copy_within_a_forward_or_backward_is_named_and_of_a_parameter_right():
    class Copies(small.Block):
        copied: Any = None

        def forward(self, x):
            Copies.copied = copy.deepcopy(self.linear.weight)
            with pytest.raises(penstock.UsageError, match="was copied within a forward or backward"):
                copy.deepcopy(self)
            return super().forward(x)
    engine = managed(lambda: small.Stack(block=Copies))
    expected = engine.weight("blocks.2.linear.weight")
    with torch.no_grad():
        engine(small.ids())
    assert type(Copies.copied) is nn.Parameter and torch.equal(Copies.copied, expected)
    told = []
    value = small.loss(managed(), small.ids())
    other = managed()
    value = small.loss(other, small.ids())

    def copies(gradient):
        with pytest.raises(penstock.UsageError, match="within a forward or backward"):
            copy.deepcopy(other.module)
        told.append(1)
    value.register_hook(copies)
    other.backward(value)
    assert told


def test_where_memory_has_no_room_for_a_copy_it_is_named():
    class Wide(small.Stack):
        def __init__(self):
            super().__init__()
            self.wide = nn.Linear(1024, 1024)
    engine = managed(Wide)
    engine.binding.loans.room = lambda: HostMemory(4 << 20, "cgroup limit /sys/fs/cgroup/job/memory.max")
    for copies in (lambda: copy.deepcopy(engine.module), lambda: AveragedModel(engine.module)):
        with pytest.raises(penstock.FitError, match="a copy of Wide would take 4.0 MiB of memory, and there are 4.0 MiB "
                                                    r"\(cgroup limit .*named_weights"):
            copies()
    copy.deepcopy(engine.module.blocks)
    engine.binding.loans.room = lambda: HostMemory(5 << 20, "free RAM")
    assert equal(copy.deepcopy(engine.module), engine)


def test_where_a_weight_cannot_be_read_the_original_is_as_it_was():
    engine = managed()
    before = {id(module): list(module.__dict__) for module in engine.module.modules()}
    read = engine.core.read

    def fails(*_):
        raise penstock.StorageError("a tile is damaged")
    engine.core.read = fails
    with pytest.raises(penstock.StorageError, match="damaged"):
        copy.deepcopy(engine.module)
    engine.core.read = read
    assert {id(module): list(module.__dict__) for module in engine.module.modules()} == before
    engine.backward(small.loss(engine, small.ids()))
    engine.step()


def test_an_engine_is_not_copied_and_nothing_of_it_pickled():
    engine = managed(resident=["norm"])
    with pytest.raises(penstock.UsageError, match=r"copy.deepcopy\(engine.module\)"):
        copy.deepcopy(engine)
    for taken in (engine.module, engine.module.blocks[0], engine.module.head.weight, engine.module.norm.weight):
        with pytest.raises(penstock.ModelError, match="cannot be pickled.*deepcopy"):
            torch.save(taken, io.BytesIO())
    written = io.BytesIO()
    torch.save(copy.deepcopy(engine.module), written)
    pickle.dumps(copy.deepcopy(engine.module))


def test_a_module_with_a_copy_of_its_own_is_asked():
    class Own(small.Block):
        def __deepcopy__(self, memo):
            made = Own()
            made.load_state_dict(self.state_dict())
            made.by_own = True
            return made
    engine = managed(lambda: small.Stack(block=Own))
    copied = copy.deepcopy(engine.module)
    assert all(each.by_own for each in copied.blocks)
    assert torch.equal(copied.blocks[2].linear.weight, engine.weight("blocks.2.linear.weight"))


def test_machine_memory_is_the_least_of_free_ram_and_the_groups_limits(tmp_path):
    def write(path, text):
        place = tmp_path / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    write("/proc/meminfo", "MemTotal: 4000 kB\nMemAvailable:    2000 kB\n")
    assert HostMemory.read(str(tmp_path)) == HostMemory(2000 << 10, "free RAM")
    write("/proc/self/cgroup", "0::/user/job\n")
    group = "/sys/fs/cgroup/user"
    write(f"{group}/job/memory.max", "max\n")
    write(f"{group}/job/memory.current", "5000000\n")
    write(f"{group}/memory.max", "1000000\n")
    write(f"{group}/memory.current", "900000\n")
    assert HostMemory.read(str(tmp_path)) == HostMemory(100000, f"cgroup limit {group}/memory.max")
    write(f"{group}/memory.stat", "anon 7\nactive_file 200000\ninactive_file 400000\n")
    assert HostMemory.read(str(tmp_path)).available_bytes == 400000
    write("/proc/self/cgroup", "4:cpu,memory:/old\n")
    write("/sys/fs/cgroup/memory/old/memory.limit_in_bytes", "700000\n")
    write("/sys/fs/cgroup/memory/old/memory.usage_in_bytes", "800000\n")
    assert HostMemory.read(str(tmp_path)).available_bytes == 0


def test_programs_here_differ_from_plain_torch_when_they_should():
    """The comparison is one."""
    def forgets(model, optimizer):
        step(model, optimizer, 0)
        if isinstance(next(model.parameters()), Managed):
            model.head.weight.data.zero_()
    assert not all(same_bits(each, run(forgets, False)[1][name]) for name, each in run(forgets, True)[1].items())
