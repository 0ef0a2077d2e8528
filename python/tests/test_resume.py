"""A training that is stopped and goes on: schedulers, random states, what is told, and what is refused at once."""
from __future__ import annotations

import json
import logging
import random
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn

import penstock
import resumed
import small_models as small
from compare import adamw
from cores import test_core as OpenCore
from penstock.checkpoints import random_states
from penstock.checkpoints.kept_scheduler import KeptScheduler
from penstock.native import library
from penstock.weights.bits import same_bits
from resumed import SCHEDULERS, end_of, losses_of, start

STEPS = 8


def has_library() -> bool:
    try:
        library.library()
    except penstock.UsageError:
        return False
    return True


needs_library = pytest.mark.skipif(not has_library(), reason="the C library is not built")


@pytest.fixture(autouse=True)
def numpys_generator():
    numpy.random.seed(5)


def same(a, b) -> bool:
    return a.keys() == b.keys() and all(same_bits(a[name], b[name]) for name in a)


def stopped_after(path, name, steps, metric, **options):
    """In one life for each number of steps: the losses of all of them, and the end."""
    losses = []
    for until in (*steps, STEPS):
        numpy.random.seed(5)
        engine = start(path, name, **options)
        losses += losses_of(engine, until, metric)
        if until < STEPS:
            torch.rand(3), random.random(), numpy.random.rand()  # nothing of it was committed
            engine.close()
    return losses, end_of(engine)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_training_with_any_scheduler_is_stopped_anywhere_and_ends_the_same(name, tmp_path):
    metric = name == "plateau"
    expected, end = stopped_after(tmp_path / "whole", name, (), metric)
    found, other = stopped_after(tmp_path / "parts", name, (1, 2, 5), metric)
    assert found == expected
    assert same(end, other)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_step_goes_on_from_a_kill_in_the_middle_of_it(accumulation, tmp_path):
    settings = penstock.Settings(accumulation=accumulation)
    expected = losses_of(start(tmp_path / "whole", "cosine", settings=settings), 4)
    numpy.random.seed(5)
    first = start(tmp_path / "parts", "cosine", settings=settings)
    losses = losses_of(first, 2)
    first.backward(small.loss(first, torch.randint(0, 11, (2, 5))))
    if accumulation > 1:
        first.step()
    first.core.close()  # and is killed
    assert losses + losses_of(start(tmp_path / "parts", "cosine", settings=settings), 4) == expected


def test_a_kill_before_the_first_step_begins_with_the_same_draws(tmp_path):
    expected = losses_of(start(tmp_path / "whole", "none"), 3)
    numpy.random.seed(5)
    first = start(tmp_path / "parts", "none")
    first.core.close()
    numpy.random.seed(77)
    assert losses_of(start(tmp_path / "parts", "none"), 3) == expected


def test_random_states_are_left_where_they_are_not_wanted_or_seeded_later(tmp_path):
    first = start(tmp_path, "none")
    losses_of(first, 2)
    first.close()
    left = start(tmp_path, "none", restore_random=False)
    mine = (torch.rand(1).item(), random.random())
    left.close()
    torch.manual_seed(5)
    small.Stack(block=small.Normed)
    random.seed(5)
    assert mine == (torch.rand(1).item(), random.random())
    start(tmp_path, "none")
    assert torch.rand(1).item() != mine[0]
    torch.manual_seed(3)
    seeded = torch.rand(4)
    engine = start(tmp_path / "other", "none")
    losses_of(engine, 1)
    engine.close()
    start(tmp_path / "other", "none")
    torch.manual_seed(3)
    assert torch.equal(torch.rand(4), seeded)


def test_random_states_come_back_to_the_bit():
    numpy.random.seed(3)
    random.gauss(0, 1), numpy.random.randn()  # half of a pair is kept
    text = random_states.taken()
    drawn = (torch.rand(3).tolist(), random.gauss(0, 1), random.random(), numpy.random.randn(), numpy.random.rand())
    assert random_states.put(text) == ["torch", "Python", "numpy"]
    assert drawn == (torch.rand(3).tolist(), random.gauss(0, 1), random.random(), numpy.random.randn(), numpy.random.rand())


def test_the_states_of_all_gpus_are_taken_and_put_where_they_are_there(monkeypatch):
    states, here = {0: 10, 1: 11}, {"count": 2}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: here["count"] > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: here["count"])
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda index: torch.tensor([states[index]], dtype=torch.uint8))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, index: states.update({index: state.item()}))
    text = random_states.taken()
    for count, expected in ((2, {0: 10, 1: 11}), (1, {0: 10, 1: 0}), (0, {0: 0, 1: 0})):
        states.update({0: 0, 1: 0})
        here["count"] = count
        back = random_states.put(text)
        assert states == expected and ("CUDA" in back) == (count > 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="wants a GPU")
def test_the_gpus_generator_comes_back_to_the_bit():
    torch.randn(3, device="cuda")
    text = random_states.taken()
    drawn = torch.randn(5, device="cuda")
    random_states.put(text)
    assert torch.equal(torch.randn(5, device="cuda"), drawn)


def test_numpys_generator_of_another_kind_is_left(monkeypatch):
    text = random_states.taken()

    def another(state):
        raise ValueError("set_state can only be used with legacy MT19937 state instances.")
    monkeypatch.setattr(numpy.random, "set_state", another)
    assert random_states.put(text) == ["torch", "Python"]


def test_a_checkpoint_brings_random_states_back_where_they_are_wanted(tmp_path):
    engine = start(tmp_path / "a", "own")
    losses_of(engine, 2)
    engine.save_checkpoint(tmp_path / "checkpoints")
    expected = losses_of(engine, 5)
    engine.load_checkpoint(tmp_path / "checkpoints", restore_random=True)
    assert losses_of(engine, 5) == expected
    engine.load_checkpoint(tmp_path / "checkpoints")
    assert losses_of(engine, 5) != expected


README = (Path(__file__).resolve().parents[1] / "README.md").read_text()
FIRST_RUN = (Path(__file__).resolve().parents[2] / "docs/first-run.md").read_text()


class Stopped(Exception):
    pass


def quick_start(folder, stop=None):
    """The program of README.md as a process would run it, until so many steps are made."""
    told = []

    def note(step, loss):
        told.append((step, loss))
        if step == stop:
            raise Stopped
    code = README.split("```python\n")[1].split("```")[0]
    for old, new in (("/nvme/quick-start", str(folder)), ("print(", "note("), ("engine.global_steps + 10", "10")):
        assert old in code
        code = code.replace(old, new)
    torch.manual_seed(67280421310721)  # torch's own, which a process begins with
    names = {"note": note}
    try:
        exec(compile(code, "README.md", "exec"), names)
    except Stopped:
        names["engine"].core.close()  # as a kill: nothing more is committed
    return told


@needs_library
def test_the_quick_start_that_is_stopped_anywhere_ends_with_the_same_bits(tmp_path):
    expected = quick_start(tmp_path / "whole")
    assert len(expected) == 10 and len({loss for _, loss in expected}) == 10
    found = [each for stop in (1, 4, 9, None) for each in quick_start(tmp_path / "parts", stop)]
    assert found == expected


@needs_library
def test_the_first_run_goes_on_and_leaves_weights(tmp_path, capsys):
    code = FIRST_RUN.split("```python\n")[1].split("```")[0]
    for old, new in (("/nvme/first", f"{tmp_path}/first"), ("first-weights", f"{tmp_path}/weights"), ("256", "16")):
        assert old in code
        code = code.replace(old, new)
    for steps in (2, 3):
        exec(compile(code.replace("< 20", f"< {steps}").replace("/weights", f"/weights{steps}"), "first-run.md", "exec"), {})
    assert [int(line.split()[0]) for line in capsys.readouterr().out.splitlines()] == [1, 2, 3]
    assert (tmp_path / "weights3/model.safetensors").is_file()


@needs_library
@pytest.mark.parametrize("order, commit_steps", [("after_backward", 1), ("after_backward", 3), ("deferred", 1), ("deferred", 3),
                                                 ("within", 1), ("within", 3), ("speculative", 1), ("balanced", 1)])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_in_each_order_of_updates_a_kill_goes_on_with_the_same_draws(order, commit_steps, accumulation, tmp_path):
    # A limit within the norms, so that some steps are clipped and updated again.
    settings = penstock.Settings(accumulation, 0.0 if order == "within" else 1.2)
    store = {"commit_steps": commit_steps}

    def losses(folder, stops):
        found = {}
        numpy.random.seed(5)
        for until in stops:
            engine = start(folder, "own", order, settings, store)
            first = engine.global_steps
            for at, value in enumerate(losses_of(engine, until), first):
                assert found.setdefault(at, value) == value  # what was lost is made again
            if until != stops[-1]:
                engine.core.close()
        return found, end_of(engine)
    expected, end = losses(tmp_path / "whole", (9,))
    found, other = losses(tmp_path / "parts", (1, 2, 5, 7, 9))
    assert found == expected and same(end, other)


# The scheduler's turn.
def test_a_plateau_is_stepped_by_the_program_where_no_metric_is_given(tmp_path):
    def rates(path, lives):
        told = []
        for until in lives:
            engine = start(path, "plateau")
            while engine.global_steps < until:
                at = engine.global_steps
                if at > 0:  # at the head of a step: a kill before its commit finds it again
                    engine.lr_scheduler.step(1.0)
                losses_of(engine, at + 1)
                told.append(engine.get_lr()[0])
            engine.close()
        return told
    expected = rates(tmp_path / "whole", (5,))
    assert expected == [1e-2, 1e-2, 5e-3, 2.5e-3, 1.25e-3] and rates(tmp_path / "parts", (1, 3, 4, 5)) == expected


def test_what_a_turn_was_given_is_committed_with_its_step(tmp_path):
    def given(path, lives):
        for until in lives:
            engine = start(path, "own")
            while engine.global_steps < until:
                engine.backward(small.loss(engine, small.ids()))
                engine.step(lr_kwargs={"metric": 10.0 - engine.global_steps})
            seen = dict(engine.lr_scheduler.seen)
            engine.close()
        return seen
    assert given(tmp_path / "whole", (4,)) == given(tmp_path / "parts", (1, 2, 4))


def test_arguments_of_a_turn_without_a_scheduler_or_that_cannot_be_kept_are_refused(tmp_path):
    engine = start(tmp_path / "a", "none")
    engine.backward(small.loss(engine, small.ids()))
    with pytest.raises(penstock.UsageError, match="none was given"):
        engine.step(lr_kwargs={"metrics": 1.0})
    other = start(tmp_path / "b", "own")
    other.backward(small.loss(other, small.ids()))
    with pytest.raises(penstock.UsageError, match=r"lr_kwargs=...\)\['metric'\] is a"):
        other.step(lr_kwargs={"metric": object()})
    other.step(lr_kwargs={"metric": 1.0})
    assert other.global_steps == 1 and other.micro_steps == 1


class Forgetful(resumed.Own):
    def load_state_dict(self, state):
        self.seen = {int(key): each for key, each in state["seen"].items() if key}


class Raising(resumed.Own):
    def load_state_dict(self, state):
        self.best = state["lowest"]


class Holding(resumed.Own):
    def state_dict(self):
        return {"groups": [self]}


class Stateless:
    def step(self):
        pass


NOT_KEPT = [
    (Forgetful, "does not come back: after load_state_dict its 'seen'"), (Raising, "does not take what its state_dict"),
    (Holding, r"state_dict\(\) of Holding\['groups'\]\[0\] is a .*Holding")]


@pytest.mark.parametrize("make, said", [*NOT_KEPT, (lambda _: Stateless(), "has no state_dict"), (lambda _: 3, "not int")])
def test_a_scheduler_that_would_not_come_back_is_refused_before_anything_is_opened(make, said):
    model, opener = small.Stack(), OpenCore()
    optimizer = adamw(model.parameters())
    with pytest.raises(penstock.UsageError, match=said):
        penstock.initialize(model, optimizer, core=opener, lr_scheduler=make(optimizer))
    assert opener.last is None and not model.head.weight.isnan().any()


@pytest.mark.parametrize("make, said", [*NOT_KEPT, (lambda _: Stateless(), "gave a Stateless"), (lambda _: 3, "gave a int")])
def test_one_that_a_function_makes_is_refused_and_the_store_is_given_back(make, said, tmp_path):
    model = small.Stack()
    with pytest.raises(penstock.UsageError, match=said):
        penstock.initialize(model, adamw(model.parameters()), core=OpenCore(folder=tmp_path), lr_scheduler=make)
    fresh = small.Stack()
    penstock.initialize(fresh, adamw(fresh.parameters()), core=OpenCore(folder=tmp_path))


def test_a_scheduler_that_remembers_too_much_is_refused_before_its_update(tmp_path):
    engine = start(tmp_path, "own")
    losses_of(engine, 1)
    engine.lr_scheduler.seen.update({number: (0.1, "x" * 30) for number in range(9000)})
    before = engine.state_dict()
    engine.backward(small.loss(engine, small.ids()))
    with pytest.raises(penstock.UsageError, match="scheduler's state_dict.. takes .* let it hold less"):
        engine.step()
    assert same(before, engine.state_dict()) and engine.global_steps == 1
    engine.lr_scheduler.seen.clear()
    engine.step()
    assert engine.global_steps == 2


def test_what_an_earlier_version_has_committed_of_a_scheduler_is_taken():
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = SCHEDULERS["multi_step"](optimizer)
    optimizer.step()
    scheduler.step()
    text = json.dumps(scheduler.state_dict())
    other = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    kept = KeptScheduler(SCHEDULERS["multi_step"](other), other.param_groups)
    kept.go_on({"scheduler": text})
    assert other.param_groups[0]["lr"] == 0.5


# Values of groups, and what is told.
@pytest.fixture
def told(caplog):
    caplog.set_level(logging.INFO, "penstock")

    def lines():
        found = [(each.levelname, each.getMessage()) for each in caplog.records if "goes on from step" in each.getMessage()]
        caplog.clear()
        return found
    return lines


def reopen(path, scheduler=None, settings=penstock.Settings(), **values):
    model = small.Stack()
    optimizer = torch.optim.AdamW(model.parameters(), **{"lr": 0.1, "weight_decay": 0.0, "foreach": False, **values})
    made = None if scheduler is None else scheduler(optimizer)
    engine = penstock.initialize(model, optimizer, core=OpenCore(folder=path), lr_scheduler=made, settings=settings)[0]
    losses_of(engine, engine.global_steps + 2)
    engine.close()
    return engine


def test_an_opening_that_goes_on_says_so_in_one_line(tmp_path, told):
    reopen(tmp_path)
    assert told() == []
    reopen(tmp_path)
    (level, line), = told()
    assert level == "INFO" and "goes on from step 2 of the store, made " in line and "ago" in line
    assert "random states of torch, Python, numpy restored" in line and "instead" not in line
    assert "which batches come next is the script's to say" in line


def test_what_this_script_says_otherwise_is_told_as_a_warning(tmp_path, told):
    reopen(tmp_path)
    reopen(tmp_path, lr=0.01, betas=(0.8, 0.9), settings=penstock.Settings(clip=1.0, micro_batch=4))
    (level, line), = told()
    assert level == "WARNING" and all(each in line for each in (
        "lr 0.01 instead of 0.1", "betas (0.8, 0.9) instead of (0.9, 0.999)", "gradient_clipping 1.0 instead of 0.0",
        "micro-batch 4 instead of None"))


def test_values_that_the_program_moved_itself_are_told_where_they_begin_anew(tmp_path, told):
    engine = reopen(tmp_path)
    engine = penstock.initialize(model := small.Stack(), adamw(model.parameters()), core=OpenCore(folder=tmp_path))[0]
    engine.optimizer.param_groups[0]["lr"] = 0.5
    losses_of(engine, 3)
    engine.close()
    told()
    penstock.initialize(model := small.Stack(), adamw(model.parameters()), core=OpenCore(folder=tmp_path))
    assert "lr begins at 0.01, its last step had 0.5" in told()[0][1]


@pytest.mark.parametrize("name", ["cosine", "multi_step"])  # which has moved its rate by then, and which has not
def test_with_a_scheduler_rates_go_on_and_other_values_are_the_scripts(name, tmp_path, told):
    scheduler = SCHEDULERS[name]
    rate = reopen(tmp_path, scheduler).get_lr()
    engine = reopen(tmp_path, scheduler, lr=3.0, weight_decay=0.3)
    (level, line), = told()
    assert "lr 0.1, as the scheduler goes on, not 3.0" in line and "weight_decay 0.3 instead of 0.0" in line and level == "WARNING"
    assert engine.get_lr()[0] < rate[0] and engine.optimizer.param_groups[0]["weight_decay"] == 0.3


def test_many_groups_of_few_values_have_room_in_a_commit(tmp_path):
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(400)))
    groups = [{"params": [each], "lr": 0.1 / (1 + at)} for at, each in enumerate(model.parameters())]
    optimizer = torch.optim.AdamW(groups, foreach=False)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    engine = penstock.initialize(model, optimizer, core=OpenCore(folder=tmp_path), lr_scheduler=scheduler)[0]
    engine.backward(engine(torch.ones(1, 2)).sum())
    engine.step()
    assert engine.global_steps == 1


def test_another_number_of_micro_batches_begins_whole(tmp_path):
    settings = penstock.Settings(accumulation=1)
    engine = start(tmp_path, "none", settings=settings)
    losses_of(engine, 3)
    engine.close()
    other = start(tmp_path, "none", settings=penstock.Settings(accumulation=2))
    for boundary in (False, True):
        assert other.is_gradient_accumulation_boundary() == boundary
        other.backward(small.loss(other, small.ids()))
        other.step()
    assert other.global_steps == 4


def test_a_checkpoint_between_micro_batches_begins_their_step_anew(tmp_path):
    settings = penstock.Settings(accumulation=2)
    engine = start(tmp_path / "a", "none", settings=settings)
    losses_of(engine, 1)
    engine.backward(small.loss(engine, small.ids()))
    engine.step()
    assert engine.micro_steps == 3
    engine.save_checkpoint(tmp_path / "checkpoints")
    other = start(tmp_path / "b", "none", settings=settings)
    other.load_checkpoint(tmp_path / "checkpoints")
    assert other.micro_steps == 2 and not other.is_gradient_accumulation_boundary()
