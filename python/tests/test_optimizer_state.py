"""`optimizer.state`, state_dict() and load_state_dict(): what torch's have, read from the store and written to it."""
from __future__ import annotations

import copy
import io

import pytest
import torch

import penstock
import small_models as small
from compare import adamw
from cores import WITHIN_BACKWARD
from penstock.machine.host_memory import HostMemory
from penstock.weights.bits import same_bits
from twice import check, managed, step

KINDS = {
    "adamw": adamw, "adam": lambda p: torch.optim.Adam(p, lr=1e-2, foreach=False),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2, foreach=False),
    "momentum": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, foreach=False),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2, foreach=False)}


def train(engine, first, last):
    return [step(engine.module, engine.optimizer, number) for number in range(first, last)]


def saved(state):
    written = io.BytesIO()
    torch.save(state, written)
    written.seek(0)
    return torch.load(written, weights_only=True)


@pytest.mark.parametrize("kind", KINDS)
def test_state_has_what_torchs_has(kind):
    engine = managed(optimizer=KINDS[kind])
    torch.manual_seed(0)
    plain = small.Stack()
    optimizer = KINDS[kind](plain.parameters())
    engine.module.eval(), plain.eval()
    assert all(not engine.optimizer.state[each] for each in engine.module.parameters()) and len(engine.optimizer.state) == 0
    for number in range(2):
        torch.manual_seed(number)
        step(engine.module, engine.optimizer, number)
        torch.manual_seed(number)
        step(plain, optimizer, number)
    theirs = {each: optimizer.state[other] for each, other in zip(engine.module.parameters(), plain.parameters())}
    if kind == "sgd":
        theirs = {each: {} for each in theirs}  # torch keeps a None
    for each, expected in theirs.items():
        found = engine.optimizer.state[each]
        assert list(found) == [key for key, value in expected.items()] and bool(found) == bool(expected)
        assert (each in engine.optimizer.state) == bool(expected)
        for key, value in expected.items():
            assert found[key].shape == value.shape and found[key].dtype == value.dtype and torch.equal(found[key], value)
    assert len(engine.optimizer.state) == len([each for each in theirs.values() if each])
    state = engine.optimizer.state
    with pytest.raises(KeyError):
        state[engine.module.head.weight]["nothing"]
    assert state[engine.module.head.weight].get("nothing") is None and "state of 'head.weight'" in repr(state[engine.module.head.weight])


@pytest.mark.parametrize("change", [
    lambda m: m.zero_(), lambda m: m.mul_(2), lambda m: m[0].fill_(1), lambda m: m.view(-1)[3:].add_(1),
    lambda m: m.__setitem__(0, 1.0), lambda m: torch.add(m, m, out=m), lambda m: torch._foreach_mul_([m], 2),
    lambda m: m.t().copy_(m.t()), lambda m: m.__imul__(2)])
def test_a_moment_that_is_changed_in_a_copy_is_an_error_that_says_how(change):
    engine = managed()
    train(engine, 0, 1)
    moment = engine.optimizer.state[engine.module.head.weight]["exp_avg"]
    with pytest.raises(penstock.OptimizerError, match=r"optimizer.state\[parameter\]\['exp_avg'\] = values.*"
                                                      r"engine.weight\('head.weight', 'moment0'\)"):
        change(moment)
    assert torch.equal(moment, engine.weight("head.weight", "moment0"))


def test_what_is_computed_of_a_moment_is_an_ordinary_tensor():
    engine = managed()
    train(engine, 0, 1)
    moment = engine.optimizer.state[engine.module.head.weight]["exp_avg"]
    for made in (moment * 2, moment.clone(), moment.sum(), moment[0] + 1, torch.zeros_like(moment)):
        assert type(made) is torch.Tensor
        made.add_(1)
    torch.zeros(moment.shape).copy_(moment).add_(moment)
    assert "ReadOnly" in repr(moment)


@pytest.mark.skipif(WITHIN_BACKWARD, reason="steps that are updated within backward begin another way")
def test_a_moment_may_be_assigned():
    """As a restart of low-rank training does."""
    engine = managed()
    torch.manual_seed(0)
    plain = small.Stack()
    optimizer = adamw(plain.parameters())
    losses = []
    for model, used in ((engine.module, engine.optimizer), (plain, optimizer)):
        torch.manual_seed(3)
        losses.append([step(model, used, 0)])
        for each in model.parameters():
            state = used.state[each]
            state["exp_avg"] = torch.zeros_like(each)
            state["exp_avg_sq"] = state["exp_avg_sq"] * 0.5
        losses[-1] += [step(model, used, 1), step(model, used, 2)]
    assert losses[0] == losses[1]
    assert all(same_bits(each, engine.weight(name)) for name, each in plain.named_parameters())


def test_what_cannot_be_set_is_refused_and_what_a_program_keeps_is_kept():
    engine = managed()
    train(engine, 0, 1)
    state, weight = engine.optimizer.state, engine.module.head.weight
    for change in (lambda: state.__setitem__(weight, {}), lambda: state.__delitem__(weight), state.clear,
                   lambda: state[weight].__delitem__("exp_avg"), lambda: setattr(engine.optimizer, "state", {}),
                   lambda: state[weight].__setitem__("step", torch.zeros(())),
                   lambda: state[weight].__setitem__("exp_avg", torch.zeros(3))):
        with pytest.raises(penstock.OptimizerError):
            change()
    state[weight]["mine"] = 5
    state["others"] = {"a": 1}
    assert engine.optimizer.state[weight]["mine"] == 5 and state["others"] == {"a": 1} and "mine" in state[weight]
    del state[weight]["mine"], state["others"]
    assert "mine" not in state[weight] and "others" not in state


@pytest.mark.afterwards
def test_a_parameter_that_skipped_a_step_counts_its_own():
    engine = managed(make=small.Direct)
    plain = small.Direct()
    optimizer = adamw(plain.parameters())
    for model, used in ((engine.module, engine.optimizer), (plain, optimizer)):
        step(model, used, 0)
        model(small.ids()).sum().backward()
        model.scale.grad = None
        used.step()
        used.zero_grad()
        used.state[model.scale]["step"]
    for name in ("scale", "bias"):
        steps = [used.state[model.get_parameter(name)]["step"] for model, used in
                 ((engine.module, engine.optimizer), (plain, optimizer))]
        assert torch.equal(*steps)
    engine.core.resumed = {"penstock.skipped_steps": "1"}
    with pytest.raises(penstock.UsageError, match=r"engine.weight\('scale', 'moment0'\)"):
        engine.optimizer.state[engine.module.scale]["step"]


@pytest.mark.skipif(WITHIN_BACKWARD, reason="a step is under way after a backward")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_dict_that_was_saved_takes_the_training_back(kind, dtype):
    engine = managed(optimizer=KINDS[kind], make=lambda: small.Stack(block=lambda: small.Block(dropout=0.0)).to(dtype))
    train(engine, 0, 2)
    model, optimizer = saved(engine.state_dict()), saved(engine.optimizer.state_dict())
    masters = dict(engine.named_weights("master"))
    expected = train(engine, 2, 4)
    end = dict(engine.named_weights("master"))
    for other in (engine, managed(optimizer=KINDS[kind], make=lambda: small.Stack(block=lambda: small.Block(dropout=0.0)).to(dtype))):
        other.load_state_dict(model)
        other.optimizer.load_state_dict(optimizer)
        assert other.global_steps == 2
        assert all(same_bits(each, masters[name]) for name, each in other.named_weights("master"))
        assert train(other, 2, 4) == expected
        assert all(same_bits(each, end[name]) for name, each in other.named_weights("master"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_dict_from_before_the_first_step_begins_anew(kind):
    def program(model, optimizer):
        first = copy.deepcopy(optimizer.state_dict())
        losses = [step(model, optimizer, number) for number in range(3)]
        optimizer.load_state_dict(first)
        return losses + [step(model, optimizer, number) for number in range(3)]
    check(program, optimizer=KINDS[kind])


def test_a_saved_state_dict_is_one_of_torchs():
    engine = managed()
    train(engine, 0, 2)
    state = saved(engine.optimizer.state_dict())
    torch.manual_seed(0)
    plain = small.Stack()
    optimizer = adamw(plain.parameters())
    plain.load_state_dict(engine.state_dict())
    optimizer.load_state_dict({key: state[key] for key in ("state", "param_groups")})
    engine.module.eval(), plain.eval()
    assert [step(plain, optimizer, number) for number in range(2)] == train(engine, 0, 2)


def test_a_state_dict_reads_nothing_until_it_is_saved_or_copied():
    engine = managed()
    train(engine, 0, 1)
    read, engine.core.read = engine.core.read, None
    state = engine.optimizer.state_dict()
    engine.optimizer.load_state_dict(state)
    engine.core.read = read
    kept = copy.deepcopy(state)
    train(engine, 1, 2)
    with pytest.raises(penstock.UsageError, match=r"copy.deepcopy\(optimizer.state_dict\(\)\)"):
        engine.optimizer.load_state_dict(state)
    assert engine.global_steps == 2
    engine.optimizer.load_state_dict(kept)
    assert engine.global_steps == 1 and same_bits(engine.weight("head.weight", "moment0"), kept["state"][15]["exp_avg"])


def test_where_memory_has_no_room_for_moments_it_is_named():
    class Wide(small.Stack):
        def __init__(self):
            super().__init__()
            self.wide = torch.nn.Linear(1024, 512)

        def run(self, x):
            return super().run(x) + self.wide.weight.sum() * 0
    engine = managed(make=Wide)
    train(engine, 0, 1)
    state = engine.optimizer.state_dict()
    engine.binding.loans.room = lambda: HostMemory(1 << 20, "free RAM")
    with pytest.raises(penstock.FitError, match="exp_avg of 'wide.weight' would take 2.0 MiB"):
        saved(state)


def test_moments_that_are_not_there_are_named_with_what_to_do(tmp_path):
    engine = managed()
    train(engine, 0, 2)
    groups = engine.optimizer.groups_state()
    train(engine, 2, 3)
    with pytest.raises(penstock.StorageError, match="engine.save_checkpoint.*KeepSnapshots"):
        engine.optimizer.load_state_dict(groups)
    engine.optimizer.leave_moments_to(lambda updates: engine.binding.go_back(str(tmp_path)))
    assert engine.optimizer.state_dict()["state"] == {}


@pytest.mark.afterwards
def test_moments_of_parameters_that_skipped_steps_are_not_taken_over():
    engine = managed(make=small.Direct)
    train(engine, 0, 1)
    state = copy.deepcopy(engine.optimizer.state_dict())
    small.loss(engine, small.ids()).backward()
    engine.module.scale.grad = None
    engine.optimizer.step()
    with pytest.raises(penstock.UsageError, match="have skipped steps.*engine.save_checkpoint"):
        engine.optimizer.load_state_dict(state)
    assert engine.global_steps == 2


@pytest.mark.skipif(WITHIN_BACKWARD, reason="a step is under way after a backward")
@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_accelerates_checkpoint_takes_the_training_back(kind, tmp_path):
    accelerate = pytest.importorskip("accelerate")

    def opened():
        accelerator = accelerate.Accelerator(cpu=True)
        engine = managed(optimizer=KINDS[kind])
        model, optimizer = accelerator.prepare(engine.module, engine.optimizer)
        return accelerator, engine, model, optimizer

    def steps(accelerator, model, optimizer, first, last):
        losses = []
        for number in range(first, last):
            loss = small.loss(model, small.ids(number))
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses
    accelerator, engine, model, optimizer = opened()
    steps(accelerator, model, optimizer, 0, 2)
    accelerator.save_state(str(tmp_path / "state"))
    expected = steps(accelerator, model, optimizer, 2, 4)
    end = dict(engine.named_weights())
    accelerator.load_state(str(tmp_path / "state"))
    assert engine.global_steps == 2 and steps(accelerator, model, optimizer, 2, 4) == expected
    accelerate.state.AcceleratorState._reset_state(True)
    accelerator, engine, model, optimizer = opened()  # another store
    accelerator.load_state(str(tmp_path / "state"))
    assert engine.global_steps == 2 and steps(accelerator, model, optimizer, 2, 4) == expected
    assert all(same_bits(each, end[name]) for name, each in engine.named_weights())
