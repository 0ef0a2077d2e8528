"""Optimizers of torch, mapped with their groups; schedulers; gradients as torch's programs see them."""
from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import penstock
import small_models as small
from compare import Training, adamw
from cores import test_core as OpenFakeCore
from penstock.weights.bits import same_bits
from twice import run, step


def training(optimizer=adamw, count=4, **options) -> Training:
    return Training(small.Stack, [small.ids(i) for i in range(count)], small.loss, optimizer, **options)


def managed(optimizer=adamw, **options):
    model = small.Stack()
    opener = OpenFakeCore()
    engine, ours, _, scheduler = penstock.initialize(model, optimizer(model.parameters()), core=opener, **options)
    return engine, ours, opener.last, scheduler


@pytest.mark.parametrize("optimizer", [
    lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1, betas=(0.8, 0.95), eps=1e-6, foreach=False),
    lambda p: torch.optim.Adam(p, lr=1e-2, weight_decay=0.1, foreach=False),
    lambda p: torch.optim.Adam(p, lr=1e-2, weight_decay=0.1, decoupled_weight_decay=True, foreach=False),
    lambda p: torch.optim.SGD(p, lr=0.1, foreach=False),
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True, foreach=False),
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3, foreach=False),
    lambda p: torch.optim.Adagrad(p, lr=0.05, lr_decay=0.01, weight_decay=0.02, initial_accumulator_value=0.1,
                                  foreach=False)],
    ids=["AdamW", "Adam", "Adam decoupled", "SGD", "SGD nesterov", "SGD dampening", "Adagrad"])
def test_an_optimizer_of_torch_updates_to_the_same_bits(optimizer):
    training(optimizer).check()


def test_an_optimizer_that_is_named_lion_is_mapped():
    class Lion(torch.optim.Optimizer):
        def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1):
            super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    m = self.state[p].setdefault("m", torch.zeros_like(p))
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(torch.sign(m * group["betas"][0] + p.grad * (1 - group["betas"][0])), alpha=-group["lr"])
                    m.mul_(group["betas"][1]).add_(p.grad, alpha=1 - group["betas"][1])
    training(Lion).check()


class Fused(torch.optim.Optimizer):
    """One of another library's, which computes as AdamW, or as Adam, does."""

    def __init__(self, params, decoupled=True):
        self.penstock_kind = "adamw" if decoupled else "adam"
        super().__init__(params, dict(lr=1e-2, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1, fused=True))


@pytest.mark.parametrize("decoupled", [True, False])
def test_an_optimizer_may_say_which_one_it_is(decoupled):
    def torchs(parameters):
        return (torch.optim.AdamW if decoupled else torch.optim.Adam)(
            parameters, lr=1e-2, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.1, foreach=False)
    def steps(model, optimizer):
        return [step(model, optimizer, number) for number in range(3)]
    expected, plain = run(steps, False, optimizer=torchs)
    found, weights = run(steps, True, optimizer=lambda parameters: Fused(parameters, decoupled))
    assert found == expected and all(torch.equal(each, weights[name]) for name, each in plain.items())


def test_an_optimizer_that_says_what_there_is_not_is_refused():
    class Muon(torch.optim.Optimizer):
        penstock_kind = "muon"

        def __init__(self, params):
            super().__init__(params, {"lr": 1e-3})
    with pytest.raises(penstock.OptimizerError, match="Muon.penstock_kind is 'muon': there are 'adamw', 'adam'"):
        managed(Muon)


def test_a_scheduler_of_the_optimizer_that_was_given_knows_that_it_was_stepped(recwarn):
    """Which the program steps itself, and the engine does not know."""
    model = small.Stack()
    given = adamw(model.parameters())
    engine, ours, *_ = penstock.initialize(model, given, core=OpenFakeCore())
    scheduler = torch.optim.lr_scheduler.LambdaLR(given, lambda epoch: 0.5 ** epoch)
    rate = engine.get_lr()[0]
    step(model, ours, 0)
    scheduler.step()
    assert engine.get_lr()[0] == 0.5 * rate
    assert not [each for each in recwarn if "lr_scheduler.step()" in str(each.message)]


def test_the_optimizer_that_was_given_is_stepped_as_ours_is():
    """Whichever of the two a program calls."""
    torch.manual_seed(0)
    expected = small.Stack()
    model = copy.deepcopy(expected)
    theirs, given = adamw(expected.parameters()), adamw(model.parameters())
    engine, ours, *_ = penstock.initialize(model, given, core=OpenFakeCore())
    for each, optimizer in ((expected, theirs), (model, given)):
        torch.manual_seed(1)
        for number in range(3):
            step(each, optimizer, number)
            optimizer.zero_grad()
    assert engine.global_steps == 3
    for each, own in zip(model.parameters(), expected.parameters()):
        assert same_bits(each.detach(), own.detach())
        assert same_bits(given.state[each]["exp_avg"], theirs.state[own]["exp_avg"])
    kept = copy.deepcopy(given.state_dict())
    assert kept["state"].keys() == theirs.state_dict()["state"].keys()
    step(model, given, 3)
    given.load_state_dict(kept)
    assert engine.global_steps == 3
    with pytest.raises(penstock.OptimizerError, match="groups of a managed optimizer are fixed"):
        given.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})


def test_groups_keep_their_own_values():
    def optimizer(parameters):
        listed = list(parameters)
        return torch.optim.AdamW([{"params": listed[::2], "lr": 1e-2}, {"params": listed[1::2], "weight_decay": 0.3},
                                  ], lr=1e-3, foreach=False)
    training(optimizer).check()


@pytest.mark.parametrize("broken, text", [
    (lambda p: torch.optim.RMSprop(p), "RMSprop cannot be mapped"),
    (lambda p: torch.optim.AdamW(p, amsgrad=True), "amsgrad=True"),
    (lambda p: torch.optim.SGD(p, lr=0.1, maximize=True), "maximize=True")])
def test_an_optimizer_that_is_none_of_ours_is_refused(broken, text):
    with pytest.raises(penstock.OptimizerError, match=text):
        managed(broken)


def test_an_optimizer_that_has_taken_steps_is_refused():
    model = small.Stack()
    optimizer = adamw(model.parameters())
    small.loss(model, small.ids()).backward()
    optimizer.step()
    with pytest.raises(penstock.OptimizerError, match="has taken steps"):
        penstock.initialize(model, optimizer, core=OpenFakeCore())


def test_a_rate_that_is_a_tensor_is_told_and_followed(caplog):
    def steps(managed, make):
        rate = torch.tensor(0.01)

        def program(model, optimizer):
            step(model, optimizer, 0)
            rate.mul_(0.5)
            return step(model, optimizer, 1)
        return run(program, managed, optimizer=lambda parameters: make(parameters, rate))

    def sgd(parameters, rate):
        return torch.optim.SGD(parameters, lr=rate, foreach=False)

    def adam(parameters, rate):
        return torch.optim.Adam(parameters, lr=rate, foreach=False)
    with caplog.at_level("WARNING"):
        expected, found = steps(False, sgd), steps(True, sgd)
        assert not caplog.records and found[0] == expected[0]
        assert all(torch.equal(each, found[1][name]) for name, each in expected[1].items())
        expected, found = steps(False, adam), steps(True, adam)
    assert "'lr' of the optimizer is a tensor" in caplog.text and "A float has" in caplog.text
    assert all(torch.allclose(each, found[1][name], atol=1e-6) for name, each in expected[1].items())


def test_parameters_without_a_group_are_refused_by_name():
    model = small.Stack()
    with pytest.raises(penstock.OptimizerError, match="'head.weight'"):
        penstock.initialize(model, adamw([p for n, p in model.named_parameters() if n != "head.weight"]),
                            core=OpenFakeCore())
    with pytest.raises(penstock.OptimizerError, match="not the model's"):
        penstock.initialize(model, adamw([*model.parameters(), torch.nn.Parameter(torch.zeros(1))]),
                            core=OpenFakeCore())


def test_a_group_cannot_be_added_later():
    _, optimizer, _, _ = managed()
    with pytest.raises(penstock.OptimizerError, match="groups of a managed optimizer are fixed"):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))]})


@pytest.mark.parametrize("make", [
    lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 0.5 ** step),
    lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=10),
    lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=5)], ids=["lambda", "one cycle", "cosine"])
@pytest.mark.parametrize("whose", ["the user's optimizer", "ours"])
def test_a_scheduler_drives_the_groups(make, whose, recwarn):
    plain, model = small.Stack(), small.Stack()
    model.load_state_dict(plain.state_dict())
    optimizer, theirs = adamw(plain.parameters()), adamw(model.parameters())
    scheduler = make(optimizer)
    given = make(theirs) if whose == "the user's optimizer" else make
    engine, ours, _, used = penstock.initialize(model, theirs, lr_scheduler=given, core=OpenFakeCore())
    for seed in range(4):
        torch.manual_seed(seed)
        small.loss(plain, small.ids(seed)).backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        torch.manual_seed(seed)
        engine.backward(small.loss(engine, small.ids(seed)))
        engine.step()
    assert used.get_last_lr() == scheduler.get_last_lr() == engine.get_lr()
    assert all(torch.equal(a, b) for a, b in zip(plain.state_dict().values(), engine.state_dict().values()))
    assert not [each for each in recwarn if "lr_scheduler" in str(each.message)]


def test_a_transformers_schedule_drives_the_groups():
    transformers = pytest.importorskip("transformers")
    engine, ours, _, scheduler = managed(
        lr_scheduler=lambda o: transformers.get_linear_schedule_with_warmup(o, 2, 4))
    rates = []
    for seed in range(4):
        engine.backward(small.loss(engine, small.ids(seed)))
        engine.step()
        rates.append(engine.get_lr()[0])
    assert rates == [0.005, 0.01, 0.005, 0.0]


@pytest.mark.fake
def test_grad_is_none_then_the_sum_then_none():
    engine, optimizer, core, _ = managed()
    weight = engine.module.head.weight
    assert weight.grad is None
    small.loss(engine, small.ids()).backward()
    first = weight.grad.clone()
    small.loss(engine.eval(), small.ids()).backward()
    assert weight.grad.shape == weight.shape and not torch.equal(weight.grad, first)
    optimizer.zero_grad()
    assert weight.grad is None and not core.sums


@pytest.mark.fake
def test_grad_may_be_written_and_deleted():
    engine, _, core, _ = managed()
    weight = engine.module.head.weight
    weight.grad = torch.full(weight.shape, 2.0)
    weight.grad.mul_(3)
    assert torch.equal(weight.grad, torch.full(weight.shape, 6.0))
    weight.grad = weight.grad
    assert weight.grad is not None
    del weight.grad
    assert weight.grad is None
    weight.grad = torch.ones(weight.shape)
    engine.module.zero_grad()
    assert not core.sums
    with pytest.raises(penstock.ModelError, match="shape"):
        weight.grad = torch.ones(3)


@pytest.mark.afterwards
def test_clip_grad_norm_scales_the_sums():
    engine, _, core, _ = managed()
    small.loss(engine, small.ids()).backward()
    before = core.gradient_norm()
    told = torch.nn.utils.clip_grad_norm_(engine.module.parameters(), 1e-3)
    assert before > 1e-2 and abs(float(told) - before) < 1e-6
    assert core.gradient_norm() == pytest.approx(1e-3, rel=1e-3)


def test_the_engine_clips_by_the_cores_norm():
    engine, _, core, _ = managed(settings=penstock.Settings(clip=1e-3))
    engine.backward(small.loss(engine, small.ids()))
    norm = core.gradient_norm()
    engine.step()
    assert engine.get_global_grad_norm() == pytest.approx(norm)


def test_hooks_on_parameters_see_and_change_the_gradient():
    def make():
        model = small.Stack()
        model.head.weight.register_hook(lambda gradient: gradient * 2)
        model.norm.bias.register_post_accumulate_grad_hook(halve)
        return model

    def halve(parameter):
        parameter.grad.mul_(0.5)
    Training(make, [small.ids(i) for i in range(4)], small.loss, clip=0.5, accumulation=2).check()


@pytest.mark.afterwards
def test_a_parameter_hook_that_comes_after_initialize_sees_the_sum():
    engine, _, _, _ = managed()
    seen = []
    engine.module.head.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    small.loss(engine, small.ids()).backward()
    assert torch.equal(seen[0], engine.module.head.weight.grad)


@pytest.mark.fake
def test_parameters_without_a_gradient_are_not_updated_and_do_not_count_the_step():
    def make():
        return small.Stack(block=small.Experts)
    one = Training(make, [small.ids(i) for i in range(6)], small.loss)
    core = one.check().core
    steps = {int(each) for each in core.store["steps"].values()}
    assert len(steps) > 1  # experts that were left out are behind


def test_bf16_weights_have_fp32_masters():
    def make():
        return small.Stack().bfloat16()
    one = Training(make, [small.ids(i) for i in range(3)], small.loss)
    found = one.managed()
    reference = make_reference(one)
    for name, master in found.engine.named_weights("master"):
        assert torch.equal(master, reference[name]), name
        assert torch.equal(found.engine.weight(name), master.bfloat16())


def make_reference(one: Training) -> dict[str, torch.Tensor]:
    """bf16 compute, fp32 update: by torch alone."""
    torch.manual_seed(11)
    model = one.make()
    masters = {name: torch.nn.Parameter(each.detach().float()) for name, each in model.named_parameters()}
    optimizer = one.optimizer(masters.values())
    for batch in one.batches:
        one.loss(model, batch).backward()
        for name, each in model.named_parameters():
            masters[name].grad, each.grad = each.grad.float(), None
        optimizer.step()
        for name, each in model.named_parameters():
            each.data.copy_(masters[name].data)
    return {name: each.data for name, each in masters.items()}


def test_frozen_weights_may_have_another_type():
    def make():
        model = small.Stack()
        model.embedding.requires_grad_(False).bfloat16()
        model.embedding.register_forward_hook(lambda *args: args[-1].float())
        return model
    Training(make, [small.ids(i) for i in range(3)], small.loss).check()


def test_a_closure_is_called_by_step():
    engine, optimizer, _, _ = managed()

    def closure():
        value = small.loss(engine, small.ids())
        value.backward()
        return value
    assert optimizer.step(closure).item() > 0
    assert optimizer.updates == 1
