"""What is trained may change: requires_grad_() between passes, to plain torch's bits."""
from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import penstock
import small_models as small
from compare import Trained, adamw, differences, seed
from cores import ACTIVATIONS, NATIVE, WAYS, WITHIN_BACKWARD, test_core
from switches import (KEPT, OPTIMIZERS, STEPS, SWITCHES, Program, all_or_the_head, blocks_in_turn,
                      from_the_top, norms_alone_in_between, step, switch, turns)


@pytest.mark.parametrize("change", SWITCHES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_what_is_frozen_for_now_stays_as_it_is_and_goes_on_later(change, optimizer):
    Program(small.Stack, turns(change), OPTIMIZERS[optimizer]).check()


@pytest.mark.parametrize("make", [small.Twice, small.Sharing, small.Functional, small.NestedStack])
@pytest.mark.parametrize("change", [blocks_in_turn, all_or_the_head], ids=lambda each: each.__name__)
def test_so_it_is_in_an_awkward_module(make, change):
    Program(make, turns(change)).check(test_core(window_bytes=1 << 14))


def test_a_tie_is_frozen_by_either_of_its_names():
    def change(model, number):
        (model.embedding if number % 2 else model.head).weight.requires_grad_(number < 2 or number > 4)
    Program(lambda: small.Stack(tied=True), turns(change)).check()


class Game(nn.Module):
    """Generator and discriminator in one model."""

    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
        self.critic = nn.ModuleList([nn.Sequential(nn.Linear(4, 8), nn.Tanh()), nn.Linear(8, 1)])

    def judge(self, x):
        for layer in self.critic:
            x = layer(x)
        return x

    def forward(self, x):
        return self.judge(self.generator(x))


def draw(number, rows=6):
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(number))


def play(model, optimizer):
    losses = []
    for number in range(STEPS):
        switch(model.generator, False)
        switch(model.critic, True)
        real, fake = model.judge(draw(number)), model(draw(number + 50))
        losses.append(step(optimizer, functional.softplus(fake).mean() + functional.softplus(-real).mean()))
        switch(model.generator, True)
        switch(model.critic, False)
        losses.append(step(optimizer, functional.softplus(-model(draw(number + 70))).mean()))
    return losses


def test_a_game_of_two_within_one_model():
    Program(Game, play).check()


def test_a_game_of_two_engines():
    """Each has its optimizer; the other one's weights are frozen in its turn, and gradients go through them."""
    def run(managed):
        seed()
        models = [nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)),
                  nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))]
        optimizers = [adamw(each.parameters()) for each in models]
        if managed:
            cores = [test_core(), test_core()]
            engines = [penstock.initialize(model, optimizer, core=core, settings=KEPT)
                       for model, optimizer, core in zip(models, optimizers, cores)]
            optimizers = [each[1] for each in engines]
        generator, critic = models
        losses = []
        for number in range(STEPS):
            switch(generator, False)
            switch(critic, True)
            loss = functional.softplus(critic(generator(draw(number)))).mean() \
                + functional.softplus(-critic(draw(number + 50))).mean()
            losses.append(step(optimizers[1], loss))
            switch(generator, True)
            switch(critic, False)
            losses.append(step(optimizers[0], functional.softplus(-critic(generator(draw(number + 70)))).mean()))
        return losses, [each.state_dict() for each in models]
    (expected, weights), (found, managed) = run(False), run(True)
    assert expected == found
    for one, other in zip(weights, managed):
        assert all(torch.equal(one[name], other[name]) for name in one)


class Adapted(nn.Module):
    """A frozen base, and adapters of which one is used and trained at a time."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(small.WIDTH, small.WIDTH).requires_grad_(False)
        self.adapters = nn.ModuleDict({name: nn.Linear(small.WIDTH, small.WIDTH, bias=False) for name in "ab"})
        self.active = "a"

    def forward(self, x):
        return x + torch.tanh(self.base(x) + self.adapters[self.active](x))


def test_two_adapters_in_turn():
    def change(model, number):
        for block in model.blocks:
            block.active = "ab"[number // 2 % 2]
            for name, adapter in block.adapters.items():
                switch(adapter, name == block.active)
    Program(lambda: small.Stack(block=Adapted), turns(change)).check()


def test_adapters_of_peft_in_turn():
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=2,
                                      num_attention_heads=2, num_key_value_heads=2)

    def make():
        lora = [peft.LoraConfig(r=r, task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"], lora_dropout=0.1)
                for r in (2, 4)]
        model = peft.get_peft_model(transformers.LlamaForCausalLM(config), lora[0], adapter_name="one")
        model.add_adapter("two", lora[1])
        return model

    def loop(model, optimizer):
        losses = []
        for number in range(STEPS):
            model.set_adapter("two" if number % 4 > 1 else "one")
            ids = torch.randint(0, 32, (2, 6), generator=torch.Generator().manual_seed(number))
            losses.append(step(optimizer, model(input_ids=ids, labels=ids).loss))
        return losses
    Program(make, loop, later=["*lora_*"]).check()


# What was frozen at the opening.
def frozen_but_the_head():
    model = small.Stack().requires_grad_(False)
    switch(model.head, True)
    return model


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_what_was_frozen_becomes_trainable_where_the_opening_was_told(optimizer):
    Program(frozen_but_the_head, turns(from_the_top), OPTIMIZERS[optimizer], later=["blocks.*"]).check()


def test_a_model_may_begin_wholly_frozen():
    Program(lambda: small.Stack().requires_grad_(False),
            turns(lambda model, number: (switch(model.head, True), from_the_top(model, number))),
            later=["blocks.*", "head.weight"]).check()


def test_the_own_optimizer_has_what_is_going_to_be_trained():
    seed()
    model = frozen_but_the_head()
    engine, optimizer, _, _ = penstock.initialize(model, core=test_core(), trainable=["blocks.2.*"])
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 5
    assert [name for name, _ in engine.named_weights("moment0")] == [
        "blocks.2.norm.weight", "blocks.2.norm.bias", "blocks.2.linear.weight", "blocks.2.linear.bias", "head.weight"]


def test_what_was_frozen_and_not_told_is_an_error_that_says_how_to():
    seed()
    model = frozen_but_the_head()
    engine, _, _, _ = penstock.initialize(model, OPTIMIZERS["adamw"](model), core=test_core())
    switch(model.blocks[0].norm, True)
    with pytest.raises(penstock.ModelError, match="'blocks.0.norm.weight', 'blocks.0.norm.bias' require a gradient now, "
                       r".*frozen at penstock.initialize\(\).*trainable=\['blocks.0.norm.weight', 'blocks.0.norm.bias'\]"):
        engine(small.ids())
    switch(model.blocks[0].norm, False)
    engine(small.ids())


def test_it_is_an_error_also_where_it_is_undone_before_the_step():
    """Torch's optimizer would update it."""
    seed()
    model = frozen_but_the_head()
    engine, _, _, _ = penstock.initialize(model, OPTIMIZERS["adamw"](model), core=test_core())
    model.blocks[0].register_forward_pre_hook(lambda block, _: switch(block, True))
    small.loss(engine, small.ids()).backward()
    switch(model.blocks[0], False)
    with pytest.raises(penstock.ModelError, match=r"trainable=\['blocks.0"):
        engine.step()


def test_a_pattern_of_nothing_and_parameters_of_no_group_are_refused():
    model = frozen_but_the_head()
    with pytest.raises(penstock.UsageError, match="trainable: no parameter is named 'layers.*'"):
        penstock.initialize(model, OPTIMIZERS["adamw"](model), core=test_core(), trainable=["layers.*"])
    with pytest.raises(penstock.UsageError, match="a list of patterns"):
        penstock.initialize(model, OPTIMIZERS["adamw"](model), core=test_core(), trainable="blocks.*")
    with pytest.raises(penstock.OptimizerError, match="become trainable, but no group of the optimizer has them"):
        penstock.initialize(model, adamw(model.head.parameters()), core=test_core(), trainable=["blocks.*"])


# A gradient that came before.
@pytest.mark.afterwards
def test_a_gradient_that_came_before_it_was_frozen_counts():
    def loop(model, optimizer):
        losses = []
        for number in range(STEPS):
            switch(model, True)
            loss = small.loss(model, small.ids(number))
            loss.backward()
            switch(model.blocks[1], False)
            assert model.blocks[1].linear.weight.grad is not None
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses
    Program(small.Stack, loop).check()


@pytest.mark.parametrize("first, second", [(True, False), (False, True)])
def test_micro_batches_of_one_step_may_differ(first, second):
    def loop(model, optimizer):
        losses = []
        for number in range(STEPS):
            switch(model.blocks[1], first)
            loss = small.loss(model, small.ids(number))
            loss.backward()
            switch(model.blocks[1], second)
            losses += [loss.item(), step(optimizer, small.loss(model, small.ids(number + 9)))]
        return losses
    if WITHIN_BACKWARD:
        pytest.skip("a step has one backward")
    Program(small.Stack, loop).check()


def accumulated(first, second, managed):
    seed()
    model = small.Stack()
    optimizer = OPTIMIZERS["adamw"](model)
    if managed:
        engine = penstock.initialize(model, optimizer, core=test_core(), settings=penstock.Settings(
            accumulation=2, activations=ACTIVATIONS))[0]
    for number in range(2 * STEPS):
        switch(model.blocks[1], second if number % 2 else first)
        loss = small.loss(model, small.ids(number))
        if managed:
            engine.backward(loss)
            engine.step()
        else:
            (loss / 2).backward()
            if number % 2:
                optimizer.step()
                optimizer.zero_grad()
    return Trained([], model.state_dict())


@pytest.mark.parametrize("first, second", [(True, False), (False, True)])
def test_an_accumulation_of_the_engines_may_differ_within(first, second):
    differing = differences(accumulated(first, second, False), accumulated(first, second, True))
    assert not differing, "; ".join(differing)


def test_freezing_within_a_backward_leaves_what_came():
    """A hook freezes a block as soon as its gradient is there."""
    def loop(model, optimizer):
        losses = []
        weight = model.blocks[1].linear.weight
        weight.register_post_accumulate_grad_hook(lambda each: each.requires_grad_(False))
        for number in range(STEPS):
            weight.requires_grad_(number % 2 == 0)
            losses.append(step(optimizer, small.loss(model, small.ids(number))))
        return losses
    Program(small.Stack, loop).check()


@pytest.mark.parametrize("change", SWITCHES, ids=lambda each: each.__name__)
def test_gradients_of_zeros_are_gradients(change):
    """zero_grad(set_to_none=False): torch's optimizers go on with decay and moments of what had one."""
    def loop(model, optimizer):
        losses = []
        for number in range(STEPS):
            change(model, number)
            losses.append(step(optimizer, small.loss(model, small.ids(number)), set_to_none=False))
        return losses
    Program(small.Stack, loop).check()


@pytest.mark.afterwards
def test_gradients_of_zeros_are_there_to_look_at_until_they_are_none():
    seed()
    model = small.Stack()
    _, optimizer, _, _ = penstock.initialize(model, OPTIMIZERS["adamw"](model), core=test_core())
    step(optimizer, small.loss(model, small.ids()), set_to_none=False)
    assert all(torch.equal(each.grad, torch.zeros_like(each.grad)) for each in model.parameters())
    optimizer.zero_grad()
    assert all(each.grad is None for each in model.parameters())
    step(optimizer, small.loss(model, small.ids()), set_to_none=False)
    model.head.weight.grad = None
    assert model.head.weight.grad is None and model.norm.weight.grad is not None


@pytest.mark.afterwards
def test_a_clip_sees_the_gradients_that_there_are():
    def loop(model, optimizer):
        losses = []
        for number in range(STEPS):
            blocks_in_turn(model, number)
            loss = small.loss(model, small.ids(number))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses
    Program(small.Stack, loop).check()


def test_a_frozen_parameter_has_no_gradient_to_set():
    model = frozen_but_the_head()
    penstock.initialize(model, OPTIMIZERS["adamw"](model), core=test_core())
    frozen = model.blocks[0].norm.weight
    frozen.grad = None
    with pytest.raises(penstock.ModelError, match=r"a gradient of 'blocks.0.norm.weight' is set, .*trainable=\["):
        frozen.grad = torch.ones(frozen.shape)


@pytest.mark.skipif(not NATIVE, reason="of the core on NVMe")
def test_counts_and_moments_of_what_is_frozen_for_now_outlive_a_restart(tmp_path):
    def run(stops):
        seed()
        model = small.Stack()
        plain = OPTIMIZERS["adamw"](model)
        losses, state = [], None
        for begin, end in zip([0, *stops], [*stops, 12]):
            if managed:
                seed()
                model = small.Stack()
                engine, optimizer, _, _ = penstock.initialize(model, OPTIMIZERS["adamw"](model), store=tmp_path / "store",
                                                              settings=KEPT)
            else:
                optimizer = plain
            for number in range(begin, end):
                blocks_in_turn(model, number)
                torch.manual_seed(number)
                losses.append(step(optimizer, small.loss(model, small.ids(number))))
            state = model.state_dict()
            if managed:
                engine.close()
        return Trained(losses, state)
    managed = False
    expected = run([])
    managed = True
    differing = differences(expected, run([4, 5]))
    assert not differing, "; ".join(differing)


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x * self.scale


def test_zeros_and_a_negative_zero_are_zero():
    """As autograd adds to gradients of zeros; a momentum keeps the sign."""
    def moments(managed):
        model = nn.Sequential(Scale(), Scale())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
        if managed:
            engine, optimizer, _, _ = penstock.initialize(model, optimizer, core=test_core(), settings=KEPT)
        for _ in range(2):
            step(optimizer, model(torch.ones(3)).sum() * -0.0, set_to_none=False)
        if managed:
            return engine.weight("1.scale", "moment0")
        return optimizer.state[model[1].scale]["momentum_buffer"]
    plain, managed = (moments(each) for each in (False, True))
    assert torch.equal(plain, torch.zeros(3)) and torch.equal(plain.signbit(), managed.signbit())


native = pytest.mark.skipif(not NATIVE, reason="of the core on NVMe")


def opened(path, order, model):
    engine, optimizer, _, _ = penstock.initialize(model, OPTIMIZERS["adamw"](model), settings=KEPT,
                                                  store=penstock.Store(path, **WAYS[order]))
    return engine, optimizer


@native
def test_a_unit_of_which_a_part_is_frozen_is_updated_within_backward(tmp_path, monkeypatch):
    def loop(model, optimizer):
        losses = []
        for number in range(STEPS):
            norms_alone_in_between(model, number)
            losses.append(step(optimizer, small.loss(model, small.ids(number)), set_to_none=number == 3))
        return losses
    seed()
    plain = small.Stack()
    expected = loop(plain, OPTIMIZERS["adamw"](plain))
    seed()
    engine, optimizer = opened(tmp_path / "store", "within", small.Stack())
    completed = []
    complete = engine.core.complete
    monkeypatch.setattr(engine.core, "complete", lambda unit: (completed.append(unit), complete(unit)))
    assert loop(engine.module, optimizer) == expected
    assert len(completed) == STEPS * len(engine.core.units)
    state = engine.state_dict()
    assert all(torch.equal(each, state[name]) for name, each in plain.state_dict().items())


@native
@pytest.mark.parametrize("order", ["within", "speculative", "balanced"])
def test_a_backward_through_what_is_wholly_frozen_begins_no_step(tmp_path, order):
    seed()
    engine, optimizer = opened(tmp_path / "store", order, small.Stack())
    switch(engine.module, False)
    x = torch.randn(2, small.WIDTH, requires_grad=True)
    engine.module.blocks[0](x).sum().backward()
    assert engine.core.begun is None and x.grad is not None
    switch(engine.module, True)
    step(optimizer, small.loss(engine.module, small.ids()))
    assert engine.global_steps == 1


@native
def test_a_gradient_may_be_set_while_an_update_is_deferred(tmp_path):
    """The update is made first."""
    trained = []
    for order in ("after_backward", "deferred"):
        seed()
        engine, optimizer = opened(tmp_path / order, order, small.Stack())
        step(optimizer, small.loss(engine.module, small.ids()))
        for parameter in engine.module.parameters():
            parameter.grad = torch.ones(parameter.shape)
        optimizer.step()
        trained.append(engine.state_dict())
    assert all(torch.equal(each, trained[1][name]) for name, each in trained[0].items())


@native
@pytest.mark.parametrize("order", ["within", "deferred"])
def test_a_unit_that_is_called_after_its_update_is_named(tmp_path, order):
    """A term over its weight has brought its gradient, and a hook on an activation calls it within the same backward."""
    seed()
    engine, _ = opened(tmp_path / "store", order, small.Stack())
    model = engine.module
    x = model.embedding(small.ids())
    x.register_hook(lambda gradient: model.blocks[2](gradient).detach() * 0.1 + gradient)
    loss = model.blocks[0](x).square().mean() + sum(each.square().sum() for each in model.blocks[2].parameters())
    if order == "deferred":
        loss.backward()
    else:
        with pytest.raises(penstock.UsageError, match="'blocks.2' is read by a call of it within backward after its unit was"):
            loss.backward()
